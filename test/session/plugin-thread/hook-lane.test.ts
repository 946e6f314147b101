import { MessageChannel } from "node:worker_threads";
import { expect, onTestFinished, test } from "vitest";
import { definePlugin, type LoadedPlugin, loadPlugin } from "../../../src/plugin/index.js";
import { FloatingRejections } from "../../../src/session/plugin-thread/floating.js";
import { openHookLane } from "../../../src/session/plugin-thread/hook-lane.js";
import { HOOK_LANE_METHODS, packHook, StateBoardReader } from "../../../src/session/plugin-thread/index.js";
import { ThreadLimits } from "../../../src/session/plugin-thread/thread-limits.js";
import { Essentials, Lane, newStage, StageWriter } from "../../../src/wire/index.js";
import { ManualClock } from "../../support/manual-clock.js";

const FACTS = { turnIndex: 1, call: { callId: "c", toolName: "t", args: {} } };

function partsOf(clock: ManualClock, plugin: LoadedPlugin) {
  const cells = newStage();
  const measures = { external: () => 0, resources: () => 0, collect: () => undefined, end: () => undefined };
  return {
    plugins: [plugin],
    stage: new StageWriter(cells),
    development: false,
    clock,
    lastWords: new Set<() => void>(),
    limits: new ThreadLimits(clock, measures, { stage: cells, externalMb: 64 }),
    floating: new FloatingRejections("This thread"),
    essentials: new Essentials(),
  };
}

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
  const parts = partsOf(clock, plugin);
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
    return () => lane.call("hook", packHook(n, hook, 0, FACTS));
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

test("a state whose answer has not left is not there yet: its call is made again when the thread ends now", async () => {
  const clock = new ManualClock();
  const reader = new StateBoardReader();
  const found: unknown[] = [];
  /** The states that a session worker finds, of which so many messages have arrived. */
  const look = (received: number) => [...reader.states(received)].map(({ slot, state }) => [slot, state]);
  const plugin = await loadPlugin(
    definePlugin({
      id: "test.works",
      version: "1.0.0",
      state: () => ({
        calls: 0,
        /** Whoever writes the state down comes by here; those before it are written. */
        get seen() {
          if (this.calls === 2) found.push(look(lane.counts.received));
          return 0;
        },
      }),
      hooks: {
        beforeToolCall({ state }) {
          state.calls++;
        },
      },
    }),
    undefined,
    "test",
  );
  const parts = partsOf(clock, plugin);
  const [calls, host] = [new MessageChannel(), new MessageChannel()];
  const started = new Int32Array(new SharedArrayBuffer(4));
  openHookLane({ port: calls.port2, hostPort: host.port2, name: "w", lane: 0, started, alone: false }, parts);
  const onNote = (topic: string, note: unknown) => topic === "board" && reader.take(note);
  const lane = new Lane(calls.port1, { name: "w", clock, methods: HOOK_LANE_METHODS, onNote });
  onTestFinished(() => {
    lane.close();
    host.port1.close();
  });
  const call = (slot: number) => lane.call("hook", packHook(slot, { kind: "before_tool_call", nth: 0 }, 0, FACTS));
  for (const slot of [1, 2]) lane.note("open", [slot, 0, `s${slot}`, undefined, undefined, 0]);
  for (const _ of [1, 2]) await Promise.all([call(1), call(2)]);
  expect(found.at(-1)).toEqual([
    [1, { calls: 1, seen: 0 }],
    [2, { calls: 1, seen: 0 }],
  ]);
  expect(look(lane.counts.received)).toEqual([
    [1, { calls: 2, seen: 0 }],
    [2, { calls: 2, seen: 0 }],
  ]);
});
