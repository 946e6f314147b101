import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import { NODE_ARGS } from "../support/runtime.js";

const PROGRAM = fileURLToPath(new URL("../../dist/examples/host/main.js", import.meta.url));
const CHECKED = "Counts checked: no turn was lost and every session holds exactly the turns it finished.";
const SUMMARY = /^Turns asked ([\d,]+) = finished ([\d,]+) \+ refused ([\d,]+) \+ lost 0$/m;
const LINE = /^[\d.]+ s, [\d,]+ turns\/s, asked [\d,]+, .*, sessions [\d,]+( \+ [\d,]+)+$/m;

/** Where the program makes its temporary folders. */
let folder: string;
let running: ChildProcess | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "troupe-host-test-"));
});

afterEach(() => {
  running?.kill("SIGKILL");
  running = undefined;
  rmSync(folder, { recursive: true, force: true });
});

/** What code was compiled to stays, for the next start. */
function leftIn(folder: string): string[] {
  return readdirSync(folder).filter((name) => !/^(node|troupe)-compile-cache/.test(name));
}

interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the built program to its end; `onOutput` hears all it has written to stdout so far, each time it writes. */
function run(args: readonly string[], onOutput?: (stdout: string, child: ChildProcess) => void): Promise<Ended> {
  const child = spawn(process.execPath, [...NODE_ARGS, PROGRAM, ...args], {
    env: { ...process.env, TMPDIR: folder },
    stdio: ["ignore", "pipe", "pipe"],
  });
  running = child;
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
    onOutput?.(stdout, child);
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
}

function turnsOf(stdout: string): { asked: number; finished: number; refused: number } {
  const [, asked, finished, refused] = (SUMMARY.exec(stdout) ?? []).map((text) => Number(text.replaceAll(",", "")));
  return { asked: asked ?? Number.NaN, finished: finished ?? Number.NaN, refused: refused ?? Number.NaN };
}

test("hosts sessions on the embedded store, writes plain lines to a pipe and checks its counts", async () => {
  const { code, stdout, stderr } = await run(["--sessions", "40", "--seconds", "2"]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).toMatch(LINE);
  expect(stdout).not.toContain("\x1b");
  expect(stdout).toContain(CHECKED);
  const { asked, finished, refused } = turnsOf(stdout);
  expect(finished).toBeGreaterThan(0);
  expect(asked).toBe(finished + refused);
  expect(leftIn(folder)).toEqual([]);
});

test("keeps the sessions of --store, goes on from there and still counts right", async () => {
  const store = join(folder, "kept");
  const args = ["--sessions", "8", "--seconds", "1", "--store", store];
  const first = await run(args);
  const second = await run(args);
  expect([first.code, second.code]).toEqual([0, 0]);
  expect(second.stdout).toContain(CHECKED);
  expect(readdirSync(store)).toContain("data.mdb");
});

test("hosts sessions in memory with --store memory", async () => {
  const { code, stdout } = await run(["--sessions", "8", "--seconds", "1", "--store", "memory"]);
  expect(code).toBe(0);
  expect(stdout).toContain(CHECKED);
  expect(leftIn(folder)).toEqual([]);
});

test.each(["SIGINT", "SIGTERM"] as const)(
  "%s stops asking, and the counts of what was done are right",
  async (signal) => {
    let sent = false;
    const { code, stdout, stderr } = await run(["--sessions", "40", "--seconds", "600"], (soFar, child) => {
      if (sent || !LINE.test(soFar)) return;
      sent = true;
      child.kill(signal);
    });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toContain(CHECKED);
    expect(turnsOf(stdout).finished).toBeGreaterThan(0);
    expect(leftIn(folder)).toEqual([]);
  },
);

test("--help says what the options are", async () => {
  const { code, stdout } = await run(["--help"]);
  expect(code).toBe(0);
  for (const option of ["--sessions", "--seconds", "--store", "--seed", "--help"]) expect(stdout).toContain(option);
});

test.each([
  [["--sessions", "0"], '--sessions must be a whole number from 1 to 100000, not "0".'],
  [["--sessions", "many"], '--sessions must be a whole number from 1 to 100000, not "many".'],
  [["--seconds", "1.5"], '--seconds must be a whole number from 1 to 86400, not "1.5".'],
  [["--store", ""], '--store must be a folder or "memory"; it is empty.'],
  [["--bogus"], "Unknown option '--bogus'"],
])("%j is refused with exit code 2 and a clear message", async (args, message) => {
  const { code, stdout, stderr } = await run(args);
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  expect(stderr).toContain(message);
  expect(leftIn(folder)).toEqual([]);
});

test("a store path that is a file is refused with exit code 2", async () => {
  const { code, stderr } = await run(["--store", PROGRAM]);
  expect(code).toBe(2);
  expect(stderr).toContain(`${PROGRAM} is a file.`);
});
