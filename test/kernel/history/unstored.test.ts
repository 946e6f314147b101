import { expect, test } from "vitest";
import { keptUnstored, type Message, type UnstoredMessage, withUnstored } from "../../../src/kernel/index.js";

const said = (id: string, text = id): Message => ({ id, role: "user", parts: [{ type: "text", text }] });
const note = (behind: string, text = "now"): UnstoredMessage => ({ behind, message: said(`${behind}!`, text) });
const ids = (messages: readonly Message[]) => messages.map(({ id }) => id);

test("messages that were sent and not stored stand behind the stored one they were sent behind, in their order", () => {
  const history = ["t1.0", "t1.1", "t2.0", "t2.1"].map((id) => said(id));
  const read = withUnstored(history, [note("t1.0"), note("t2.1"), { ...note("t2.1"), message: said("more") }]);
  expect(ids(read)).toEqual(["t1.0", "t1.0!", "t1.1", "t2.0", "t2.1", "t2.1!", "more"]);
});

test("one whose stored message is not read any more is left out, and without any the list is the same", () => {
  const history = [said("t9.0")];
  expect(ids(withUnstored(history, [note("t1.0")]))).toEqual(["t9.0"]);
  expect(withUnstored(history, [])).toBe(history);
});

test("what turns had beside the history is kept with what those before had, up to sixteen messages; then the last turn's alone", () => {
  const before = Array.from({ length: 15 }, (_, n) => note(`t${n}.0`));
  const own = [note("t15.0")];
  expect(keptUnstored(before, own)).toEqual([...before, ...own]);
  expect(keptUnstored([...before, note("x")], own)).toEqual(own);
});

test("texts of more than 32 KB are not kept in memory", () => {
  const long = note("t2.0", "x".repeat(32_768));
  expect(keptUnstored([], [long])).toEqual([long]);
  expect(keptUnstored([note("t1.0")], [long])).toEqual([long]);
  expect(keptUnstored([], [long, note("t2.3")])).toEqual([]);
});
