import { MessageChannel } from "node:worker_threads";
import { expect, onTestFinished, test } from "vitest";
import { definePlugin, loadPlugin } from "../../../src/plugin/index.js";
import { FloatingRejections } from "../../../src/session/plugin-thread/floating.js";
import { openHookLane } from "../../../src/session/plugin-thread/hook-lane.js";
import { HOOK_LANE_METHODS, packHook } from "../../../src/session/plugin-thread/index.js";
import { ThreadLimits } from "../../../src/session/plugin-thread/thread-limits.js";
import { Essentials, Lane, newStage, StageWriter } from "../../../src/wire/index.js";
import { ManualClock } from "../../support/manual-clock.js";

/** A plugin host on this thread, each hook a millisecond's work, and lanes to it as session workers have them. */
async function hostOf(...workers: readonly string[]) {
  const clock = new ManualClock();
  const served: string[] = [];
  const plugin = await loadPlugin(
    definePlugin({
      id: "test.works",
      version: "1.0.0",
      hooks: {
        beforeToolCall({ sessionId }) {
          served.push(sessionId);
          clock.advance(1);
        },
      },
    }),
    undefined,
    "test",
  );
  const cells = newStage();
  const measures = { external: () => 0, resources: () => 0, collect: () => undefined, end: () => undefined };
  const parts = {
    plugins: [plugin],
    stage: new StageWriter(cells),
    development: false,
    clock,
    lastWords: new Set<() => void>(),
    limits: new ThreadLimits(clock, measures, { stage: cells, externalMb: 64 }),
    floating: new FloatingRejections("This thread"),
    essentials: new Essentials(),
  };
  const lanes = workers.map((name, n) => {
    const [calls, host] = [new MessageChannel(), new MessageChannel()];
    const started = new Int32Array(new SharedArrayBuffer(4));
    const [port, hostPort] = [calls.port2, host.port2];
    openHookLane({ port, hostPort, name, lane: n, started, alone: false }, parts);
    const lane = new Lane(calls.port1, { name, clock, methods: HOOK_LANE_METHODS });
    lane.note("open", [n, 0, name, undefined, undefined, 0]);
    onTestFinished(() => {
      lane.close();
      host.port1.close();
    });
    const hook = { kind: "before_tool_call", nth: 0 } as const;
    const facts = { turnIndex: 1, call: { callId: "c", toolName: "t", args: {} } };
    return () => lane.call("hook", packHook(n, hook, 0, facts));
  });
  return { clock, served, lanes };
}

test("a session worker that floods a plugin host keeps another's call waiting for a few milliseconds of work, and not for all of its own", async () => {
  const { clock, served, lanes } = await hostOf("floods", "quiet");
  const [flood, quiet] = lanes as [() => Promise<unknown>, () => Promise<unknown>];
  const all = Array.from({ length: 200 }, flood);
  await quiet();
  // Calls are begun eight at a time, and these take longer than the four milliseconds a lane has.
  expect(served.indexOf("quiet")).toBe(8);
  while (served.length < 201) await clock.turn();
  await Promise.all(all);
});
