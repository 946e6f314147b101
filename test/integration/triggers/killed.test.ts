import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import { fixture, plugin, startTroupe, tempFolder, until } from "../../support/runtime.js";

test.each([3, 25, 60])(
  "a process killed behind %d commits: every session has the event once and its schedule's run once, in the next process",
  async (commits) => {
    const path = await tempFolder();
    const program = fixture("programs/triggers-until-killed.mjs").pathname;
    const child = spawn(process.execPath, [program, path, String(commits)], { stdio: ["ignore", "ignore", "inherit"] });
    const [, signal] = await once(child, "exit");
    expect(signal).toBe("SIGKILL");
    const troupe = await startTroupe({ store: { path }, plugins: [{ module: plugin("mail") }] });
    const heard = async (n: number) => {
      const session = await troupe.session(`s${n}`);
      const messages = await session.messages();
      const texts = messages.flatMap(({ role, parts }) => (role === "user" ? parts : []));
      return texts.map((part) => ("text" in part ? part.text.split("\n")[0] : "")).sort();
    };
    // Sent again by whoever does not know whether it came.
    expect(await troupe.trigger("door.opened", {}, { key: "once" })).toMatchObject({ replayed: expect.any(Boolean) });
    const ids = Array.from({ length: 30 }, (_, n) => n);
    const all = async () => Promise.all(ids.map(heard));
    await until("all are told", async () => (await all()).every((texts) => texts.length >= 2));
    const due = (await troupe.schedules.list()).schedules.filter(({ state }) => state === "active");
    expect(due).toEqual([]);
    expect(new Set((await all()).map((texts) => texts.join(" | ")))).toEqual(
      new Set(["The event door.opened came. | scheduled"]),
    );
  },
  60_000,
);
