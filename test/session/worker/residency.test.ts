import { expect, test } from "vitest";
import { Residency, type Resident } from "../../../src/session/worker/residency.js";
import { ManualClock } from "../../support/manual-clock.js";

const LIMITS = { parkAfterMs: 1_000, maxResident: Number.POSITIVE_INFINITY, heapShare: 1, recycleHeapShare: null };

/** Sessions that park as soon as they are asked to, at a time and on a heap the test has in its hands. */
function residency(limits: Partial<typeof LIMITS> = {}) {
  const clock = new ManualClock();
  const heap = { share: 0 };
  const parked: string[] = [];
  const sessions = new Residency<Resident>(
    { ...LIMITS, ...limits },
    {
      clock,
      heap: { share: () => heap.share, collect: async () => undefined },
      onFull: () => undefined,
    },
  );
  const open = (id: string, state: Resident["state"] = "idle") => {
    const session: { -readonly [K in keyof Resident]: Resident[K] } = {
      id,
      state,
      restedAt: clock.now(),
      park: () => {
        parked.push(id);
        sessions.remove(session);
      },
    };
    sessions.add(session);
    return session;
  };
  return { clock, heap, parked, sessions, open };
}

test("a session leaves memory when it has had nothing to do for so long, and not before", () => {
  const { clock, parked, sessions, open } = residency();
  const early = open("early");
  open("late");
  clock.advance(900);
  sessions.rested(early);
  clock.advance(600);
  expect(parked).toEqual(["late"]);
  clock.advance(500);
  expect(parked).toEqual(["late", "early"]);
});

test("a session that is running is not asked to leave, however long it takes", () => {
  const { clock, parked, open } = residency();
  const session = open("s", "running");
  clock.advance(60_000);
  expect(parked).toEqual([]);
  session.state = "idle";
  clock.advance(250);
  expect(parked).toEqual(["s"]);
});

test("with more sessions than may be in memory, the longest idle leave once what is being done is done", async () => {
  const { clock, parked, sessions, open } = residency({ maxResident: 2 });
  const [first] = ["first", "second", "third"].map((id) => open(id));
  sessions.rested(first as Resident);
  expect(parked).toEqual([]);
  await clock.turn();
  expect(parked).toEqual(["second"]);
});

test("when the heap is full, a quarter of the sessions leaves at each look", () => {
  const { clock, heap, parked, open } = residency({ heapShare: 0.7, parkAfterMs: 600_000 });
  for (let n = 1; n <= 8; n++) open(`s${n}`);
  clock.advance(5_000);
  expect(parked).toEqual([]);
  heap.share = 0.8;
  clock.advance(5_000);
  expect(parked).toEqual(["s1", "s2"]);
});

test("a worker that closes looks no more", () => {
  const { clock, parked, sessions, open } = residency();
  open("s");
  sessions.close();
  clock.advance(60_000);
  expect(parked).toEqual([]);
  expect(clock.timers).toBe(0);
});
