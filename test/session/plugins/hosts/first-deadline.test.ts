import { MessageChannel } from "node:worker_threads";
import { afterEach, expect, test } from "vitest";
import { deferred, ignore } from "../../../../src/async/index.js";
import { HOOK_LANE_METHODS } from "../../../../src/session/plugin-thread/index.js";
import { PluginGroup } from "../../../../src/session/plugins/hosts/plugin-group.js";
import { PluginSlot } from "../../../../src/session/plugins/plugin-link.js";
import { Lane, newStage } from "../../../../src/wire/index.js";
import { ManualClock } from "../../../support/manual-clock.js";

const lanes: Lane[] = [];
afterEach(() => {
  for (const lane of lanes.splice(0)) lane.close();
});

/** A group whose threads take calls and never answer them. */
function groupOfSilentThreads() {
  const clock = new ManualClock();
  const wanted = deferred();
  const group = new PluginGroup({
    number: 0,
    name: "Plugin acme.silent",
    shards: 1,
    isolation: "shared",
    clock,
    host: () => Promise.reject(new Error("No call asks for host services here.")),
    want: () => wanted.resolve(),
    down: ignore,
    floating: ignore,
  });
  const attach = (number: number): { readonly lane: Lane; readonly asked: Promise<void> } => {
    const [calls, host] = [new MessageChannel(), new MessageChannel()];
    const asked = deferred();
    const lane = new Lane(calls.port2, {
      name: "a session worker",
      clock,
      methods: HOOK_LANE_METHODS,
      serve() {
        asked.resolve();
        return new Promise(ignore);
      },
    });
    lanes.push(lane);
    const started = new Int32Array(new SharedArrayBuffer(4));
    const [port, hostPort] = [calls.port1, host.port1];
    group.attach({ group: 0, key: "shard 0", port, hostPort, lane: number, stage: newStage(), started });
    return { lane, asked: asked.promise };
  };
  return { clock, group, attach, wanted: wanted.promise };
}

test("a call that is made again on the next thread has what is left of its first deadline, and says how long that was", async () => {
  const { clock, group, attach, wanted } = groupOfSilentThreads();
  const first = attach(1);
  const slot = new PluginSlot("s", { number: 7 });
  const within = { deadlineMs: 5_000, deadlineCode: "hook_timeout" } as const;
  let ended: unknown = "not yet";
  group.call(0, slot, { method: "hook", payload: [7, 0, 0] }, within).catch((error: unknown) => {
    ended = error;
  });
  await first.asked;
  clock.advance(4_000);
  first.lane.close();
  await wanted;
  await attach(2).asked;
  clock.advance(999);
  await clock.turn();
  expect(ended).toBe("not yet");
  clock.advance(1);
  await clock.turn();
  expect(ended).toMatchObject({ code: "hook_timeout", message: expect.stringContaining("within 5000 ms") });
});
