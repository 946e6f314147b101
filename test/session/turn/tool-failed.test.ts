import { expect, test } from "vitest";
import { tellToolFailed } from "../../../src/session/turn/tools/tool-failed.js";
import type { ToldEvent } from "../../../src/trace/index.js";

/** What is told of a refund that threw, by who asked for contents or did not. */
function told({ content, code = "tool_failed" }: { readonly content: boolean; readonly code?: string }): ToldEvent[] {
  const events: ToldEvent[] = [];
  tellToolFailed(
    { content, emit: (event) => events.push(event) },
    {
      sessionId: "chat-42",
      call: { callId: "c1", toolName: "refund", args: { card: "secret-word" } },
      executed: { ran: true, output: { status: "failure", failure: { kind: "execution", code, message: "no" } } },
      thrown: new Error("row 7 is locked"),
      home: { kind: "host" },
    },
  );
  return events;
}

test("what a tool was called with is in no event unless contents were asked for", () => {
  expect(JSON.stringify(told({ content: false }))).not.toContain("secret-word");
  expect(told({ content: true })).toMatchObject([{ tool: "refund", content: { args: { card: "secret-word" } } }]);
});

test("arguments that the model got wrong are no failure of the tool", () => {
  expect(told({ content: true, code: "invalid_tool_args" })).toEqual([]);
});
