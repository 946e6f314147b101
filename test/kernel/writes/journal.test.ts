import fc from "fast-check";
import { expect, test } from "vitest";
import { canonicalJson, fingerprint, type Json, keptEnvelope } from "../../../src/kernel/index.js";
import { sameJson } from "../../../src/kernel/json.js";
import { differingPaths } from "../../../src/kernel/writes/journal.js";

const json = fc.jsonValue({ maxDepth: 4 }).map((value) => value as Json);

test.each<[Json, string]>([
  [null, "null"],
  [{ b: 1, a: [true, null, "x"] }, '{"a":[true,null,"x"],"b":1}'],
  [{ z: { d: 1, c: 2 }, 10: 1, 9: 2 }, '{"10":1,"9":2,"z":{"c":2,"d":1}}'],
  [{ 'say "hi"': "\u2028\n" }, '{"say \\"hi\\"":"\u2028\\n"}'],
  [[], "[]"],
  [{}, "{}"],
])("the canonical form of %j is %s", (value, text) => {
  expect(canonicalJson(value)).toBe(text);
});

test("fields without a value are left out, as JSON leaves them out", () => {
  expect(canonicalJson({ a: undefined, b: 1 } as unknown as Json)).toBe('{"b":1}');
  expect(canonicalJson([undefined, Number.NaN] as unknown as Json)).toBe("[null,null]");
});

test("a canonical form is JSON of the same value, and the same for any order of keys", () => {
  const shuffled = (value: Json): Json =>
    Array.isArray(value)
      ? value.map(shuffled)
      : typeof value === "object" && value !== null
        ? Object.fromEntries(
            Object.entries(value)
              .reverse()
              .map(([key, each]) => [key, shuffled(each)]),
          )
        : value;
  fc.assert(
    fc.property(json, (value) => {
      const text = canonicalJson(value);
      expect(sameJson(JSON.parse(text) as Json, JSON.parse(JSON.stringify(value)) as Json)).toBe(true);
      expect(canonicalJson(shuffled(value))).toBe(text);
    }),
  );
});

test.each<[Json, Json, string[]]>([
  [{ model: "a", messages: [1, 2] }, { model: "b", messages: [1] }, ["$.messages[1]", "$.model"]],
  [1, 2, ["$"]],
  [{ a: { b: [{ c: 1 }] } }, { a: { b: [{ c: 2 }] } }, ["$.a.b[0].c"]],
  [{ "two words": 1 }, {}, ['$["two words"]']],
  [{ a: [] }, { a: {} }, ["$.a"]],
  [{ a: null }, {}, ["$.a"]],
  [{ constructor: 1 }, {}, ["$.constructor"]],
  [{ a: 1 }, { a: 1 }, []],
])("%j and %j differ at %j", (a, b, paths) => {
  expect(differingPaths(a, b)).toEqual(paths);
});

test("values differ somewhere exactly when they are not the same", () => {
  fc.assert(
    fc.property(json, json, (a, b) => {
      const [one, other] = [JSON.parse(JSON.stringify(a)) as Json, JSON.parse(JSON.stringify(b)) as Json];
      expect(differingPaths(one, other).length === 0).toBe(sameJson(one, other));
      expect(differingPaths(one, JSON.parse(JSON.stringify(one)) as Json)).toEqual([]);
    }),
  );
});

test("of many differences the first twenty are named", () => {
  const many = (value: number) => Array.from({ length: 500 }, () => value);
  expect(differingPaths(many(1), many(2))).toHaveLength(20);
});

test("a kept envelope is canonical, and a difference deep inside a long text is still found", () => {
  expect(keptEnvelope({ b: 1, a: 2 })).toBe('{"a":2,"b":1}');
  const prompt = (end: string) => ({ messages: [{ text: `${"word ".repeat(2_000)}${end}` }] });
  const kept = keptEnvelope(prompt("one"));
  expect(kept?.length).toBeLessThan(300);
  const [one, other] = [kept, keptEnvelope(prompt("two"))].map((text) => JSON.parse(text ?? "null") as Json);
  expect(differingPaths(one, other)).toEqual(["$.messages[0].text"]);
});

test("an envelope that is too large even so is not kept", () => {
  expect(keptEnvelope(Array.from({ length: 10_000 }, (_, i) => `item ${i}`))).toBeUndefined();
});

test("fingerprints of different texts are different whole numbers", () => {
  const seen = new Set<number>();
  for (let i = 0; i < 20_000; i++) seen.add(fingerprint(`turn:t${i}`));
  expect(seen.size).toBe(20_000);
  for (const each of seen) expect(Number.isSafeInteger(each)).toBe(true);
});
