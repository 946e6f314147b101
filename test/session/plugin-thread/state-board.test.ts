import { describe, expect, test } from "vitest";
import { type BoardNote, StateBoard, StateBoardReader } from "../../../src/session/plugin-thread/state-board.js";

function boards() {
  const notes: BoardNote[] = [];
  const reader = new StateBoardReader();
  const board = new StateBoard((note) => {
    notes.push(note);
    reader.take(note);
  });
  const states = () => Object.fromEntries([...reader.states()].map(({ slot, state }) => [slot, state]));
  return { board, reader, notes, states };
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
    expect(board.write(slot(1), { text: "a".repeat(1_000) })).toBe(false);
    expect(states()).toEqual({});
    expect(board.write(slot(1), { text: "b" })).toBe(true);
    expect(states()).toEqual({ 1: { text: "b" } });
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

  test("gives a block that was released to another slot, without what was in it", () => {
    const { board, reader, states, notes } = boards();
    board.write(slot(1), { calls: 1 });
    board.release(1);
    reader.release(1);
    expect(states()).toEqual({});
    board.write(slot(2), { calls: 7 });
    expect(states()).toEqual({ 2: { calls: 7 } });
    expect(notes.filter(Array.isArray)).toEqual([
      [1, 0, 0],
      [2, 0, 0],
    ]);
  });

  test("says which life of a slot it has the state of", () => {
    const { board, reader } = boards();
    board.write(slot(1, 3), {});
    expect([...reader.states()]).toEqual([{ slot: 1, life: 3, state: {} }]);
  });

  test.each([
    ["no list", 7],
    ["a board of another size", new SharedArrayBuffer(8)],
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
    new Uint8Array(notes[0] as SharedArrayBuffer).fill(255);
    expect(states()).toEqual({});
  });
});
