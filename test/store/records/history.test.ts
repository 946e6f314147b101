import { expect, test } from "vitest";
import { isOnPath } from "../../../src/kernel/index.js";
import { openMemory } from "../../../src/store/index.js";
import { outlinesOf, readHistory, readTail, readTailInSlices, readTree } from "../../../src/store/records/index.js";
import { encode } from "../../../src/wire/index.js";
import { commit, segmentBytes, textsOf, turn } from "../commits.js";

const reader = (segments: Readonly<Record<string, Uint8Array>>) => ({ segment: (id: string) => segments[id] });

/** Also counts what is read. */
function counting(segments: Readonly<Record<string, Uint8Array>>) {
  const read: string[] = [];
  const segment = (id: string) => {
    read.push(id);
    return segments[id];
  };
  return { segment, read };
}

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

const long = {
  "a@1": segmentBytes("a@1", null, ["one", "two"]),
  "a@2": segmentBytes("a@2", "a@1.1", ["three", "four", "five"]),
  "a@3": segmentBytes("a@3", "a@2.1", ["six", "seven"]),
};

test.each<[number, string[], string | null, string[]]>([
  [0, [], "a@3.1", []],
  [1, ["seven"], "a@3.0", ["a@3"]],
  [2, ["six", "seven"], "a@2.1", ["a@3"]],
  [3, ["four", "six", "seven"], "a@2.0", ["a@3", "a@2"]],
  [6, ["one", "two", "three", "four", "six", "seven"], null, ["a@3", "a@2", "a@1"]],
  [99, ["one", "two", "three", "four", "six", "seven"], null, ["a@3", "a@2", "a@1"]],
])("the last %i messages are read without what is before them", (count, texts, before, segments) => {
  const stored = counting(long);
  const tail = readTail(stored, "a@3.1", count);
  expect(textsOf(tail.messages)).toEqual(texts);
  expect(tail.before).toBe(before);
  expect(stored.read).toEqual(segments);
});

test("a history is read in pages, each beginning where the last one ended", () => {
  const pages: string[][] = [];
  for (let at: string | null = "a@3.1"; at !== null; ) {
    const { messages, before } = readTail(reader(long), at, 4);
    pages.unshift(textsOf(messages));
    at = before;
  }
  expect(pages.flat()).toEqual(["one", "two", "three", "four", "six", "seven"]);
});

/** A history of so many messages, two a segment. */
function manySegments(count: number): Record<string, Uint8Array> {
  const segments: Record<string, Uint8Array> = {};
  for (let n = 1; n <= count / 2; n++) {
    segments[`a@${n}`] = segmentBytes(`a@${n}`, n === 1 ? null : `a@${n - 1}.1`, [`${n} asked`, `${n} answered`]);
  }
  return segments;
}

test("a long history is read in slices of 256 messages, and others have the thread between them", async () => {
  const stored = counting(manySegments(1_000));
  const readBefore: number[] = [];
  const pause = async () => {
    readBefore.push(stored.read.length);
  };
  const { messages } = await readTailInSlices(stored, "a@500.1", Number.POSITIVE_INFINITY, pause);
  expect(messages).toEqual(readHistory(stored, "a@500.1"));
  expect(readBefore).toEqual([128, 256, 384]);
});

test("whoever pauses a long reading can end it", async () => {
  const stored = counting(manySegments(1_000));
  const pause = () => Promise.reject(new Error("closed"));
  await expect(readTailInSlices(stored, "a@500.1", Number.POSITIVE_INFINITY, pause)).rejects.toThrow("closed");
  expect(stored.read).toHaveLength(128);
});

test("records that form a ring are found in slices too", async () => {
  const ring = { ...manySegments(1_000), "a@1": segmentBytes("a@1", "a@500.1", ["1 asked", "1 answered"]) };
  const reading = readTailInSlices(reader(ring), "a@500.1", Number.POSITIVE_INFINITY, async () => {});
  await expect(reading).rejects.toMatchObject({ code: "history_damaged" });
});

test("whether a node is on a path is found without decoding a message", () => {
  const unreadable = segmentBytes("a@1", null, ["one", "two"]);
  unreadable.fill(0xc1, unreadable.length - 6);
  const stored = reader({ ...long, "a@1": unreadable });
  expect(isOnPath(outlinesOf(stored), "a@3.1", "a@1.0")).toBe(true);
  expect(isOnPath(outlinesOf(stored), "a@3.1", "a@2.2")).toBe(false);
  expect(() => readHistory(stored, "a@3.1")).toThrow(expect.objectContaining({ code: "history_damaged" }));
});

// state §2.3: message tree
test("a session's tree has its conversation, the frames it left and the sessions forked from it", async () => {
  const backend = openMemory();
  const framed = turn("a", 3);
  const left = [{ frameId: "main", reason: "compaction", leaf: "a@2.0" }];
  commit(
    backend,
    turn("a", 1),
    turn("a", 2),
    {
      ...framed,
      head: { ...framed.head, frameId: "second", frames: left },
      segment: { id: "a@3", bytes: segmentBytes("a@3", null, ["summary"]) },
    },
    {
      ...turn("b", 1),
      head: { ...turn("b", 1).head, parent: { sessionId: "a", leaf: "a@1.0" } },
      segment: { id: "b@1", bytes: segmentBytes("b@1", "a@1.0", ["aside"]) },
    },
    turn("stranger", 1),
  );
  const tree = await readTree(backend, "a");
  expect(tree.map(({ node, parent, active, message }) => [node, parent, active, ...textsOf([message])])).toEqual([
    ["a@3.0", null, true, "summary"],
    ["a@1.0", null, false, "message 1"],
    ["a@2.0", "a@1.0", false, "message 2"],
    ["b@1.0", "a@1.0", false, "aside"],
  ]);
  expect(await readTree(backend, "nobody")).toEqual([]);
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
