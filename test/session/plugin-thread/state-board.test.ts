import { describe, expect, test } from "vitest";
import { type BoardNote, StateBoard, StateBoardReader } from "../../../src/session/plugin-thread/state-board.js";

function boards() {
  const notes: BoardNote[] = [];
  const reader = new StateBoardReader();
  const sent = { messages: 0 };
  const board = new StateBoard(
    (note) => {
      notes.push(note);
      reader.take(note);
    },
    () => sent.messages + 1,
  );
  const states = (received = sent.messages + 1) =>
    Object.fromEntries([...reader.states(received)].map(({ slot, state }) => [slot, state]));
  return { board, reader, notes, states, sent };
}
const slot = (number: number, life = 0) => ({ number, life });

describe("a board of states", () => {
  test("has the last state of every slot, and is told of once for each", () => {
    const { board, notes, states } = boards();
    for (let calls = 1; calls <= 5; calls++)
      for (let number = 1; number <= 100; number++) expect(board.write(slot(number), { calls, number })).toBe(true);
    expect(states()).toEqual(
      Object.fromEntries(Array.from({ length: 100 }, (_, n) => [n + 1, { calls: 5, number: n + 1 }])),
    );
    // A hundred slots on two boards.
    expect(notes.length).toBe(102);
  });

  test("has nothing of a slot whose state became too large, until it fits again", () => {
    const { board, states } = boards();
    board.write(slot(1), { text: "a" });
    const session = slot(1);
    expect(board.write(session, { text: "a".repeat(20_000) })).toBe(false);
    expect(states()).toEqual({});
    let tries = 1;
    while (!board.write(session, { text: "b" })) tries++;
    // Looking how large it is takes its time.
    expect(tries).toBe(16);
    expect(states()).toEqual({ 1: { text: "b" } });
  });

  test("has nothing of a slot whose state has something in it that no record may hold, and makes no larger blocks for it", () => {
    const { board, notes, states } = boards();
    board.write(slot(1), {});
    const before = notes.length;
    expect(board.write(slot(1), { text: "a", map: new Map() })).toBe(false);
    expect(states()).toEqual({});
    expect(notes.length).toBe(before);
  });

  test.each([100, 500, 2_000, 8_000, 15_000, 20_000])(
    "has the other slots' states as they were when one grows to %i characters",
    (length) => {
      const { board, states } = boards();
      const others = Array.from({ length: 100 }, (_, n) => n + 2);
      for (const number of others) board.write(slot(number), { calls: number });
      board.write(slot(1), { text: "a" });
      board.write(slot(1), { text: "a".repeat(length) });
      const { 1: grown, ...rest } = states();
      expect(grown).toEqual(length < 16_000 ? { text: "a".repeat(length) } : undefined);
      expect(rest).toEqual(Object.fromEntries(others.map((number) => [number, { calls: number }])));
    },
  );

  test("gives a slot whose state grows a larger block for good, and tells of it once", () => {
    const { board, notes, states } = boards();
    for (const length of [10, 3_000, 10, 3_000, 200, 3_500]) {
      board.write(slot(1), { text: "a".repeat(length) });
      expect(states()).toEqual({ 1: { text: "a".repeat(length) } });
    }
    // A board and a place on it, two times.
    expect(notes.map((note) => (note[0] instanceof SharedArrayBuffer ? ["board", note[1]] : note))).toEqual([
      ["board", 0],
      [1, 0, 0],
      ["board", 2],
      [1, 0, 64],
    ]);
  });

  test("keeps the smaller state until it was told where the larger one is", () => {
    const notes: BoardNote[] = [];
    const reader = new StateBoardReader();
    const board = new StateBoard(
      (note) => notes.push(note),
      () => 1,
    );
    board.write(slot(1), { calls: 1 });
    for (const note of notes.splice(0)) reader.take(note);
    board.write(slot(1), { text: "a".repeat(1_000) });
    // Another slot must not get the block it has outgrown.
    board.write(slot(2), { calls: 2 });
    expect([...reader.states(1)]).toEqual([{ slot: 1, life: 0, state: { calls: 1 } }]);
  });

  test("keeps the state before the one a thread was writing when it ended", () => {
    const { board, states } = boards();
    board.write(slot(1), { calls: 1 });
    const ends = {
      calls: 2,
      get ends() {
        throw new Error("the thread ends here");
      },
    };
    expect(() => board.write(slot(1), ends)).toThrow();
    expect(states()).toEqual({ 1: { calls: 1 } });
  });

  test("has of a slot the state before the one whose message did not arrive", () => {
    const { board, states, sent } = boards();
    for (; sent.messages < 5; sent.messages++) {
      board.write(slot(1), { calls: sent.messages + 1 });
      expect(states(sent.messages)).toEqual(sent.messages === 0 ? {} : { 1: { calls: sent.messages } });
      expect(states(sent.messages + 1)).toEqual({ 1: { calls: sent.messages + 1 } });
    }
  });

  test("has of a slot the state before it became too large, when the message of the large one did not arrive", () => {
    const { board, states, sent } = boards();
    board.write(slot(1), { calls: 1 });
    sent.messages = 1;
    board.write(slot(1), { text: "a".repeat(20_000) });
    expect(states(1)).toEqual({ 1: { calls: 1 } });
    expect(states(2)).toEqual({});
  });

  test("has nothing of the slot that a block was before, when the first message of the next one did not arrive", () => {
    const { board, reader, states, sent } = boards();
    for (; sent.messages < 3; sent.messages++) board.write(slot(1), { calls: sent.messages });
    board.release(1);
    reader.release(1);
    board.write(slot(2), { calls: 7 });
    expect(states(3)).toEqual({});
    expect(states(4)).toEqual({ 2: { calls: 7 } });
  });

  test("gives a block that was released to another slot, without what was in it", () => {
    const { board, reader, states, notes } = boards();
    board.write(slot(1), { calls: 1 });
    board.release(1);
    reader.release(1);
    expect(states()).toEqual({});
    board.write(slot(2), { calls: 7 });
    expect(states()).toEqual({ 2: { calls: 7 } });
    expect(notes.slice(1)).toEqual([
      [1, 0, 0],
      [2, 0, 0],
    ]);
  });

  test("says which life of a slot it has the state of", () => {
    const { board, reader } = boards();
    board.write(slot(1, 3), {});
    expect([...reader.states(1)]).toEqual([{ slot: 1, life: 3, state: {} }]);
  });

  test.each([
    ["no list", 7],
    ["a board of another length", [new SharedArrayBuffer(8), 0]],
    ["a board with blocks of no size", [new SharedArrayBuffer(32_768), 4]],
    ["a block of no board", [1, 0, 64]],
    ["a block before the first", [1, 0, -1]],
    ["a block that is no number", [1, 0, 0.5]],
  ])("is not taken from a host that says %s", (_what, note) => {
    const { board, reader } = boards();
    board.write(slot(1), {});
    expect(() => reader.take(note)).toThrow(TypeError);
  });

  test("whose memory a plugin overwrote is read as nothing, and nothing hangs", () => {
    const { board, notes, states } = boards();
    board.write(slot(1), { calls: 1 });
    new Uint8Array((notes[0] as [SharedArrayBuffer, number])[0]).fill(255);
    expect(states()).toEqual({});
  });
});
