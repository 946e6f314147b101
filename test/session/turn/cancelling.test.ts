import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { deferred } from "../../../src/async/index.js";
import type { Activity } from "../../../src/kernel/index.js";
import { definePlugin, pendingTool } from "../../../src/plugin/index.js";
import { suspension } from "../../../src/session/journal/unfinished-turn.js";
import { answerCall, type Session } from "../../../src/session/state/session.js";
import { NO_EXTRAS } from "../../../src/session/turn/run-turn.js";
import { TurnStop } from "../../../src/session/turn/turn-stop.js";
import { sealEnvelope } from "../../../src/store/index.js";
import { encode } from "../../../src/wire/index.js";
import { memorySession } from "./memory-session.js";

/** One model call with a tool, then an answer; every step can be where the turn is cancelled. */
const says = [[{ toolCalls: [{ tool: "look", args: {} }] }, { text: "done" }]];

/** Runs a turn that is cancelled when it tells of an activity of this type for the n-th time. */
async function cancelledAt(type: Activity["type"], nth = 1) {
  const stop = new AbortController();
  const made = await memorySession({ tools: { look: () => "seen" }, says });
  let count = 0;
  const emit = (activity: Activity) => {
    if (activity.type === type && ++count === nth) stop.abort(new Error("Enough."));
  };
  const result = await made.turn("go", NO_EXTRAS, { emit, signal: stop.signal });
  const leaf = made.session.stored.head?.leaf ?? null;
  return { result, roles: (await made.store.history(leaf)).map(({ role }) => role) };
}

test.each<[Activity["type"], number, string[]]>([
  ["turn_started", 1, ["user"]],
  ["model_call_started", 1, ["user"]],
  ["tool_call_started", 1, ["user", "assistant", "tool"]],
  ["tool_call_finished", 1, ["user", "assistant", "tool"]],
  ["model_call_started", 2, ["user", "assistant", "tool"]],
])("a turn that is cancelled at %s (%i) is stored as cancelled, with what was whole", async (type, nth, stored) => {
  const { result, roles } = await cancelledAt(type, nth);
  expect(result.outcome).toEqual({ type: "stopped", reason: "cancelled", code: "cancelled", message: "Enough." });
  expect(result.revision).toBe(1);
  expect(roles).toEqual(stored);
});

test("a cancellation that comes while the turn is stored is too late", async () => {
  const stop = new AbortController();
  const { turn, store } = await memorySession();
  store.onCommit = () => stop.abort(new Error("Enough."));
  const { outcome } = await turn("hi", NO_EXTRAS, { signal: stop.signal });
  expect(outcome).toEqual({ type: "finished", text: "You said: hi" });
});

test("hooks that fail because the turn was cancelled are no issues of it", async () => {
  const stop = new AbortController();
  const fails = definePlugin({
    id: "p",
    version: "1.0.0",
    hooks: {
      beforeTurn: () => {
        stop.abort(new Error("Enough."));
        throw new Error("I was told to stop.");
      },
    },
  });
  const { turn } = await memorySession({ plugins: [fails] });
  expect(await turn("hi", NO_EXTRAS, { signal: stop.signal })).toMatchObject({
    outcome: { reason: "cancelled" },
    issues: [],
  });
});

test("inputs nobody holds wait on when their turn is cancelled: it is refused", async () => {
  const stop = new AbortController();
  const { turn, store, inputs } = await memorySession({
    tools: { look: () => stop.abort(new Error("Enough.")) },
    says,
  });
  inputs.add({ id: "i1", text: "later", waitsFor: { kind: "next_turn" } });
  const [taken] = inputs.takeForTurn();
  const more = { signal: stop.signal, keepsInputs: true, inputIds: ["i1"] };
  await expect(turn(taken?.text ?? "", NO_EXTRAS, more)).rejects.toThrow("Enough.");
  expect(store.commits).toEqual([]);
  expect(inputs.untaken.map(({ id }) => id)).toEqual(["i1"]);
});

test("a turn that is suspended leaves its journal, and the next life of the session takes it up", async () => {
  const stop = new AbortController();
  const calls: string[] = [];
  const tools = {
    look: () => {
      calls.push("look");
      return "seen";
    },
  };
  const first = await memorySession({ tools, says, journals: true });
  const emit = (activity: Activity) => {
    if (activity.type === "tool_call_finished") stop.abort(suspension());
  };
  await expect(first.turn("go", NO_EXTRAS, { emit, signal: stop.signal })).rejects.toMatchObject({
    code: "turn_suspended",
  });
  expect(first.store.commits).toEqual([]);
  const second = await memorySession({ tools, says, journals: true, store: first.store });
  expect(second.unfinished?.turnId).toBe("t1");
  expect(await second.resume()).toMatchObject({ turnId: "t1", text: "done", modelCalls: 2 });
  // The model's first answer and the tool's are the journal's.
  expect(calls).toEqual(["look"]);
  expect(first.store.backend.journal("s")).toEqual([]);
});

test("an answer that has to wait for the write that ends its turn is told that it is too late, and no row is left of it", async () => {
  const says = [[{ toolCalls: [{ tool: "ask", args: {} }] }, { text: "done" }]];
  const { session, store, turn, inputs } = await memorySession({
    tools: { ask: () => pendingTool() },
    says,
    journals: true,
  });
  const stop = new AbortController();
  const waits = deferred<string>();
  const emit = (activity: Activity) => {
    if (activity.type === "tool_call_pending") waits.resolve(activity.callId);
  };
  const running = turn("go", NO_EXTRAS, { emit, signal: stop.signal });
  const callId = await waits.promise;
  // Something else of the session is being stored when the answer comes, and the turn is cancelled meanwhile.
  const { reached, letGo } = store.holdNext();
  inputs.add({ id: "i1", text: "later", waitsFor: { kind: "next_turn" } });
  const saved = session.stored.store("save");
  await reached;
  const answered = answerCall(session as Session, { turnId: "t1", callId }, { status: "success", value: "yes" });
  stop.abort(new Error("Enough."));
  letGo();
  await saved;
  expect((await running).toolCalls).toMatchObject([{ output: { status: "cancelled" } }]);
  expect(await answered).toBe("moved_on");
  expect(store.backend.journal("s")).toEqual([]);
});

test("a cancellation that has to wait for the write that ends its turn leaves no row behind it", async () => {
  const says = [[{ toolCalls: [{ tool: "ask", args: {} }] }, { text: "done" }]];
  const { session, store, turn, inputs } = await memorySession({
    tools: { ask: () => pendingTool() },
    says,
    journals: true,
  });
  const stop = new TurnStop();
  const waits = deferred<string>();
  const emit = (activity: Activity) => {
    if (activity.type === "tool_call_pending") waits.resolve(activity.callId);
  };
  const running = turn("go", NO_EXTRAS, { emit, signal: stop.signal, stop });
  await waits.promise;
  const { reached, letGo } = store.holdNext();
  inputs.add({ id: "i1", text: "later", waitsFor: { kind: "next_turn" } });
  const saved = session.stored.store("save");
  await reached;
  const cancelled = stop.cancel({ reason: "Enough." });
  // The turn comes to its own write meanwhile, which waits as well.
  await setImmediate();
  letGo();
  await saved;
  expect((await running).outcome).toMatchObject({ reason: "cancelled", message: "Enough." });
  expect(await cancelled).toBe("cancelled");
  expect(store.backend.journal("s")).toEqual([]);
});

test("an answer for a call that its turn, taken up again, did not come to any more is told that it is too late", async () => {
  const says = [[{ toolCalls: [{ tool: "ask", args: {} }] }, { text: "done" }]];
  const tools = { ask: () => pendingTool() };
  const first = await memorySession({ tools, says, journals: true });
  const stop = new AbortController();
  let callId = "";
  const emit = (activity: Activity) => {
    if (activity.type !== "tool_call_pending") return;
    ({ callId } = activity);
    stop.abort(suspension());
  };
  await expect(first.turn("go", NO_EXTRAS, { emit, signal: stop.signal })).rejects.toMatchObject({
    code: "turn_suspended",
  });
  // Its worker died with it so often that it is not begun again.
  const { epoch } = first.session.stored as Session["stored"];
  for (const n of [1, 2, 3]) {
    const row = { turnId: "t1", key: `resumed:${n}`, ...sealEnvelope(null), bytes: encode(null) };
    await first.store.record({ ...row, sessionId: "s", expectedRevision: 0, epoch });
  }
  const second = await memorySession({ tools, says, journals: true, store: first.store });
  expect(await second.resume()).toMatchObject({ outcome: { type: "stopped", reason: "runtime_error" } });
  const answer = { status: "success", value: "yes" } as const;
  expect(await answerCall(second.session as Session, { turnId: "t1", callId }, answer)).toBe("moved_on");
  expect(first.store.backend.journal("s")).toEqual([]);
});
