import { describe, expect, it } from "vitest";
import { type Activity, ActivityBuffer, activitiesUpTo, joinDeltas } from "../../../src/kernel/index.js";

const delta = (text: string, blockId = "1"): Activity => ({ type: "text_delta", blockId, text, at: 1 });
const reasoning = (text: string): Activity => ({ type: "reasoning_delta", blockId: "1", text, at: 1 });
const call = (step: number): Activity => ({ type: "model_call_started", modelCallId: `t#${step}`, step, at: 1 });

describe("an activity buffer", () => {
  it("joins neighbouring deltas of one block and kind, and nothing else", () => {
    const buffer = new ActivityBuffer({ join: joinDeltas });
    for (const next of [delta("a"), delta("b"), delta("c", "2"), reasoning("d"), call(0), call(1), delta("e")])
      buffer.push(next);
    expect(buffer.takeAll()).toEqual([delta("ab"), delta("c", "2"), reasoning("d"), call(0), call(1), delta("e")]);
    expect(buffer.takeAll()).toEqual([]);
  });

  it("without a limit gives up nothing", () => {
    const buffer = new ActivityBuffer({ join: joinDeltas });
    for (let step = 0; step < 5_000; step++) buffer.push(call(step));
    expect(buffer.entries).toHaveLength(5_000);
    expect(buffer.shift()).toEqual(call(0));
  });

  it("past its limit gives up the oldest and says once how many", () => {
    const buffer = new ActivityBuffer(activitiesUpTo(2));
    for (let step = 0; step < 5; step++) buffer.push(call(step));
    expect(buffer.shift()).toEqual({ type: "gap", missed: 3, at: 1 });
    expect(buffer.takeAll()).toEqual([call(3), call(4)]);
    buffer.push(call(5));
    expect(buffer.takeAll()).toEqual([call(5)]);
  });

  it("gives nothing up for a delta that joins the last one", () => {
    const buffer = new ActivityBuffer(activitiesUpTo(2));
    for (const next of [call(0), delta("a"), delta("b"), delta("c")]) buffer.push(next);
    expect(buffer.takeAll()).toEqual([call(0), delta("abc")]);
  });

  it("may give up more at once, and knows the last one it gave up", () => {
    const buffer = new ActivityBuffer<string>({
      join: () => undefined,
      limit: 4,
      keep: 2,
      gap: (missed, last) => `${missed} to ${last}`,
    });
    for (const next of ["a", "b", "c", "d", "e"]) buffer.push(next);
    expect(buffer.takeAll()).toEqual(["3 to c", "d", "e"]);
  });

  it("that has no word for a gap is read on without one", () => {
    const buffer = new ActivityBuffer<string>({ join: () => undefined, limit: 1 });
    for (const next of ["a", "b"]) buffer.push(next);
    expect(buffer.takeAll()).toEqual(["b"]);
  });
});
