import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { systemClock } from "../../../dist/src/async/index.js";
import { SchemaChecks } from "../../../dist/src/tools/index.js";

const entry = new URL("../../../dist/workers/tool.js", import.meta.url);
const never = new AbortController().signal;
const schema = { type: "object", properties: { word: { type: "string", pattern: "^(a+)+$" } } };
const fits = { word: "aaaa" };
/** Each further letter doubles the time: this one takes longer than anybody waits. */
const endless = { word: `${"a".repeat(60)}!` };

let checks: SchemaChecks;
beforeEach(() => {
  checks = new SchemaChecks({ entry, clock: systemClock });
});
afterEach(() => checks.close());

function check(args: object, { sessionId = "s", signal = never } = {}): Promise<string | undefined> {
  return checks.check({ sessionId, toolName: "t", schema, args: args as never, signal });
}

test("arguments are checked on another thread, in the words they are refused with here", async () => {
  expect(await check(fits)).toBeUndefined();
  expect(await check({ word: "b" })).toBe(
    'The arguments do not fit the tool\'s schema: word must match pattern "^(a+)+$".',
  );
  expect(checks.stats()).toMatchObject({ threads: 1, running: 0, waiting: 0 });
});

test("a check that does not end is refused, and the next one is made", async () => {
  await expect(check(endless)).rejects.toMatchObject({ code: "tool_check_timeout", details: { toolName: "t" } });
  expect(await check(fits)).toBeUndefined();
});

test("a session with many checks that do not end holds one thread, and another session's check is made", async () => {
  const ends: string[] = [];
  const bad = [1, 2, 3].map(() => check(endless).catch(({ code }) => ends.push(code)));
  await vi.waitFor(() => expect(checks.stats()).toMatchObject({ threads: 1, running: 1, waiting: 0 }));
  expect(await check(fits, { sessionId: "other" })).toBeUndefined();
  await Promise.all(bad);
  expect(ends).toEqual(["tool_check_timeout", "tool_check_timeout", "tool_check_timeout"]);
});

test("a check whose turn ends is given up", async () => {
  const stop = new AbortController();
  const checked = check(endless, { signal: stop.signal });
  stop.abort(new Error("the turn ended"));
  await expect(checked).rejects.toThrow();
  expect(await check(fits)).toBeUndefined();
});
