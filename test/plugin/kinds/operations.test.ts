import { expect, test } from "vitest";
import {
  definePlugin,
  loadPlugin,
  type OperationSpec,
  operationDeadline,
  operationSession,
  type SessionParam,
} from "../../../src/plugin/index.js";

const spec = (session: SessionParam): OperationSpec => ({
  name: "notes.list",
  kind: "query",
  description: "",
  session,
  inputSchema: {},
});

// §15.68
test.each([
  ["optional", "named", "current", "named"],
  ["optional", undefined, "current", "current"],
  ["optional", undefined, undefined, undefined],
  ["required", "named", undefined, "named"],
  ["required", undefined, "current", "current"],
  ["forbidden", undefined, "current", undefined],
  ["forbidden", undefined, undefined, undefined],
] as const)(
  "with a session that is %s, %s named and called on %s, an operation is about %s",
  (param, given, current, about) => {
    expect(operationSession(spec(param), given, current)).toBe(about);
  },
);

// §15.68
test("an operation that needs a session and has none, or must not have one and is given one, is refused", () => {
  expect(() => operationSession(spec("required"), undefined, undefined)).toThrowError(
    expect.objectContaining({ code: "operation_missing_session" }),
  );
  expect(() => operationSession(spec("forbidden"), "named", "current")).toThrowError(
    expect.objectContaining({ code: "operation_unexpected_session" }),
  );
});

test.each([
  ["query", undefined, 5_000],
  ["command", undefined, 5_000],
  ["action", undefined, 5_000],
  ["task", undefined, undefined],
  ["query", 10, 10],
  ["command", 60_000, 60_000],
  ["task", 10, 10],
] as const)("a %s with the deadline %s, of a plugin with 5,000 ms, may take %s", (kind, deadlineMs, may) => {
  expect(operationDeadline({ kind, ...(deadlineMs !== undefined && { deadlineMs }) }, 5_000)).toBe(may);
});

test.each([0, -1, 1.5, Number.POSITIVE_INFINITY, "soon", null])(
  "an operation whose deadline is %s cannot be loaded",
  async (deadlineMs) => {
    const run = () => 1;
    const queries = { "notes.list": { description: "Notes", input: { type: "object" }, deadlineMs, run } };
    const plugin = definePlugin({ id: "notes", version: "1.0.0", queries: queries as never });
    await expect(loadPlugin(plugin, undefined, "notes.js")).rejects.toMatchObject({
      code: "plugin_invalid",
      message:
        "notes.js cannot be used as a plugin: the deadlineMs of query notes.list of plugin notes is no whole number from 1.",
    });
  },
);
