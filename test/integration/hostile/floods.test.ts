import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { fixture } from "../../support/runtime.js";

const PROGRAM = fileURLToPath(fixture("hostile/flooded.mjs"));

async function run(plugin: string, input: string) {
  const run = promisify(execFile)(process.execPath, [PROGRAM, plugin, input], { maxBuffer: 64 * 1024 * 1024 });
  const { stdout, stderr } = await run;
  return { stdout, stderr, end: JSON.parse(stdout.trimEnd().split("\n").at(-1) ?? "") };
}

const linesOf = (text: string) => text.split("\n").filter((line) => line.startsWith("a line of some length")).length;

test.each([
  ["stdout", "log"],
  ["stderr", "error"],
] as const)(
  "a plugin that floods %s: the main thread writes nothing of it, and what is over its pace is left out",
  async (stream, input) => {
    const { [stream]: text, end } = await run("floods", input);
    expect(end).toEqual({ outcomes: ["finished", "finished"], written: 0 });
    expect(linesOf(text)).toBeGreaterThan(0);
    expect(linesOf(text)).toBeLessThan(20_000);
  },
);

test.each(["stdout", "stderr"] as const)(
  "a tool of the pool that floods %s: the main thread writes nothing of it, and what is over its pace is left out",
  async (stream) => {
    const { [stream]: text, end } = await run("floods-tool", `call flood {"stream":"${stream}"}\nsay done`);
    expect(end).toEqual({ outcomes: ["finished", "finished"], written: 0 });
    expect(linesOf(text)).toBeGreaterThan(0);
    expect(linesOf(text)).toBeLessThan(20_000);
  },
);

test("what a plugin logs is on the process's own stdout and stderr, line by line", async () => {
  const { stdout, stderr } = await run("logs", "hi");
  expect(stdout.match(/^one line of a plugin$/gm)).toHaveLength(3);
  expect(stderr.match(/^one error of a plugin$/gm)).toHaveLength(3);
});
