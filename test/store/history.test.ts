import { expect, test } from "vitest";
import { readHistory } from "../../src/store/index.js";
import { encode } from "../../src/wire/index.js";
import { segmentBytes, textsOf } from "./commits.js";

const reader = (segments: Readonly<Record<string, Uint8Array>>) => ({ segment: (id: string) => segments[id] });

test("an empty history has no messages", () => {
  expect(readHistory(reader({}), null)).toEqual([]);
});

test("messages come oldest first, cut where a branch leaves its parent", () => {
  const stored = reader({
    "a@1": segmentBytes("a@1", null, ["one", "two", "three"]),
    "a@2": segmentBytes("a@2", "a@1.2", ["four"]),
    "b@1": segmentBytes("b@1", "a@1.0", ["aside", "more", "not yet"]),
  });
  expect(textsOf(readHistory(stored, "a@2.0"))).toEqual(["one", "two", "three", "four"]);
  expect(textsOf(readHistory(stored, "b@1.1"))).toEqual(["one", "aside", "more"]);
});

test("a session id with dots in it is followed", () => {
  const stored = reader({
    "a.b.1@1": segmentBytes("a.b.1@1", null, ["one"]),
    "a.b.1@2": segmentBytes("a.b.1@2", "a.b.1@1.0", ["two"]),
  });
  expect(textsOf(readHistory(stored, "a.b.1@2.0"))).toEqual(["one", "two"]);
});

const whole = segmentBytes("a@1", null, ["one"]);
const damagedHistories: Readonly<Record<string, Readonly<Record<string, Uint8Array>>>> = {
  "is missing": {},
  "is cut short": { "a@1": whole.slice(0, -4) },
  "is no record at all": { "a@1": new Uint8Array([1, 2, 3, 4, 5]) },
  "holds another segment": { "a@1": segmentBytes("b@1", null, ["one"]) },
  "holds something else": { "a@1": encode({ id: "a@1" }) },
  "holds nothing": { "a@1": encode(null) },
  "is too short for the node": { "a@1": segmentBytes("a@1", null, []) },
  "is its own ancestor": { "a@1": segmentBytes("a@1", "a@1.0", ["one"]) },
};
for (const [how, segments] of Object.entries(damagedHistories)) {
  test(`a segment that ${how} is history_damaged and named`, () => {
    expect(() => readHistory(reader(segments), "a@1.0")).toThrow(
      expect.objectContaining({ code: "history_damaged", retryable: false, details: { segment: "a@1" } }),
    );
  });
}

test("a leaf that names no node is history_damaged", () => {
  expect(() => readHistory(reader({ "a@1": whole }), "a@1.x")).toThrow(
    expect.objectContaining({ code: "history_damaged" }),
  );
  expect(() => readHistory(reader({ "a@1": whole }), "nonsense")).toThrow(
    expect.objectContaining({ code: "history_damaged" }),
  );
});

test("a segment of a newer release is unknown, not damaged", () => {
  const newer = whole.slice();
  newer[2] = 9;
  expect(() => readHistory(reader({ "a@1": newer }), "a@1.0")).toThrow(
    expect.objectContaining({ code: "snapshot_version_unknown" }),
  );
});
