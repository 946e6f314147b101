import { getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CallTable, SignalCalls } from "../../src/wire/call-table.js";

/** Collects garbage: of all that lives, or of what is young. */
function collector(): (options?: { readonly type: "minor" }) => void {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc") as ReturnType<typeof collector>;
  setFlagsFromString("--no-expose-gc");
  return gc;
}

describe("a table of calls", () => {
  test("has what was added and not taken out, in the order of its numbers, however long calls stay", () => {
    const step = fc.oneof(
      { weight: 3, arbitrary: fc.record({ add: fc.integer({ min: 1, max: 400 }) }) },
      { weight: 2, arbitrary: fc.record({ endAll: fc.double({ min: 0, max: 1, noNaN: true }) }) },
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), fc.integer({ min: 1, max: 3 }), (steps, gap) => {
        const table = new CallTable<{ readonly id: number }>();
        const model = new Map<number, { readonly id: number }>();
        let id = 0;
        for (const each of steps) {
          if ("add" in each)
            for (let n = 0; n < each.add; n++) {
              id += gap;
              const call = { id };
              table.add(call);
              model.set(id, call);
            }
          // Some that stay, all over the table.
          else
            for (const [n, known] of [...model.keys()].entries())
              if ((n * 7919) % 1000 < each.endAll * 1000) {
                expect(table.delete(known)).toBe(true);
                expect(table.delete(known)).toBe(false);
                model.delete(known);
              }
          expect(table.size).toBe(model.size);
          expect([...model].every(([known, call]) => table.get(known) === call)).toBe(true);
          const values = table.values().map((call) => call.id);
          expect(gap === 1 ? values : values.sort((one, other) => one - other)).toEqual([...model.keys()]);
        }
        table.clear();
        expect([table.size, table.values(), table.get(id)]).toEqual([0, [], undefined]);
      }),
      { seed: 15, numRuns: 50 },
    );
  });

  test("says of numbers that nobody has added that there is no such call", () => {
    const table = new CallTable<{ readonly id: number }>();
    table.add({ id: 1 });
    for (const id of [0, 257, -255, 1.5, Number.NaN, Number.POSITIVE_INFINITY, "1" as never])
      expect([table.get(id), table.delete(id)]).toEqual([undefined, false]);
    expect(table.size).toBe(1);
  });

  test("keeps nothing of calls that have ended, also behind a collection of the whole heap", () => {
    const gc = collector();
    const used = () => getHeapStatistics().used_heap_size;
    const table = new CallTable<{ readonly id: number; readonly says: number[] }>();
    let id = 0;
    const use = (calls: number) => {
      for (let n = 0; n < calls; n++) {
        table.add({ id: ++id, says: new Array(128).fill(id) });
        if (id > 100) table.delete(id - 100);
      }
    };
    use(1_000);
    gc();
    const before = used();
    // Each kilobyte once, of which a hundred are kept.
    use(8_000);
    gc({ type: "minor" });
    expect(used() - before).toBeLessThan(2_000_000);
  });
});

test("the calls of a signal that wait are those that are still in the table, however many have ended", () => {
  const table = new CallTable<{ readonly id: number }>();
  const calls = new SignalCalls(table);
  const waiting: number[] = [];
  for (let id = 1; id <= 500; id++) {
    table.add({ id });
    calls.add(id);
    waiting.push(id);
    expect(calls.waiting()).toEqual(waiting);
    // Of three two end at once, and the first that is left.
    if (id % 3 === 0) continue;
    for (const ended of id % 3 === 1 ? [id] : waiting.splice(0, 1)) {
      table.delete(ended);
      calls.ended();
    }
    if (id % 3 === 1) waiting.pop();
    expect(calls.waiting()).toEqual(waiting);
  }
});
