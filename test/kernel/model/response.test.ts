import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type ModelEvent, NO_USAGE, ResponseBuilder } from "../../../src/kernel/index.js";

const USAGE = { ...NO_USAGE, inputTokens: 3, outputTokens: 4 };
const FINISH: ModelEvent = { type: "finish", reason: "stop", usage: USAGE };
const text = (blockId: string, value: string): ModelEvent => ({ type: "text_delta", blockId, text: value });
const whole = (blockId: string, value: string): ModelEvent => ({ type: "text", blockId, text: value });
const reasoning = (blockId: string, value: string): ModelEvent => ({ type: "reasoning_delta", blockId, text: value });
const call = (callId: string, argsText: string): ModelEvent => ({
  type: "tool_call",
  callId,
  toolName: "look",
  argsText,
});

function built(...events: ModelEvent[]) {
  const builder = new ResponseBuilder();
  for (const event of events) builder.add(event);
  return builder.build();
}

describe("ResponseBuilder", () => {
  it("joins the deltas of a block and keeps reason and usage", () => {
    expect(built(text("1", "Hel"), text("1", "lo"), FINISH)).toEqual({
      parts: [{ type: "text", text: "Hello" }],
      reason: "stop",
      usage: USAGE,
    });
  });

  it("has an unknown reason before it is finished", () => {
    const builder = new ResponseBuilder();
    builder.add(text("1", "x"));
    expect(builder.build()).toEqual({ parts: [{ type: "text", text: "x" }], reason: "unknown", usage: NO_USAGE });
    builder.add(FINISH);
    expect(builder.build().reason).toBe("stop");
  });

  it("takes another reason when told so", () => {
    const builder = new ResponseBuilder();
    builder.add({ type: "finish", reason: "length", usage: USAGE });
    expect(builder.build("stop").reason).toBe("stop");
  });

  it("keeps blocks in the order they began, however their deltas interleave", () => {
    expect(
      built(reasoning("r", "think "), text("a", "A1"), reasoning("r", "more"), text("b", "B"), text("a", "A2")).parts,
    ).toEqual([
      { type: "reasoning", text: "think more" },
      { type: "text", text: "A1A2" },
      { type: "text", text: "B" },
    ]);
  });

  it("tells a text block from a reasoning block of the same id", () => {
    expect(built(text("0", "said"), reasoning("0", "thought"), text("0", "!")).parts).toEqual([
      { type: "text", text: "said!" },
      { type: "reasoning", text: "thought" },
    ]);
  });

  it("keeps the signature of a reasoning block", () => {
    const metadata = { anthropic: { signature: "sig" } };
    expect(built(reasoning("r", "hm"), { type: "reasoning_end", blockId: "r", metadata }).parts).toEqual([
      { type: "reasoning", text: "hm", metadata },
    ]);
  });

  it("keeps the metadata of each text block with its own part, though the blocks are neighbours", () => {
    const [first, second] = [{ openai: { itemId: "msg_1" } }, { openai: { itemId: "msg_2" } }];
    expect(
      built(
        text("a", "one"),
        { type: "text_end", blockId: "a", metadata: first },
        text("b", "two"),
        { type: "text_end", blockId: "b", metadata: second },
        { type: "text", blockId: "c", text: "three", metadata: first },
      ).parts,
    ).toEqual([
      { type: "text", text: "one", metadata: first },
      { type: "text", text: "two", metadata: second },
      { type: "text", text: "three", metadata: first },
    ]);
  });

  it("drops a text block of which there is nothing but metadata: providers refuse empty text", () => {
    const metadata = { openai: { itemId: "msg_1" } };
    expect(built({ type: "text_end", blockId: "a", metadata }).parts).toEqual([]);
  });

  it("keeps a redacted reasoning block, which has no deltas, in its place", () => {
    const metadata = { anthropic: { redactedData: "opaque" } };
    expect(
      built(text("a", "before"), { type: "reasoning_end", blockId: "r", metadata }, text("b", "after")).parts,
    ).toEqual([
      { type: "text", text: "before" },
      { type: "reasoning", text: "", metadata },
      { type: "text", text: "after" },
    ]);
  });

  it("takes a text that was not streamed as one part, in its place", () => {
    expect(
      built(reasoning("r", "hm"), whole("a", "first"), call("c", "{}"), whole("b", "second"), FINISH).parts,
    ).toEqual([
      { type: "reasoning", text: "hm" },
      { type: "text", text: "first" },
      { type: "tool_call", callId: "c", toolName: "look", args: {} },
      { type: "text", text: "second" },
    ]);
  });

  it("never joins a text that was not streamed with the block before it", () => {
    expect(built(text("a", "streamed"), whole("a", "whole")).parts).toEqual([
      { type: "text", text: "streamed" },
      { type: "text", text: "whole" },
    ]);
  });

  it("drops blocks that stayed empty", () => {
    expect(built(text("a", ""), whole("b", ""), reasoning("r", "")).parts).toEqual([]);
  });

  it("parses the arguments of a tool call, and takes none for an empty object", () => {
    expect(built(call("c1", '{"city":"Oslo"}'), call("c2", "  "), call("c3", "")).parts).toEqual([
      { type: "tool_call", callId: "c1", toolName: "look", args: { city: "Oslo" } },
      { type: "tool_call", callId: "c2", toolName: "look", args: {} },
      { type: "tool_call", callId: "c3", toolName: "look", args: {} },
    ]);
  });

  it("keeps arguments that are not JSON as the model wrote them, and says which they are", () => {
    const response = built(call("c1", '{"city":'), call("c2", "{}"), FINISH);
    expect(response.parts).toEqual([
      { type: "tool_call", callId: "c1", toolName: "look", args: '{"city":' },
      { type: "tool_call", callId: "c2", toolName: "look", args: {} },
    ]);
    expect(response.brokenArgs).toEqual({ c1: '{"city":' });
  });

  it("has no brokenArgs when all arguments are JSON, strings included", () => {
    expect(built(call("c1", '"text"'))).not.toHaveProperty("brokenArgs");
  });

  it("keeps the provider's metadata with a tool call", () => {
    const metadata = { google: { thoughtSignature: "s" } };
    expect(built({ type: "tool_call", callId: "c", toolName: "look", argsText: "{}", metadata }).parts).toEqual([
      { type: "tool_call", callId: "c", toolName: "look", args: {}, metadata },
    ]);
  });

  it("keeps a tool call between the texts around it", () => {
    expect(built(text("a", "1"), call("c", "{}"), text("b", "2")).parts.map(({ type }) => type)).toEqual([
      "text",
      "tool_call",
      "text",
    ]);
  });

  it("loses no character of any block", () => {
    const deltas = fc.array(fc.tuple(fc.constantFrom("a", "b", "c"), fc.string({ maxLength: 4 })), { maxLength: 30 });
    fc.assert(
      fc.property(deltas, (events) => {
        const { parts } = built(...events.map(([blockId, value]) => text(blockId, value)));
        const expected = new Map<string, string>();
        for (const [blockId, value] of events) expected.set(blockId, (expected.get(blockId) ?? "") + value);
        expect(parts).toEqual(
          [...expected.values()].filter((value) => value !== "").map((value) => ({ type: "text", text: value })),
        );
      }),
    );
  });

  it("gives a second call of the same id one of its own, which no other call of the turn has", () => {
    const builder = new ResponseBuilder(() => ["c_2", "d"]);
    for (const event of [call("c", "{}"), call("c", "broken"), call("c", "{}"), call("d", "{}")]) builder.add(event);
    const { parts, brokenArgs } = builder.build();
    expect(parts.map((part) => part.type === "tool_call" && part.callId)).toEqual(["c", "c_3", "c_4", "d_2"]);
    expect(brokenArgs).toEqual({ c_3: "broken" });
  });

  it.each([
    [100, false],
    [101, true],
    [20_000, true],
  ])("arguments nested %i levels deep are broken: %s", (levels, broken) => {
    const deep = "[".repeat(levels) + "1".repeat(200) + "]".repeat(levels);
    expect(built(call("c", deep)).brokenArgs !== undefined).toBe(broken);
  });
});
