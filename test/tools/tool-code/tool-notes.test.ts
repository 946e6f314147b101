import { describe, expect, it } from "vitest";
import { defineTool } from "../../../src/plugin/tool/tool.js";
import { type NoteSink, packNote, readNote, runHere, type ToolNote } from "../../../src/tools/index.js";
import { ManualClock } from "../../support/manual-clock.js";

/** A call whose tool says things when the test does. */
function running() {
  const clock = new ManualClock();
  const said: string[] = [];
  const sink: NoteSink<string> = {
    clock,
    tell: (about, { kind, json, missed }) => void said.push(`${about} ${kind} ${json} ${missed}`),
  };
  let progress: (value: unknown) => void = () => {};
  let end: (value: unknown) => void = () => {};
  const tool = defineTool({
    description: "Waits.",
    inputSchema: {},
    execute(_args, context) {
      progress = context.progress;
      return new Promise((resolve) => {
        end = resolve;
      });
    },
  });
  const facts = { sessionId: "s", turnId: "t", callId: "c", completionKey: "k", signal: new AbortController().signal };
  const answer = runHere(tool, {}, facts, sink, "c1");
  return { clock, said, answer, progress: (value: unknown) => progress(value), end: (value: unknown) => end(value) };
}

describe("what a call says", () => {
  it("is told once in 50 milliseconds, the latest of what came by then", () => {
    const { clock, said, progress } = running();
    for (const value of [1, 2, 3]) progress(value);
    expect(said).toEqual(["c1 progress 1 0"]);
    clock.advance(49);
    progress(4);
    expect(said).toHaveLength(1);
    clock.advance(1);
    expect(said).toEqual(["c1 progress 1 0", "c1 progress 4 2"]);
    clock.advance(500);
    progress(5);
    expect(said.at(-1)).toBe("c1 progress 5 0");
    expect(clock.timers).toBe(0);
  });

  it("is told before the call ends, and not after", async () => {
    const { clock, said, answer, progress, end } = running();
    progress(1);
    progress(2);
    end("done");
    expect(await answer).toBe("done");
    progress(3);
    clock.advance(500);
    expect(said).toEqual(["c1 progress 1 0", "c1 progress 2 0"]);
  });

  it("sets no timer for a call that says nothing, or once", async () => {
    const { clock, answer, progress, end } = running();
    progress("once");
    end("done");
    await answer;
    expect(clock.made).toBe(0);
  });
});

describe("a note of a thread", () => {
  const note: ToolNote = { kind: "preliminary", json: '{"rows":[1]}', missed: 3 };

  it("is read as it was packed", () => {
    expect(readNote(packNote(note))).toEqual(note);
  });

  it.each([
    ["nothing", undefined],
    ["of no kind", [2, "1", 0]],
    ["of a kind that is no number", ["constructor", "1", 0]],
    ["that is no text", [0, { length: 1 }, 0]],
    ["that is no JSON", [0, "{", 0]],
    ["of more than 16 KB", [0, JSON.stringify("x".repeat(16_384)), 0]],
    ["of more than 16 KB in bytes", [0, JSON.stringify("é".repeat(10_000)), 0]],
    ["nested too deep", [0, "[".repeat(1_000) + "]".repeat(1_000), 0]],
    ["with a count below nothing", [0, "1", -1]],
    ["with a count that is none", [0, "1", Number.NaN]],
  ])("that is malformed is refused: %s", (_what, packed) => {
    expect(() => readNote(packed)).toThrow();
  });
});
