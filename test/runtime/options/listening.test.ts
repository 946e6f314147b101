import { expect, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { resolveOptions } from "../../../src/runtime/options/options.js";

const resolved = (options: Parameters<typeof resolveOptions>[0]) => {
  const { listening, worker } = resolveOptions(options, systemClock);
  return { listening, told: worker.events };
};

test("without a listener there is nothing on the main thread and in session workers that events could be told to", () => {
  // Every event stands behind `events?.`: without a sink it is not even made.
  expect(resolved({})).toEqual({ listening: undefined, told: undefined });
  expect(resolved({ logContent: true, redact: String })).toEqual({ listening: undefined, told: undefined });
});

test("with a listener session workers tell of events, and of contents only when those were asked for", () => {
  const onEvent = () => undefined;
  expect(resolved({ onEvent }).told).toEqual({ content: false });
  expect(resolved({ onEvent, logContent: true }).told).toEqual({ content: true });
  expect(resolved({ log: console }).told).toEqual({ content: false });
});

test.each([
  ["onEvent", "a name", "onEvent must be a function"],
  ["log", { info: () => undefined }, "log must be a logger with debug, info, warn, error, such as pino() or console"],
  ["logContent", "yes", "logContent must be true or false"],
  ["redact", /\d+/, "redact must be a function of a value and where it is from"],
])("%s that cannot be used is refused in words that say what it must be", (option, value, words) => {
  expect(() => resolved({ [option]: value })).toThrow(words);
});
