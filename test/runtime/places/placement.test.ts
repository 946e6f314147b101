import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { leastLoaded, placeSession } from "../../../src/runtime/places/directory.js";

const id = fc.string({ minLength: 1, maxLength: 40 });
const workers = fc.integer({ min: 1, max: 16 });

describe("placeSession", () => {
  // These may not change between releases: two processes that share a store must agree.
  it.each([
    ["chat-1", 4, 1],
    ["chat-2", 4, 1],
    ["chat-3", 4, 3],
    ["chat-42", 4, 0],
    ["chat-42/research", 4, 3],
    ["é 🙂", 8, 6],
  ])("puts %j of %i workers on worker %i", (sessionId, count, worker) => {
    expect(placeSession(sessionId, count)).toBe(worker);
  });

  it("is always one of the workers", () => {
    fc.assert(
      fc.property(id, workers, (sessionId, count) => {
        const worker = placeSession(sessionId, count);
        expect(Number.isInteger(worker) && worker >= 0 && worker < count).toBe(true);
      }),
    );
  });

  it("moves a session only to the worker that was added", () => {
    fc.assert(
      fc.property(id, workers, (sessionId, count) => {
        const before = placeSession(sessionId, count);
        expect([before, count]).toContain(placeSession(sessionId, count + 1));
      }),
    );
  });

  it("spreads neighbouring ids over all workers", () => {
    const loads = new Array(4).fill(0);
    for (let n = 0; n < 4_000; n++) loads[placeSession(`session-${n}`, 4)]++;
    expect(loads).toEqual([988, 1006, 1026, 980]);
  });
});

describe("leastLoaded", () => {
  it.each<[number[], number, number]>([
    [[3, 1, 2], 0, 1],
    [[3, 1, 2], 1, 2],
    [[0, 5, 5], 0, 1],
    [[5, 5, 0], 2, 0],
    [[1, 1, 1], 1, 0],
    [[7], 0, 0],
  ])("of %j other than %i is %i", (loads, not, worker) => {
    expect(leastLoaded(loads, not)).toBe(worker);
  });

  it("is never the parent's worker when there is another, and none of the others has less", () => {
    const placed = fc
      .array(fc.nat(50), { minLength: 2, maxLength: 16 })
      .chain((loads) => fc.tuple(fc.constant(loads), fc.nat(loads.length - 1)));
    fc.assert(
      fc.property(placed, ([loads, not]) => {
        const worker = leastLoaded(loads, not);
        expect(worker).not.toBe(not);
        const others = loads.filter((_, index) => index !== not);
        expect(loads[worker]).toBe(Math.min(...others));
      }),
    );
  });
});
