import { expect, test } from "vitest";
import type { TurnStep } from "../../../src/kernel/turn/turn-state.js";
import { applyDirectives } from "../../../src/kernel/turn/turn-steps.js";

test("10,000 enqueued messages and events copy the lists of the turn once each, not once for each", () => {
  const before = { state: { config: { turnId: "1" }, messages: [] }, effects: [] } as unknown as TurnStep;
  const message = { pluginId: "p", value: { role: "user", text: "a" } } as const;
  const messages = new Array(10_000).fill(message);
  const events = new Array(10_000).fill({ pluginId: "p", value: { name: "e" } });
  const iterate = Array.prototype[Symbol.iterator];
  let copies = 0;
  let after: TurnStep;
  Array.prototype[Symbol.iterator] = function counted(this: unknown[]) {
    copies++;
    return iterate.call(this);
  } as never;
  try {
    after = applyDirectives(before, { abort: undefined, messages, events });
  } finally {
    Array.prototype[Symbol.iterator] = iterate;
  }
  expect(copies).toBeLessThan(20);
  expect([after.state.messages.length, after.effects.length]).toEqual([10_000, 10_001]);
  expect(after.state.messages.at(-1)).toEqual({
    id: "1.9999",
    role: "user",
    parts: [{ type: "text", text: "a" }],
    origin: { kind: "plugin", pluginId: "p" },
  });
});
