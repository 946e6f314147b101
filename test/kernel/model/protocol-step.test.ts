import { describe, expect, it } from "vitest";
import { nativeToolStep } from "../../../src/kernel/index.js";
import { partsWithCalls, renderCodeResult } from "../../../src/kernel/model/model.js";
import { call, response, text } from "../turn/turns.js";

describe("nativeToolStep", () => {
  it("makes an answer without calls the end, with the text of all its parts", () => {
    const parts = [text("It "), { type: "reasoning", text: "hm" } as const, text("rains.")];
    expect(nativeToolStep(response(parts))).toEqual({ kind: "finish", text: "It rains." });
    expect(nativeToolStep(response([]))).toEqual({ kind: "finish", text: "" });
  });

  it("makes the calls in the order the model wrote them, without what only the provider needs", () => {
    const metadata = { acme: { signature: "x" } };
    const parts = [text("let me see"), call("c1", { n: 1 }), { ...call("c2", 2), metadata } as never];
    expect(nativeToolStep(response(parts))).toEqual({
      kind: "tools",
      calls: [
        { callId: "c1", toolName: "look", args: { n: 1 } },
        { callId: "c2", toolName: "look", args: 2 },
      ],
      brokenArgs: {},
    });
  });

  it("brings along the arguments that were not JSON", () => {
    const step = nativeToolStep({ ...response([call("c1", "{oops")]), brokenArgs: { c1: "{oops" } });
    expect(step).toMatchObject({ kind: "tools", brokenArgs: { c1: "{oops" } });
  });

  it("goes by the parts, not by the reason the provider gives", () => {
    expect(nativeToolStep(response([call("c1")], "stop")).kind).toBe("tools");
    expect(nativeToolStep(response([text("x")], "tool_calls")).kind).toBe("finish");
  });
});

describe("partsWithCalls", () => {
  const made = (...callIds: string[]) => ({
    kind: "tools" as const,
    calls: callIds.map((callId) => ({ callId, toolName: "look", args: {} })),
    brokenArgs: {},
  });

  it("is the answer's own parts when its calls are those that are made", () => {
    const answer = response([text("a"), call("c1"), { type: "reasoning", text: "hm" }, call("c1"), call("c2")]);
    expect(partsWithCalls(answer, nativeToolStep(answer))).toBe(answer.parts);
    const plain = response([text("a")]);
    expect(partsWithCalls(plain, nativeToolStep(plain))).toBe(plain.parts);
  });

  it("leaves out the calls that are not made and adds those that were not written as calls", () => {
    const answer = response([call("c1"), text("a"), call("c2")]);
    expect(partsWithCalls(answer, made("c2", "c3"))).toEqual([text("a"), call("c2"), call("c3")]);
    expect(partsWithCalls(answer, { kind: "finish", text: "a" })).toEqual([text("a")]);
    expect(partsWithCalls(answer, { kind: "code", language: "js", code: "" })).toEqual([text("a")]);
  });
});

describe("renderCodeResult", () => {
  const ran = { toolCalls: [], durationMs: 1 };

  it("shows what the code printed, line by line", () => {
    expect(renderCodeResult({ ...ran, observations: ["1", "two\nlines", "3"] })).toBe("1\ntwo\nlines\n3");
  });

  it("shows the error behind what was printed before it", () => {
    expect(renderCodeResult({ ...ran, observations: ["1"], error: "x is not defined" })).toBe(
      "1\n[Code failed]\nx is not defined",
    );
    expect(renderCodeResult({ ...ran, observations: [], error: "no" })).toBe("[Code failed]\nno");
  });

  it("says so when nothing was printed: an empty message would be refused by providers", () => {
    expect(renderCodeResult({ ...ran, observations: [] })).toBe("[The code printed nothing]");
  });
});
