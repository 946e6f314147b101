import { expect, test } from "vitest";
import { type OperationSpec, operationSession, type SessionParam } from "../../../src/plugin/index.js";

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
