import { once } from "node:events";
import { expect, test } from "vitest";
import {
  EVENT_TYPES,
  EventHub,
  type EventType,
  type Listening,
  type ToldEvent,
  type TroupeEvent,
} from "../../src/trace/index.js";
import { ManualClock } from "../support/manual-clock.js";

const NOBODY: Listening = { onEvent: undefined, log: undefined, debug: new Set(), content: false, redact: undefined };
const restarted = (restarts = 1): ToldEvent => ({
  type: "plugin_restarted",
  plugin: "acme.guard",
  thread: "t",
  restarts,
});
const failed = (message = "boom"): ToldEvent => ({
  type: "tool_failed",
  session: "s",
  tool: "refund",
  call: "c1",
  code: "tool_failed",
  home: "host",
  error: { name: "Error", message, stack: `Error: ${message}\n    at refund (shop.js:1:1)` },
  content: { args: { card: "secret-word" } },
});

function hubOf(listening: Partial<Listening>, clock = new ManualClock()) {
  return { clock, hub: new EventHub({ ...NOBODY, ...listening, clock, hide: (text) => text.replaceAll("sk-1", "…") }) };
}

test("an event is told after what caused it, so that a listener may call back into the runtime", async () => {
  const told: TroupeEvent[] = [];
  const { clock, hub } = hubOf({
    onEvent: (event) => {
      told.push(event);
      if (told.length < 3) hub.emit(restarted(told.length + 1));
    },
  });
  hub.emit(restarted());
  expect(told).toHaveLength(0);
  await clock.turn();
  await clock.turn();
  expect(told.map((event) => event.type === "plugin_restarted" && event.restarts)).toEqual([1, 2, 3]);
});

test("a listener that throws loses its own event, and the next event and the logger get theirs", async () => {
  const warned = once(process, "warning");
  const told: unknown[] = [];
  const logged: string[] = [];
  const line = (_: unknown, message: string) => void logged.push(message);
  const { clock, hub } = hubOf({
    onEvent: (event) => {
      told.push(event);
      throw new Error("the pager is down");
    },
    log: { debug: line, info: line, warn: line, error: line },
  });
  hub.emit(restarted());
  hub.emit(restarted(2));
  await clock.turn();
  expect([told.length, logged.length]).toEqual([2, 2]);
  expect(String((await warned)[0])).toContain("onEvent threw, and the event is lost: the pager is down");
});

test("a listener that rejects, and a logger whose methods throw, hurt nobody", async () => {
  const broken = () => {
    throw new Error("disk full");
  };
  const told: unknown[] = [];
  const { clock, hub } = hubOf({
    onEvent: async (event) => {
      told.push(event);
      throw new Error("no network");
    },
    log: { debug: broken, info: broken, warn: broken, error: broken },
  });
  hub.emit(restarted());
  hub.emit(restarted(2));
  await clock.turn();
  await clock.turn();
  expect(told).toHaveLength(2);
});

test("a listener that takes 100 ms for each event gets a tenth of the thread's time", async () => {
  const clock = new ManualClock();
  const at: number[] = [];
  const { hub } = hubOf(
    {
      onEvent: () => {
        at.push(clock.now());
        clock.advance(100);
      },
    },
    clock,
  );
  for (let n = 0; n < 4; n++) hub.emit(restarted(n));
  await clock.turn();
  await clock.elapse(10_000);
  expect(at).toEqual([0, 1_000, 2_000, 3_000]);
});

test("what a listener cannot keep up with is counted and not kept", async () => {
  const told: TroupeEvent[] = [];
  let settle = (): void => undefined;
  const { clock, hub } = hubOf({
    onEvent: (event) => {
      told.push(event);
      return told.length === 1 ? new Promise<void>((resolve) => (settle = resolve)) : undefined;
    },
  });
  hub.emit(restarted(0));
  await clock.turn();
  for (let n = 1; n <= 1_500; n++) hub.emit(restarted(n));
  await clock.turn();
  expect(told).toHaveLength(1);
  settle();
  await clock.turn();
  await clock.turn();
  hub.close();
  expect(told).toHaveLength(1_002);
  expect(told.at(-1)).toMatchObject({ type: "events_dropped", dropped: 500 });
});

test("an event that stands for many counts as many when it is not told", async () => {
  const told: TroupeEvent[] = [];
  let settle = (): void => undefined;
  const { clock, hub } = hubOf({
    onEvent: (event) => {
      told.push(event);
      return told.length === 1 ? new Promise<void>((resolve) => (settle = resolve)) : undefined;
    },
  });
  for (let n = 0; n <= 1_000; n++) hub.emit(restarted(n));
  await clock.turn();
  hub.emit(restarted(1_001));
  hub.receive({ type: "plugin_restarted", plugin: "acme.guard", thread: "t", restarts: 1, at: 0, count: 40 });
  settle();
  hub.close();
  expect(told.at(-1)).toMatchObject({ type: "events_dropped", dropped: 41 });
});

test("closing tells everything that waits, also what was joined, and leaves no timer", () => {
  const told: TroupeEvent[] = [];
  const { clock, hub } = hubOf({ onEvent: (event) => void told.push(event) });
  for (let n = 0; n < 5; n++) hub.emit(failed());
  hub.close();
  expect(told.map(({ count }) => count)).toEqual([1, 4]);
  expect(clock.timers).toBe(0);
});

test("arguments are in no event unless they were asked for", () => {
  const told: TroupeEvent[] = [];
  const { hub } = hubOf({ onEvent: (event) => void told.push(event) });
  hub.emit(failed());
  hub.close();
  expect(JSON.stringify(told)).not.toContain("secret-word");
});

test("redact sees arguments and the words of errors before anybody reads them, and hides what it fails at", () => {
  const told: TroupeEvent[] = [];
  const seen: string[] = [];
  const { hub } = hubOf({
    onEvent: (event) => void told.push(event),
    content: true,
    redact: (value, where) => {
      seen.push(where);
      if (where === "args") return { ...(value as object), card: "****" };
      if (String(value).startsWith("Error:")) throw new Error("cannot read stacks");
      return "a secret";
    },
  });
  hub.emit(failed());
  hub.close();
  expect(seen).toEqual(["args", "error", "error"]);
  expect(told[0]).toMatchObject({
    content: { args: { card: "****" } },
    error: { message: "a secret", stack: "[hidden]" },
  });
});

test("secrets in the words of an error are hidden whoever threw it", () => {
  const told: TroupeEvent[] = [];
  const { hub } = hubOf({ onEvent: (event) => void told.push(event) });
  hub.emit(failed("401 for sk-1"));
  hub.close();
  expect(JSON.stringify(told)).not.toContain("sk-1");
  expect(told[0]).toMatchObject({ error: { message: "401 for …" } });
});

const CONTEXT = { at: 0, count: 1 };
const ERROR = { name: "Error", message: "boom" };
/** One of each: every type has a level and a sentence. */
const EACH: { readonly [T in EventType]: Omit<Extract<TroupeEvent, { type: T }>, "type" | "at" | "count"> } = {
  hook_failed: { session: "s", plugin: "p", hook: "beforeTurn", timeout: true, outcome: "skipped", error: ERROR },
  tool_failed: { session: "s", tool: "t", call: "c", code: "tool_failed", home: "pool", error: ERROR },
  plugin_blocked: { plugin: "p", thread: "t", held: true },
  plugin_lost: { plugin: "p", thread: "t", held: false, reason: "heap" },
  plugin_restarted: { plugin: "p", thread: "t", restarts: 1 },
  plugin_given_up: { plugin: "p", error: ERROR },
  plugin_separated: { plugin: "p", group: "g" },
  session_quarantined: { session: "s", plugin: "p", offences: 2 },
  session_refused: { session: "s", plugin: "p", offences: 5, forMs: 30_000 },
  breaker_opened: { plugin: "p", hook: "beforeTurn", timeouts: 5, forMs: 5_000 },
  breaker_closed: { plugin: "p", hook: "beforeTurn", openMs: 5_000 },
  turn_refused: { session: "s", code: "mailbox_full", background: true, error: ERROR },
  turn_stopped: { session: "s", turn: "t1", reason: "provider_error", code: "model_auth_failed", error: ERROR },
  tenant_budget_spent: { tenant: "t", period: "day:2026-11-18", tokens: 200, cost: 0, whenSpent: "stop" },
  turn_resumed: { session: "s", turn: "t1", times: 0 },
  model_retry: { session: "s", turn: "t1", model: "m", step: 0, attempt: 1, code: "c", delayMs: 10, error: ERROR },
  model_fallback: { session: "s", turn: "t1", from: "a", to: "b", step: 0, code: "c", error: ERROR },
  context_compacted: {
    session: "s",
    reason: "asked",
    frameId: "frame-3",
    messagesBefore: 40,
    messages: 9,
    pluginId: "troupe.compaction",
  },
  store_slow: { write: "commit", tookMs: 1_200 },
  store_lost: { error: ERROR },
  worker_recycled: { thread: "Session worker 0", recycled: 1 },
  session_worker_lost: { thread: "Session worker 0", reason: "heap", error: ERROR },
  session_worker_replaced: { thread: "Session worker 0", restarts: 1 },
  session_worker_given_up: { thread: "Session worker 0", error: ERROR },
  schedule_failed: { schedule: "k", final: true, error: ERROR },
  schedule_missed: { schedule: "k", due: 0 },
  monitor_failed: { session: "s", plugin: "p", monitor: "m", final: true, error: ERROR },
  trigger_failed: { trigger: "mail.received", session: "s", error: ERROR },
  task_failed: { task: "t", session: "s", error: ERROR },
  memory_high: { usedMb: 900, limitMb: 1_000 },
  floating_rejection: { owner: "p", error: ERROR },
  lane_opened: { plugin: "p", thread: "t", to: "Session worker 0", lane: 1 },
  lane_lost: { plugin: "p", thread: "t", lanes: [1, 2] },
  events_dropped: { dropped: 3 },
};

test("a logger gets every type of event at its level, with its fields and a sentence without a hole in it", () => {
  const lines: [string, string][] = [];
  const at = (level: string) => (fields: Readonly<Record<string, unknown>>, message: string) => {
    lines.push([String(fields.type), level]);
    expect(message).toMatch(/^\S.*\S$/);
    expect(message).not.toMatch(/undefined|null|\[object|NaN/);
  };
  const { hub } = hubOf({ log: { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") } });
  for (const [type, fields] of Object.entries(EACH)) hub.receive({ type, ...CONTEXT, ...fields } as TroupeEvent);
  hub.close();
  expect(lines).toEqual(
    Object.entries(EVENT_TYPES)
      .map(([type, { level }]) => [type, level])
      .sort(byOrder),
  );
});

function byOrder([a]: readonly string[], [b]: readonly string[]): number {
  const order = Object.keys(EACH);
  return order.indexOf(a ?? "") - order.indexOf(b ?? "");
}
