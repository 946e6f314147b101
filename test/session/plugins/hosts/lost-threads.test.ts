import { MessageChannel } from "node:worker_threads";
import { afterEach, expect, test } from "vitest";
import { deferred, ignore } from "../../../../src/async/index.js";
import { HOOK_LANE_METHODS } from "../../../../src/session/plugin-thread/index.js";
import { PluginGroup } from "../../../../src/session/plugins/hosts/plugin-group.js";
import { PluginSlot } from "../../../../src/session/plugins/plugin-link.js";
import { Lane, newStage, StageWriter, setEndedBy } from "../../../../src/wire/index.js";
import { ManualClock } from "../../../support/manual-clock.js";

const WITHIN = { deadlineMs: 5_000, deadlineCode: "hook_timeout" } as const;
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
  const attach = (number: number) => {
    const [calls, host] = [new MessageChannel(), new MessageChannel()];
    const askedBy = new Map([7, 8].map((slot) => [slot, deferred()]));
    const lane = new Lane(calls.port2, {
      name: "a session worker",
      clock,
      methods: HOOK_LANE_METHODS,
      serve(_, payload) {
        askedBy.get((payload as readonly number[])[0] as number)?.resolve();
        return new Promise(ignore);
      },
    });
    lanes.push(lane);
    const started = new Int32Array(new SharedArrayBuffer(4));
    const [port, hostPort] = [calls.port1, host.port1];
    const stage = newStage();
    group.attach({ group: 0, key: "shard 0", port, hostPort, lane: number, stage, started });
    /** The thread is given up while this call holds it. */
    const blockedBy = (call: number) => {
      new StageWriter(stage).enter(number, started, call);
      setEndedBy(stage, "blocked");
      lane.close();
    };
    return { lane, askedBy: (slot: number) => askedBy.get(slot)?.promise, blockedBy };
  };
  return { clock, group, attach, wanted: wanted.promise };
}

test("a call that is made again on the next thread has what is left of its first deadline, and says how long that was", async () => {
  const { clock, group, attach, wanted } = groupOfSilentThreads();
  const first = attach(1);
  const slot = new PluginSlot("s", { number: 7 });
  let ended: unknown = "not yet";
  group.call(0, slot, { method: "hook", payload: [7, 0, 0] }, WITHIN).catch((error: unknown) => {
    ended = error;
  });
  await first.askedBy(7);
  clock.advance(4_000);
  first.lane.close();
  await wanted;
  await attach(2).askedBy(7);
  clock.advance(999);
  await clock.turn();
  expect(ended).toBe("not yet");
  clock.advance(1);
  await clock.turn();
  expect(ended).toMatchObject({ code: "hook_timeout", message: expect.stringContaining("within 5000 ms") });
});

test("with two threads that do not end a session that has blocked one is refused, with one it is not, and others go on", async () => {
  const { group, attach } = groupOfSilentThreads();
  const [bad, good] = [new PluginSlot("bad", { number: 7 }), new PluginSlot("good", { number: 8 })];
  const call = (slot: PluginSlot) =>
    group.call(0, slot, { method: "hook", payload: [slot.number, 0, 0] }, WITHIN).then(
      () => undefined,
      ({ code }) => code as string,
    );
  const thread = attach(1);
  const held = call(bad);
  await thread.askedBy(7);
  thread.blockedBy(1);
  expect(await held).toBe("plugin_blocked");
  group.threadsLinger(2);
  expect(await call(bad)).toBe("plugin_unavailable");
  const next = attach(2);
  void call(good);
  await next.askedBy(8);
  group.threadsLinger(1);
  void call(bad);
  await next.askedBy(7);
});
