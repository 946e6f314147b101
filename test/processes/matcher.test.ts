import { expect, test } from "vitest";
import { Lines } from "../../src/processes/lines.js";
import { Matcher } from "../../src/processes/matcher.js";

test("lines that match a pattern are found, however many there are", () => {
  const lines = Array.from({ length: 5_000 }, (_, n) => `line ${n}`);
  const found = new Matcher().test(/7$/u, lines);
  expect(lines.filter((_, n) => found[n])).toEqual(lines.filter((line) => line.endsWith("7")));
});

test("a pattern that goes back and forth without end is given up, and the next one is found as ever", () => {
  const matcher = new Matcher();
  expect(() => matcher.test(/^(a+)+$/u, [`${"a".repeat(60)}b`])).toThrow(
    expect.objectContaining({ code: "monitor_pattern_slow", details: { pattern: "^(a+)+$" } }),
  );
  expect(matcher.test(/^a/u, ["a", "b"])).toEqual([true, false]);
});

test("bytes become lines, whatever pieces they come in and however a line ends", () => {
  const bytes = Buffer.from("één\r\ntwo\n\nlast");
  const lines = new Lines();
  const found = [...bytes].flatMap((byte) => lines.add(Uint8Array.of(byte)));
  expect([...found, ...lines.end()]).toEqual(["één", "two", "", "last"]);
});

test("of a line without end the beginning is kept", () => {
  const lines = new Lines();
  for (let n = 0; n < 100; n++) expect(lines.add(Buffer.alloc(1_000, "x"))).toEqual([]);
  const [line] = lines.add(Buffer.from("end\nnext\n"));
  expect(line?.length).toBe(8_000);
});
