import { describe, expect, it } from "vitest";
import type { PendingInput } from "../../../src/kernel/index.js";
import { SessionInputs } from "../../../src/session/state/session-inputs.js";
import { decode } from "../../../src/wire/index.js";

const next = (id: string): PendingInput => ({ id, text: id, waitsFor: { kind: "next_turn" } });
const steer = (id: string): PendingInput => ({
  id,
  text: id,
  waitsFor: { kind: "active_turn", turnId: "t1", boundary: "after_work" },
});
const ids = (inputs: readonly PendingInput[]) => inputs.map(({ id }) => id);

/** What the next write stores of them. */
const stored = ({ component }: SessionInputs) => decode<readonly PendingInput[]>(component.encode() as Uint8Array);

describe("a session's inputs", () => {
  it("are taken once by a turn, and gone when it is stored", () => {
    const inputs = new SessionInputs([steer("a"), next("n")]);
    expect(ids(inputs.takeAtCheckpoint("t1", "after_work"))).toEqual(["a"]);
    expect(ids(inputs.takeAtCheckpoint("t1", "before_completion"))).toEqual([]);
    inputs.settle();
    expect(ids(stored(inputs))).toEqual(["n"]);
    inputs.turnStored();
    expect(ids(inputs.pending)).toEqual(["n"]);
  });

  // turn §8.30
  it("wait again when the turn that took them came to nothing", () => {
    const inputs = new SessionInputs([steer("a")]);
    inputs.takeAtCheckpoint("t1", "after_work");
    inputs.turnFailed();
    expect(inputs.pending).toEqual([next("a")]);
    expect(ids(inputs.takeForTurn())).toEqual(["a"]);
  });

  it("that missed their turn wait for the next", () => {
    const inputs = new SessionInputs([steer("late")]);
    inputs.settle();
    inputs.turnStored();
    expect(inputs.pending).toEqual([next("late")]);
  });

  it("that come while the turn is being stored are kept", () => {
    const inputs = new SessionInputs([steer("a")]);
    inputs.takeAtCheckpoint("t1", "after_work");
    inputs.settle();
    inputs.add(next("meanwhile"));
    inputs.turnStored();
    expect(ids(inputs.pending)).toEqual(["meanwhile"]);
  });

  it("that come while the turn is being stored are stored next, without what the turn took", () => {
    const inputs = new SessionInputs([steer("a")]);
    inputs.takeAtCheckpoint("t1", "after_work");
    inputs.settle();
    const writing = inputs.component.encode();
    inputs.add(steer("meanwhile"));
    inputs.turnStored();
    inputs.component.written(writing);
    expect([inputs.component.dirty, stored(inputs)]).toEqual([true, [next("meanwhile")]]);
    expect(inputs.waitForTurn).toBe(true);
  });

  it("that are taken back while the turn is being stored do not come back with it", () => {
    const inputs = new SessionInputs([next("n"), next("gone")]);
    inputs.settle();
    expect(inputs.cancel("gone")).toBe("cancelled");
    inputs.turnStored();
    expect([ids(inputs.pending), ids(stored(inputs))]).toEqual([["n"], ["n"]]);
  });

  it("that a turn took are to be stored again when its write failed", () => {
    const inputs = new SessionInputs([steer("a")]);
    inputs.takeAtCheckpoint("t1", "after_work");
    inputs.settle();
    inputs.turnFailed();
    expect([ids(inputs.pending), ids(stored(inputs))]).toEqual([["a"], ["a"]]);
  });

  it("that a turn leaves as they are need no write of their own", () => {
    const inputs = new SessionInputs();
    inputs.settle();
    inputs.turnStored();
    expect(inputs.component.dirty).toBe(false);
  });

  it("can be taken back until a turn has taken them", () => {
    const inputs = new SessionInputs([steer("a"), steer("b")]);
    expect(inputs.cancel("b")).toBe("cancelled");
    inputs.takeAtCheckpoint("t1", "after_work");
    expect(inputs.cancel("a")).toBe("already_taken");
    expect(inputs.cancel("b")).toBe("not_found");
  });
});
