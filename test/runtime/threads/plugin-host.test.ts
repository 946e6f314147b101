import { expect, test } from "vitest";
import { deferred } from "../../../src/async/index.js";
import { unserialisable } from "../../../src/kernel/index.js";
import type { LoadedThread } from "../../../src/runtime/threads/loaded-threads.js";
import { PluginHost } from "../../../src/runtime/threads/plugin-host.js";
import type { SessionWorker } from "../../../src/runtime/threads/session-worker.js";
import type { Watchdog } from "../../../src/runtime/watch/watchdog.js";
import { newStage, workerLost } from "../../../src/wire/index.js";
import { ManualClock } from "../../support/manual-clock.js";

interface Attached {
  readonly lane: number;
  readonly port: { close(): void };
  readonly hostPort: { close(): void };
}

/** A host with a thread, and a session worker that keeps the lanes it is given; neither is a thread here. */
function host({ onDemand = false, failedStarts = 0 } = {}) {
  const clock = new ManualClock();
  let starts = 0;
  const lanes: number[] = [];
  const failures: Error[] = [];
  const restarts: string[] = [];
  const refused: unknown[] = [];
  /** What the session worker does before it answers that it has a lane. */
  const arriving: (() => Promise<void>)[] = [];
  const closePorts = ({ port, hostPort }: Attached) => {
    port.close();
    hostPort.close();
  };
  const to = {
    async attachHost(lane: Attached) {
      closePorts(lane);
      const failure = failures.pop();
      if (failure !== undefined) throw failure;
      lanes.push(lane.lane);
      await arriving.pop()?.();
    },
    refuseHost: async (refusal: unknown) => void refused.push(refusal),
  };
  // Only what a host uses of them.
  const worker = { configured: { name: "Session worker 0", caller: { to } } } as unknown as SessionWorker;
  const newThread = () => {
    const ended = deferred<unknown>();
    const thread = {
      exited: ended.promise,
      terminate: async () => ended.resolve({ code: 1, error: undefined }),
      caller: { to: { attach: async (lane: Attached) => closePorts(lane) } },
    };
    return { thread, stage: newStage(), tid: undefined } as unknown as LoadedThread;
  };
  const made = new PluginHost({
    group: 0,
    key: "shard 0",
    clock,
    watchdog: { watch: () => () => undefined } as unknown as Watchdog,
    blockedMs: 250,
    sessionWorkers: () => [worker],
    onDemand,
    takeThread: async () => {
      if (starts++ < failedStarts) throw workerLost("The thread");
      return newThread();
    },
    onDeath: () => 0,
    onFailedStart: () => (failedStarts === 0 ? "given up" : 100 * 2 ** (starts - 1)),
    onShare: () => undefined,
    onHeld: () => undefined,
    onRestarted: (thread) => void restarts.push(thread),
    onLane: () => undefined,
  });
  made.adopt(newThread());
  const settled = () => new Promise((resolve) => setImmediate(resolve));
  return { made, worker, lanes, failures, restarts, refused, arriving, settled, clock, starts: () => starts };
}

test("a session worker that asks for a lane while one is on its way to it gets that one, and no second that would take its calls away", async () => {
  const { made, worker, lanes, settled } = host();
  made.call(worker, -1);
  made.call(worker, -1);
  await settled();
  made.call(worker, -1);
  await settled();
  expect(lanes).toHaveLength(1);
});

test("a session worker that has lost its lane to a host gets another one when it says which it lost", async () => {
  const { made, worker, lanes, settled } = host();
  made.call(worker, -1);
  await settled();
  made.call(worker, lanes[0] as number);
  await settled();
  expect(lanes).toHaveLength(2);
});

test("a session worker whose lane could not be opened gets one when it asks again", async () => {
  const { made, worker, lanes, failures, settled } = host();
  failures.push(new Error("It was not there."));
  made.call(worker, -1);
  await settled();
  expect(lanes).toHaveLength(0);
  made.call(worker, -1);
  await settled();
  expect(lanes).toHaveLength(1);
});

test("a session worker whose lane's other end was closed on its way is not refused: the thread is replaced, and the lane is one to the next", async () => {
  const { made, worker, lanes, failures, restarts, refused, settled } = host();
  failures.push(unserialisable("Session worker 0", "attachHost could not cross the thread", undefined));
  made.call(worker, -1);
  await settled();
  await settled();
  expect({ refused, restarts: restarts.length, lanes: lanes.length }).toEqual({ refused: [], restarts: 1, lanes: 1 });
});

test("a host whose thread was retired because nobody had called it has had no restart when its first call comes", async () => {
  const { made, worker, lanes, restarts, settled } = host();
  await made.retire();
  made.call(worker, -1);
  await settled();
  expect([lanes.length, restarts.length]).toEqual([1, 0]);
});

test("a host whose thread was ended while it was called has had a restart once another has taken its place", async () => {
  const { made, worker, lanes, restarts, settled } = host();
  made.call(worker, -1);
  await settled();
  await made.end("asked");
  await settled();
  expect([lanes.length, restarts.length]).toEqual([2, 1]);
});

test("a thread that ends before its session worker has said that it has the lane is replaced at once, and not only with the next call", async () => {
  const { made, worker, lanes, restarts, arriving, settled } = host();
  made.call(worker, -1);
  await settled();
  // The call that the lane brings ends the thread.
  arriving.push(() => made.end("asked"));
  await made.end("asked");
  await settled();
  await settled();
  expect([lanes.length, restarts.length]).toEqual([3, 2]);
});

test("a host that starts threads on demand starts none when its thread dies, and the next when a session worker waits for it", async () => {
  const { made, worker, lanes, restarts, settled } = host({ onDemand: true });
  made.call(worker, -1);
  await settled();
  await made.end("blocked");
  await settled();
  expect([lanes.length, restarts.length]).toEqual([1, 0]);
  made.call(worker, lanes[0] as number);
  await settled();
  expect([lanes.length, restarts.length]).toEqual([2, 1]);
});

test("a host that starts threads on demand replaces one that dies while a session worker waits for its lane", async () => {
  const { made, worker, lanes, restarts, failures, settled } = host({ onDemand: true });
  failures.push(workerLost("The plugin"));
  made.call(worker, -1);
  await made.end("blocked");
  await settled();
  await settled();
  expect([lanes.length, restarts.length]).toEqual([1, 1]);
});

test("a host whose next thread fails to start twice is there with the third, each tried behind a pause and none before it", async () => {
  const { made, worker, lanes, settled, clock, starts } = host({ failedStarts: 2 });
  made.call(worker, -1);
  await settled();
  await made.end("itself");
  await settled();
  const counts = [starts()];
  for (const ms of [99, 1, 199, 1]) {
    clock.advance(ms);
    await settled();
    counts.push(starts());
  }
  expect(counts).toEqual([1, 1, 2, 2, 3]);
  expect(lanes).toHaveLength(2);
});
