import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Session } from "troupe";
import { expect, test } from "vitest";
import { ask } from "../../support/asking.js";
import { plugin, startTroupe, tempFolder, until } from "../../support/runtime.js";

/** Of one session that go on, at the most. */
const OF_SESSION = 100;

test.each([
  ["acts", 256],
  ["pooled", 4],
])(
  "of jobs (%s) %d run at once, and the next begins when one of them has ended",
  async (job, most) => {
    const folder = await tempFolder();
    const troupe = await startTroupe({
      plugins: [{ module: plugin("works-on"), permissions: "all", blockedMs: 600_000 }],
    });
    const logs: string[] = [];
    const sessions: Session[] = [];
    for (let n = 0; n <= most; n += OF_SESSION) {
      const session = await troupe.session(`s${n}`);
      sessions.push(session);
      const calls = Array.from({ length: Math.min(OF_SESSION, most + 1 - n) }, (_, nth) => {
        const log = join(folder, `${n + nth}`);
        logs.push(log);
        return ["spawnManagedTask", { job, key: `${nth}`, input: { acts: [["waitNoted"]], log } }] as const;
      });
      expect((await ask(session, ...calls)).filter(({ error }) => error !== undefined)).toEqual([]);
    }
    const said = () => Promise.all(logs.map((log) => readFile(log, "utf8").catch(() => "")));
    const waiting = async () => (await said()).filter((text) => text === "waits\n").length;
    await until("as many run as may", async () => (await waiting()) >= most);
    // For as long as it takes to start a thread, twice: one more in the pool would be there.
    for (let n = 0; job === "pooled" && n < 2; n++) {
      const [session] = sessions as [Session];
      await ask(session, ["spawnManagedTask", { job: "acts", key: `thread-${n}`, input: { acts: [] } }]);
      await session.awaitTask(`test.works-on:thread-${n}`);
      await troupe.kill({ plugin: "test.works-on" });
    }
    const begun = (await said()).map((text) => text !== "");
    expect(begun.filter(Boolean)).toHaveLength(most);
    const [first] = sessions as [Session];
    await first.cancelTask(`test.works-on:${begun.indexOf(true)}`);
    await until("the last one runs", async () => (await said()).every((text) => text !== ""));
    expect(await waiting()).toBe(most);
    for (const session of sessions) await session.close();
  },
  60_000,
);
