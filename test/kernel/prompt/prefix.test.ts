import { describe, expect, it } from "vitest";
import { brokenPiece, bytesBefore, type Message, type SentPrefix } from "../../../src/kernel/index.js";

const said = (id: string, role: Message["role"], text: string): Message => ({
  id,
  role,
  parts: [{ type: "text", text }],
});
const TOOL = { name: "weather", description: "Says the weather", inputSchema: { type: "object" } };
const asked = said("t2.0", "user", "And tomorrow?");
const note = said("t2.volatile.0", "user", "It is noon.");
const history = [said("t1.0", "user", "Hello"), said("t1.1", "assistant", "Hi")];
const sent: SentPrefix = {
  turnId: "t2",
  system: "Be kind.",
  tools: [TOOL],
  history,
  historyLength: 2,
  turn: [asked, note],
  stable: 1,
};

describe("a request", () => {
  it("that goes on in the same turn keeps the prefix when it repeats everything, the volatile note included", () => {
    const answer = said("t2.1", "assistant", "Rain.");
    expect(brokenPiece(sent, { ...sent, turn: [asked, note, answer] })).toBeUndefined();
    expect(brokenPiece(sent, { ...sent, turn: [asked, answer, note] })).toEqual({ piece: "message", index: 3 });
  });

  it("of the next turn keeps the prefix without the volatile note of the turn before", () => {
    const later = [...history, asked, said("t2.1", "assistant", "Rain.")];
    const now = { ...sent, turnId: "t3", history: later, historyLength: 4, turn: [said("t3.0", "user", "Thanks")] };
    expect(brokenPiece(sent, now)).toBeUndefined();
  });

  it("of the next turn is found to keep the prefix also in a history that grew in place", () => {
    const growing = [...history];
    const before = { ...sent, history: growing };
    growing.push(asked, said("t2.1", "assistant", "Rain."));
    const now = { ...sent, turnId: "t3", history: growing, historyLength: 4, turn: [said("t3.0", "user", "Thanks")] };
    expect(brokenPiece(before, now)).toBeUndefined();
  });

  it("with other tools, another system text or another message breaks the prefix there", () => {
    expect(brokenPiece(sent, { ...sent, tools: [] })).toEqual({ piece: "tools" });
    expect(brokenPiece(sent, { ...sent, system: "Be brief." })).toEqual({ piece: "system" });
    expect(brokenPiece(sent, { ...sent, history: history.slice(1), historyLength: 1 })).toEqual({
      piece: "message",
      index: 0,
    });
  });

  it("with equal tools and messages as new objects keeps the prefix", () => {
    expect(brokenPiece(sent, structuredClone(sent))).toBeUndefined();
  });

  it("counts the bytes it began with, and stops when there are enough", () => {
    expect(bytesBefore(sent, 10_000)).toBeGreaterThan(bytesBefore(sent, 10));
    expect(bytesBefore(sent, 10)).toBeGreaterThanOrEqual(10);
  });
});
