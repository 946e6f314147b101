import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Session } from "troupe";
import { describe, expect, test } from "vitest";
import { listening } from "../../support/listening.js";
import { isAlive, kindred } from "../../support/pids.js";
import { fixture, plugin, startTroupe, tempFolder, until } from "../../support/runtime.js";
import { linesOf, Watching } from "../../support/watching.js";

const PLUGINS = [{ module: plugin("watches"), permissions: "all" as const }];
const QUICK = { debounceMs: 5, maxPerMinute: 600 } as const;

/** The lines of the file that the session was told of, in their order. */
async function heard(session: Session): Promise<string[]> {
  const texts = (await session.messages())
    .filter(({ role }) => role === "user")
    .flatMap(({ parts }) => parts.map((part) => ("text" in part ? part.text : "")));
  return texts.flatMap((text) => text.split("\n")).filter((line) => line.startsWith("line "));
}

// §15.76
test.each([2, 5, 9, 20])(
  "a host killed behind %d commits leaves no process, and the next one goes on: each line is delivered once, and the command's update says that it was started again",
  async (commits) => {
    const folder = await tempFolder();
    const [path, file] = [join(folder, "store"), join(folder, "app.log")];
    const program = spawn(
      process.execPath,
      [fixture("programs/watches-until-killed.mjs").pathname, path, file, String(commits)],
      { stdio: ["ignore", "ignore", "inherit"] },
    );
    const [, signal] = await once(program, "exit");
    expect(signal).toBe("SIGKILL");
    const troupe = await startTroupe({ store: { path }, plugins: PLUGINS });
    const s = await Watching.in(troupe, "s");
    appendFileSync(file, "line last\n");
    const written = readFileSync(file, "utf8").trim().split("\n");
    await until("all is told", async () => (await heard(s.session)).length >= written.length);
    expect(await heard(s.session)).toEqual(written);
    await until("the command runs", async () => (await s.status("run"))?.waiting === 2);
    const taken = await s.take();
    const [before, now] = taken.map(({ text }) => text.split(" ").map(Number)) as [number[], number[]];
    expect([before.map(isAlive), now.map(isAlive)]).toEqual([before.map(() => false), now.map(() => true)]);
    expect(taken.map(({ restarted }) => restarted)).toEqual([false, true]);
    expect(await s.status("log")).toMatchObject({ state: "running", starts: 2 });
  },
  60_000,
);

describe("a monitor goes on", () => {
  test("when its plugin's thread, its session's worker and the thread of processes are killed, and tells each line once", async () => {
    const folder = await tempFolder();
    const file = join(folder, "app.log");
    writeFileSync(file, "");
    const troupe = await startTroupe({ store: { path: join(folder, "store") }, sessionWorkers: 1, plugins: PLUGINS });
    const s = await Watching.in(troupe, "s");
    await s.start({ id: "log", file, deliver: "turn", ...QUICK });
    await s.start({ id: "run", argv: ["sh", "-c", "sleep 1000 & echo $$; wait"], ...QUICK });
    const [pid] = linesOf(await s.takeUntil("the command runs", ({ text }) => text !== ""));
    const { pids } = kindred(Number(pid));
    const kills = [
      { plugin: "test.watches" },
      { sessionWorker: 0 },
      { processes: true },
      { sessionWorker: 0 },
    ] as const;
    let written = 0;
    for (const kill of kills) {
      for (let n = 0; n < 5; n++) appendFileSync(file, `line ${written++}\n`);
      await troupe.kill(kill);
      for (let n = 0; n < 5; n++) appendFileSync(file, `line ${written++}\n`);
    }
    await until("all is told", async () => (await heard(s.session)).length >= written);
    expect(await heard(s.session)).toEqual(Array.from({ length: written }, (_, n) => `line ${n}`));
    const [again] = await s.takeUntil("the command runs again", ({ text }) => text !== "");
    expect([again?.restarted, isAlive(Number(pid)), isAlive(Number(again?.text))]).toEqual([true, false, true]);
    expect(await s.status("run")).toMatchObject({ starts: 2 });
    await s.session.close();
    expect(pids()).toEqual([]);
  });

  test("with the next start of its runtime, from where it was, and has no thread and no process in between", async () => {
    const folder = await tempFolder();
    const [path, file] = [join(folder, "store"), join(folder, "app.log")];
    writeFileSync(file, "old\n");
    const first = await startTroupe({ store: { path }, plugins: PLUGINS });
    const before = await Watching.in(first, "s");
    await before.start({ id: "log", file, ...QUICK });
    await before.start({ id: "once", argv: ["echo", "done"], ...QUICK });
    await before.start({ id: "run", argv: ["sh", "-c", "sleep 1000 & echo $$; wait"], ...QUICK });
    const updates = await before.takeUntil(
      "the command runs",
      ({ monitorId, text }) => monitorId === "run" && text !== "",
    );
    const pid = Number(linesOf(updates.filter(({ monitorId }) => monitorId === "run"))[0]);
    await until("the other has ended", async () => (await before.status("once"))?.state === "ended");
    await before.take();
    await first.close();
    expect(isAlive(pid)).toBe(false);
    appendFileSync(file, "while nothing ran\n");
    const second = await startTroupe({ store: { path }, plugins: PLUGINS });
    const s = await Watching.in(second, "s");
    const taken = await s.takeUntil("the line came", ({ monitorId }) => monitorId === "log");
    const [log] = taken.filter(({ monitorId }) => monitorId === "log");
    expect(log).toMatchObject({ monitorId: "log", text: "while nothing ran", restarted: true, dropped: 0 });
    expect(await s.status("once")).toMatchObject({ state: "ended", starts: 1 });
    await until("the command runs again", async () => (await s.status("run"))?.starts === 2);
  });

  test("only as long as its plugin's entry grants what it needs", async () => {
    const path = join(await tempFolder(), "store");
    const first = await startTroupe({ store: { path }, plugins: PLUGINS });
    await (await Watching.in(first, "s")).start({ id: "run", argv: ["sleep", "1000"], ...QUICK });
    await first.close();
    const { onEvent, of } = listening();
    const second = await startTroupe({ store: { path }, plugins: [{ module: plugin("watches") }], onEvent });
    const s = await Watching.in(second, "s");
    await until("it has ended", async () => (await s.status("run"))?.state === "ended");
    expect((await s.status("run"))?.end).toMatchObject({ reason: "failed", error: { code: "process_denied" } });
    expect(of("monitor_failed")).toMatchObject([{ session: "s", plugin: "test.watches", monitor: "run", final: true }]);
  });
});

test("a monitor stays with the store it was started in: neither an export nor an import has one", async () => {
  const troupe = await startTroupe({ store: { path: await tempFolder() }, plugins: PLUGINS });
  const s = await Watching.in(troupe, "s");
  await s.session.turn("hi");
  await s.start({ id: "run", argv: ["sleep", "1000"], ...QUICK });
  const bytes = await troupe.exportSession("s");
  await troupe.importSession(bytes, { id: "copy" });
  const copy = await Watching.in(troupe, "copy");
  expect(await copy.ask(["monitorSnapshot"])).toEqual([{ value: { activeCount: 0, monitors: [] } }]);
  expect((await s.status("run"))?.state).toBe("running");
});
