import { join } from "node:path";
import { expect, test } from "vitest";
import { plugin, refusalOf, startTroupe, tempFolder } from "../../support/runtime.js";

const blocking = async () => ({
  module: plugin("blocks-worker"),
  tier: "inline" as const,
  options: { marker: join(await tempFolder(), "blocked") },
});

test("a session worker that an inline plugin blocks is replaced; its turns are refused with the reason, and its sessions go on", async () => {
  const troupe = await startTroupe({ sessionWorkers: 1, sessionBlockedMs: 400, plugins: [await blocking()] });
  const [bad, good] = [await troupe.session("bad"), await troupe.session("good")];
  const error = await refusalOf(bad.turn("block"));
  expect(error.code).toBe("worker_lost");
  expect(error.message).toMatch(/Session worker 0 was blocked for 400 ms by something that runs on it/);
  expect((await good.turn("hi")).outcome.type).toBe("finished");
  expect((await bad.turn("hi")).outcome.type).toBe("finished");
  expect((await troupe.stats()).workers[0]?.restarts).toBe(1);
});

test("turns with a journal go on when the session worker they ran on was blocked", async () => {
  const troupe = await startTroupe({
    sessionWorkers: 1,
    sessionBlockedMs: 400,
    store: { path: await tempFolder() },
    plugins: [await blocking()],
  });
  const session = await troupe.session("s");
  expect((await session.turn("block")).outcome.type).toBe("finished");
  expect((await troupe.stats()).workers[0]?.restarts).toBe(1);
});
