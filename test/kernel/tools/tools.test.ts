import { describe, expect, it } from "vitest";
import {
  addUsage,
  type Message,
  renderToolOutput,
  type ToolOutput,
  textOf,
  toolFailure,
} from "../../../src/kernel/index.js";

describe("renderToolOutput", () => {
  it.each<[ToolOutput, string]>([
    [{ status: "success", value: "as it is" }, "as it is"],
    [{ status: "success", value: "" }, ""],
    [{ status: "success", value: { a: [1, true, null] } }, '{"a":[1,true,null]}'],
    [{ status: "success", value: 0 }, "0"],
    [{ status: "success", value: null }, "null"],
    [{ status: "cancelled", message: "The turn ended." }, "[Tool execution cancelled]\nThe turn ended."],
    [toolFailure("timeout", "tool_timeout", "Too slow."), "[Tool execution failed]\ntool_timeout: Too slow."],
  ])("of %j", (output, text) => {
    expect(renderToolOutput(output)).toBe(text);
  });
});

describe("textOf", () => {
  it("joins the text parts of a message and nothing else", () => {
    const message: Message = {
      id: "m",
      role: "assistant",
      parts: [
        { type: "text", text: "a" },
        { type: "reasoning", text: "hm" },
        { type: "text", text: "b" },
      ],
    };
    expect(textOf(message)).toBe("ab");
  });
});

describe("addUsage", () => {
  it("adds each count to its own", () => {
    const usage = { inputTokens: 1, outputTokens: 2, cacheReadTokens: 3, cacheWriteTokens: 4, reasoningTokens: 5 };
    const more = { inputTokens: 10, outputTokens: 20, cacheReadTokens: 30, cacheWriteTokens: 40, reasoningTokens: 50 };
    expect(addUsage(usage, more)).toEqual({
      inputTokens: 11,
      outputTokens: 22,
      cacheReadTokens: 33,
      cacheWriteTokens: 44,
      reasoningTokens: 55,
    });
  });
});
