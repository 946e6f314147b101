import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { acquireStoreLock } from "../../../src/store/index.js";
import { temporaryFolder, thrownBy } from "../commits.js";

const FIXTURE = fileURLToPath(new URL("../fixtures/hold-lock.mjs", import.meta.url));

/** A process that, told to, tries to take the lock, says how it went, and keeps it until it is killed. */
function contender(path: string) {
  const child: ChildProcess = spawn(process.execPath, [FIXTURE, path], { stdio: ["pipe", "pipe", "inherit"] });
  const exited = once(child, "exit");
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await exited;
  });
  const lines = createInterface({ input: child.stdout as NonNullable<ChildProcess["stdout"]> })[Symbol.asyncIterator]();
  const line = async () => (await lines.next()).value as string;
  return {
    pid: child.pid,
    ready: line,
    async take() {
      child.stdin?.write("take\n");
      return line();
    },
    async kill() {
      child.kill("SIGKILL");
      await exited;
    },
  };
}

test("a missing folder is created, with its parents", () => {
  const path = join(temporaryFolder(), "deep", "down");
  const lock = acquireStoreLock(path, systemClock);
  expect(existsSync(path)).toBe(true);
  lock.release();
});

test("a folder is held once per process, also under another name", () => {
  const path = temporaryFolder();
  const alias = join(temporaryFolder(), "alias");
  symlinkSync(path, alias);
  const lock = acquireStoreLock(path, systemClock);
  expect(thrownBy(() => acquireStoreLock(path, systemClock))).toMatchObject({
    code: "store_held",
    details: { pid: process.pid },
  });
  expect(thrownBy(() => acquireStoreLock(alias, systemClock))).toMatchObject({ code: "store_held" });
  lock.release();
  acquireStoreLock(alias, systemClock).release();
});

test("releasing twice does not release the next owner's lock", () => {
  const path = temporaryFolder();
  const first = acquireStoreLock(path, systemClock);
  first.release();
  const second = acquireStoreLock(path, systemClock);
  first.release();
  expect(thrownBy(() => acquireStoreLock(path, systemClock))).toMatchObject({ code: "store_held" });
  second.release();
});

test("releasing after the folder was deleted is quiet", () => {
  const path = temporaryFolder();
  const lock = acquireStoreLock(path, systemClock);
  rmSync(path, { recursive: true });
  lock.release();
  expect(existsSync(path)).toBe(false);
});

test("opening and releasing again and again leaves one small file", () => {
  const path = temporaryFolder();
  for (let i = 0; i < 12; i++) acquireStoreLock(path, systemClock).release();
  expect(readdirSync(path)).toEqual(["troupe-owner.12"]);
});

test("a second process is told who holds the store", async () => {
  const path = temporaryFolder();
  const other = contender(path);
  expect(await other.ready()).toBe("ready");
  expect(await other.take()).toBe("held");
  expect(thrownBy(() => acquireStoreLock(path, systemClock))).toMatchObject({
    code: "store_held",
    details: { pid: other.pid, path },
    message: expect.stringContaining(`process ${other.pid}`),
  });
});

test("the lock of a killed process is taken over", async () => {
  const path = temporaryFolder();
  const other = contender(path);
  await other.ready();
  expect(await other.take()).toBe("held");
  await other.kill();
  acquireStoreLock(path, systemClock).release();
});

test("of many processes that find a dead owner's lock at once, one gets it", async () => {
  const path = temporaryFolder();
  const dead = contender(path);
  await dead.ready();
  await dead.take();
  await dead.kill();
  const contenders = Array.from({ length: 6 }, () => contender(path));
  for (const each of contenders) expect(await each.ready()).toBe("ready");
  const answers = await Promise.all(contenders.map((each) => each.take()));
  expect(answers.sort()).toEqual(["held", ...Array.from({ length: 5 }, () => "store_held")]);
});

test.runIf(existsSync("/proc/self/stat"))("a process that got the dead owner's pid is not taken for it", () => {
  const path = temporaryFolder();
  writeFileSync(join(path, "troupe-owner.3"), JSON.stringify({ pid: process.pid, started: "an earlier boot/17" }));
  const lock = acquireStoreLock(path, systemClock);
  expect(readdirSync(path)).toEqual(["troupe-owner.4"]);
  lock.release();
});

test("an owner file that a power cut left empty does not lock anybody out", () => {
  const path = temporaryFolder();
  writeFileSync(join(path, "troupe-owner.1"), "");
  acquireStoreLock(path, systemClock).release();
});

test("a path that is a file is refused", () => {
  const path = join(temporaryFolder(), "file");
  writeFileSync(path, "");
  expect(thrownBy(() => acquireStoreLock(path, systemClock))).toMatchObject({
    code: "store_path_not_a_directory",
    details: { path },
  });
});

test("a path below a file cannot be created", () => {
  const file = join(temporaryFolder(), "file");
  writeFileSync(file, "");
  expect(thrownBy(() => acquireStoreLock(join(file, "store"), systemClock))).toMatchObject({
    code: "store_not_writable",
    cause: expect.any(Error),
  });
});

test.runIf(existsSync("/proc/self"))("a folder nobody can write to is refused", () => {
  expect(thrownBy(() => acquireStoreLock("/proc/troupe", systemClock))).toMatchObject({ code: "store_not_writable" });
  expect(thrownBy(() => acquireStoreLock("/proc/self", systemClock))).toMatchObject({ code: "store_not_writable" });
});

test("other files in the folder are left alone", () => {
  const path = temporaryFolder();
  mkdirSync(join(path, "troupe-owner.x"));
  writeFileSync(join(path, "notes.txt"), "mine");
  acquireStoreLock(path, systemClock).release();
  expect(readdirSync(path).sort()).toEqual(["notes.txt", "troupe-owner.1", "troupe-owner.x"]);
});
