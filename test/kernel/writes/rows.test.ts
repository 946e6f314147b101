import fc from "fast-check";
import { expect, test } from "vitest";
import { isStorableName } from "../../../src/kernel/ids.js";
import { orderedNameOf, orderKey, orderRange, rowKey, rowNameOf, rowRange } from "../../../src/kernel/index.js";

const byBytes = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b));
const text = fc.string({ unit: "grapheme", maxLength: 12 }).filter(isStorableName);
const name = fc
  .record({
    table: fc.stringMatching(/^[a-z][a-z0-9_.:-]{0,9}$/),
    key: text,
    session: fc.option(
      text.filter((id) => id !== ""),
      { nil: undefined },
    ),
  })
  .map(({ session, ...rest }) => ({ ...rest, ...(session !== undefined && { session }) }));
const order = fc
  .record({
    at: fc.maxSafeNat(),
    owner: fc.option(
      text.filter((owner) => owner !== ""),
      { nil: undefined },
    ),
  })
  .map(({ owner, at }) => ({ at, ...(owner !== undefined && { owner }) }));

const within = (key: string, { start, end }: { start: string; end: string }) =>
  byBytes(key, start) >= 0 && byBytes(key, end) < 0;

test("a row's key says its name, and no two names have one key", () => {
  fc.assert(
    fc.property(name, name, (a, b) => {
      expect(rowNameOf(rowKey(a))).toEqual(a);
      expect(rowKey(a) === rowKey(b)).toBe(
        JSON.stringify(rowNameOf(rowKey(a))) === JSON.stringify(rowNameOf(rowKey(b))),
      );
    }),
  );
});

test("a row lies in the range of its own session and table, and in no other's", () => {
  fc.assert(
    fc.property(name, name, (a, b) => {
      expect(within(rowKey(a), rowRange(a.session ?? ""))).toBe(true);
      expect(within(rowKey(a), rowRange(a.session ?? "", a.table))).toBe(true);
      expect(within(rowKey(a), rowRange(b.session ?? ""))).toBe(a.session === b.session);
      expect(within(rowKey(a), rowRange(b.session ?? "", b.table))).toBe(
        a.session === b.session && a.table === b.table,
      );
    }),
  );
});

test("places sort by time within an owner, and say which row they are of", () => {
  fc.assert(
    fc.property(name, order, fc.maxSafeNat(), (row, one, at) => {
      const other = { ...one, at };
      expect(orderedNameOf(orderKey(row, one))).toEqual({ name: row, order: one });
      expect(Math.sign(byBytes(orderKey(row, one), orderKey(row, other)))).toBe(Math.sign(one.at - at));
    }),
  );
});

test("a place lies in the range of its own owner and times, and in no other's", () => {
  fc.assert(
    fc.property(name, order, order, fc.maxSafeNat(), (row, one, other, at) => {
      const key = orderKey(row, one);
      expect(within(key, orderRange(row.table, one))).toBe(true);
      expect(within(key, orderRange(row.table, { ...one, from: at }))).toBe(one.at >= at);
      expect(within(key, orderRange(row.table, { ...one, until: at }))).toBe(one.at < at);
      if (one.owner !== other.owner) expect(within(key, orderRange(row.table, other))).toBe(false);
    }),
  );
});
