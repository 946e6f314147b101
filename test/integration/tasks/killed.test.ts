import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { fixture, plugin, startTroupe, tempFolder, until } from "../../support/runtime.js";

/** What each seam comes to, however often its process is killed. */
const ENDS = {
  "test.works-on:fails": "The task test.works-on:fails failed: not today",
  "test.works-on:sleeps": 'The task test.works-on:sleeps is done. Its result:\n["before","after"]',
  "test.works-on:steps": 'The task test.works-on:steps is done. Its result:\n["one","two","three"]',
} as const;

// §15.75
test.each([5, 60, 120, 200, 300, 400, 480])(
  "a process killed behind %d records: every task that was stored ends once, and every session is told once",
  async (records) => {
    const folder = await tempFolder();
    const [path, log] = [join(folder, "store"), join(folder, "log")];
    const program = fixture("programs/tasks-until-killed.mjs").pathname;
    const child = spawn(process.execPath, [program, path, log, String(records)], {
      stdio: ["ignore", "ignore", "inherit"],
    });
    const [, signal] = await once(child, "exit");
    expect(signal).toBe("SIGKILL");
    const works = { module: plugin("works-on"), permissions: "all", blockedMs: 60_000 } as const;
    const troupe = await startTroupe({ store: { path }, plugins: [works] });
    const checks: (() => Promise<void>)[] = [];
    for (const id of Array.from({ length: 10 }, (_, n) => `s${n}`)) {
      const session = await troupe.session(id);
      const stored = async () => {
        const tasks = await session.tasks();
        return tasks.filter(({ key }) => key !== "cancelled");
      };
      const heard = async () => {
        const said = (await session.messages()).filter(({ role }) => role === "user");
        return said.map(({ parts }) => parts.map((part) => ("text" in part ? part.text : "")).join("")).sort();
      };
      const told = (await stored()).map(({ id: task }) => ENDS[task as keyof typeof ENDS]).sort();
      await until(`${id} is told of all`, async () => (await heard()).length >= told.length);
      checks.push(async () => expect(await heard()).toEqual(told));
      expect((await session.tasks()).every(({ endedAt, key }) => endedAt !== null || key === "cancelled")).toBe(true);
      expect(await session.inputs()).toEqual([]);
      for (const { key } of await stored()) {
        const lines = (await readFile(`${log}.${id}.${key}`, "utf8")).split("\n").slice(0, -1);
        // A step that was done and not stored is done again: once for each process at the most.
        for (const line of new Set(lines)) expect(lines.filter((each) => each === line).length).toBeLessThan(3);
      }
      await session.cancelTask("test.works-on:cancelled").catch(() => undefined);
    }
    // Behind everything: what would have been told twice has been by now.
    for (const check of checks) await check();
  },
  120_000,
);
