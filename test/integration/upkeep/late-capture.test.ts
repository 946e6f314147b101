import { expect, test } from "vitest";
import { plugin, startTroupe } from "../../support/runtime.js";

test("a turn whose plugin missed its deadline gives the capture of its state a tenth of it, not another one", async () => {
  const troupe = await startTroupe({
    sessionWorkers: 1,
    plugins: [{ module: plugin("native-block"), deadlineMs: 3_000, blockedMs: 600_000, onFailure: "skip" }],
  });
  const session = await troupe.session("s");
  await session.turn("fine");
  const { issues } = await session.turn("6000");
  expect(issues.map(({ code, message }) => [code, message.match(/within (\d+) ms/)?.[1]])).toEqual([
    [expect.any(String), "3000"],
    ["plugin_capture_failed", "300"],
  ]);
});
