import { MessageChannel } from "node:worker_threads";
import { afterEach, describe, expect, test } from "vitest";
import { deferred, ignore, systemClock } from "../../../../src/async/index.js";
import { HOOK_LANE_METHODS } from "../../../../src/session/plugin-thread/index.js";
import { PluginGroup } from "../../../../src/session/plugins/hosts/plugin-group.js";
import { PluginSlot } from "../../../../src/session/plugins/plugin-link.js";
import { Lane, newStage } from "../../../../src/wire/index.js";

const lanes: Lane[] = [];
afterEach(() => {
  for (const lane of lanes.splice(0)) lane.close();
});

/** A group whose hosts answer every call but captures, which they never do. */
function groupWithSilentCaptures(...keys: readonly string[]) {
  const group = new PluginGroup({
    number: 0,
    name: "The plugin group ours",
    shards: keys.length,
    isolation: "shared",
    clock: systemClock,
    host: () => Promise.reject(new Error("No call asks for host services here.")),
    want: ignore,
    down: ignore,
    floating: ignore,
  });
  const captureAsked = deferred();
  const threads = keys.map((key, n) => {
    const [calls, host] = [new MessageChannel(), new MessageChannel()];
    const lane = new Lane(calls.port2, {
      name: "a session worker",
      clock: systemClock,
      methods: HOOK_LANE_METHODS,
      serve(method) {
        if (method !== "capture") return "answered";
        captureAsked.resolve();
        return new Promise(ignore);
      },
    });
    lanes.push(lane);
    const started = new Int32Array(new SharedArrayBuffer(4));
    const [port, hostPort] = [calls.port1, host.port1];
    group.attach({ group: 0, key, port, hostPort, lane: n + 1, stage: newStage(), started });
    return lane;
  });
  const call = (slot: PluginSlot) =>
    group.call(0, slot, { method: "operation", payload: [slot.number, "name", {}, slot.sessionId] }, {});
  return { group, threads, call, captureAsked: captureAsked.promise };
}

describe("a session's state that is on its way to another host", () => {
  test("a plugin leaves its group also when the thread it leaves dies while the state is fetched from it", async () => {
    const { group, threads, call, captureAsked } = groupWithSilentCaptures("shard 0");
    const slot = new PluginSlot("s", { number: 7 });
    await call(slot);
    const left = group.leave(slot);
    await captureAsked;
    threads[0]?.close();
    await left;
    expect(group.isOpen(slot)).toBe(false);
  });

  test("a session leaves a shard that is no more also when that shard's thread dies while the state is fetched", async () => {
    const { group, threads, call, captureAsked } = groupWithSilentCaptures("shard 0", "shard 1");
    const slots = Array.from({ length: 16 }, (_, n) => new PluginSlot(`s${n}`, { number: n }));
    await Promise.all(slots.map(call));
    const spread = group.spread(1);
    await captureAsked;
    threads[1]?.close();
    expect(await spread).toBe(false);
    expect(await Promise.all(slots.map(call))).toEqual(slots.map(() => "answered"));
  });
});
