import {
  type Activity,
  defineTool,
  pendingTool,
  retryTool,
  type Session,
  scriptedModel,
  type Troupe,
  type Turn,
} from "troupe";
import { describe, expect, test } from "vitest";
import { untimed } from "../../support/activities.js";
import {
  collect,
  EMPTY_OBJECT,
  firstToolValue,
  fixture,
  oneToolCall,
  plugin,
  refusalOf,
  startTroupe,
} from "../../support/runtime.js";

const reviewed = (session: Session) => session.query("reviewed");

/** A tool that fails with these, one after another, and then succeeds. */
function failing(retry: "never" | "safe" | "idempotent" | undefined, ...failures: readonly (() => never)[]) {
  let calls = 0;
  const tool = defineTool({
    description: "Fails for a while",
    inputSchema: EMPTY_OBJECT,
    ...(retry !== undefined && { retry: { policy: retry as "safe", baseDelayMs: 1, maxAttempts: 3 } }),
    execute: () => failures[calls++]?.() ?? `done after ${calls}`,
  });
  return { tool, calls: () => calls };
}
const busy = () => {
  throw retryTool("It is busy.", { afterMs: 1 });
};
const broken = () => {
  throw new Error("It broke.");
};

async function run(tool: ReturnType<typeof failing>["tool"]) {
  const troupe = await startTroupe({
    sessionWorkers: 1,
    plugins: [{ module: plugin("reviews"), tier: "inline" }],
    tools: { work: tool },
    model: oneToolCall("work"),
  });
  const session = await troupe.session("s");
  const turn = session.turn("go");
  const activities = await collect(turn);
  const retries = activities.filter(({ type }) => type === "tool_call_retry");
  return { result: await turn, retries, reviewed: await reviewed(session) };
}

describe("a tool that fails", () => {
  // turn §8.57
  test("is not called again unless it has a policy", async () => {
    const { tool, calls } = failing(undefined, busy);
    const { result, retries } = await run(tool);
    expect(firstToolValue(result)).toBe("tool_retry");
    expect(calls()).toBe(1);
    expect(retries).toEqual([]);
  });

  // §15.53
  test("safely is called again, each attempt is told and reviewed, and only the last is the result", async () => {
    const { tool, calls } = failing("safe", busy, busy);
    const outcome = await run(tool);
    expect(firstToolValue(outcome.result)).toBe("done after 3");
    expect(calls()).toBe(3);
    expect(untimed(outcome.retries)).toEqual([
      {
        type: "tool_call_retry",
        callId: expect.any(String),
        toolName: "work",
        attempt: 1,
        code: "tool_retry",
        delayMs: 1,
      },
      {
        type: "tool_call_retry",
        callId: expect.any(String),
        toolName: "work",
        attempt: 2,
        code: "tool_retry",
        delayMs: 1,
      },
    ]);
    expect(outcome.reviewed).toEqual(["tool_retry", "tool_retry", "done after 3"]);
    expect(outcome.result.toolCalls).toHaveLength(1);
  });

  // §15.53
  // turn §8.57
  test("as often as it may is marked as exhausted, after it was reviewed", async () => {
    const { tool, calls } = failing("safe", busy, busy, busy, busy);
    const { result, reviewed: seen } = await run(tool);
    expect(calls()).toBe(3);
    expect(result.toolCalls[0]?.output).toMatchObject({
      failure: { code: "tool_retry", retry: { kind: "exhausted", attempts: 3 } },
    });
    expect(seen).toEqual(["tool_retry", "tool_retry", "tool_retry"]);
  });

  test("in any other way is not called again, whatever its policy", async () => {
    const { tool, calls } = failing("idempotent", broken);
    expect(firstToolValue((await run(tool)).result)).toBe("tool_failed");
    expect(calls()).toBe(1);
  });

  // turn §8.57
  test("is not called again in a turn that is cancelled", async () => {
    let calls = 0;
    const troupe = await startTroupe({
      sessionWorkers: 1,
      tools: {
        work: defineTool({
          description: "Is busy for ever",
          inputSchema: EMPTY_OBJECT,
          retry: { policy: "safe", baseDelayMs: 600_000, maxDelayMs: 0, maxAttempts: 9 },
          execute: () => {
            calls++;
            throw retryTool("It is busy.");
          },
        }),
      },
      model: oneToolCall("work"),
    });
    const turn = (await troupe.session("s")).turn("go");
    for await (const { type } of turn) if (type === "tool_call_retry") turn.cancel();
    expect((await turn).outcome).toMatchObject({ reason: "cancelled" });
    expect(calls).toBe(1);
  });
});

// turn §8.63
test("a tool is called no more often at once than it can take, over all sessions", async () => {
  let running = 0;
  let most = 0;
  const troupe = await startTroupe({
    sessionWorkers: 1,
    tools: {
      work: defineTool({
        description: "Counts who is there",
        inputSchema: EMPTY_OBJECT,
        maxConcurrent: 2,
        execute: async () => {
          most = Math.max(most, ++running);
          await new Promise((resolve) => setImmediate(resolve));
          running--;
          return "ok";
        },
      }),
    },
    model: oneToolCall("work"),
  });
  const sessions = await Promise.all(Array.from({ length: 8 }, (_, n) => troupe.session(`s${n}`)));
  const results = await Promise.all(sessions.map((session) => session.turn("go")));
  expect(results.map(firstToolValue)).toEqual(Array.from({ length: 8 }, () => "ok"));
  expect(most).toBe(2);
});

describe("a tool whose answer comes later", () => {
  const pending = async (turn: Turn) => {
    for await (const activity of turn) if (activity.type === "tool_call_pending") return activity;
    throw new Error("The call never waited.");
  };
  const start = (tool: string, more: Partial<Parameters<typeof startTroupe>[0]> = {}) =>
    startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("reviews") }],
      tools: {
        ask: defineTool({
          description: "Waits for the host",
          inputSchema: EMPTY_OBJECT,
          execute: (_args, { completionKey }) =>
            pendingTool({ announcement: { from: "the host", key: completionKey } }),
        }),
        pool: { module: fixture("tools/waits.mjs") },
      },
      model: oneToolCall(tool),
      ...more,
    });

  // §15.53
  test.each([
    ["ask", "the host"],
    ["approve", "a plugin"],
    ["pool", "the pool"],
  ])("(%s) is completed from outside, and reviewed once, then", async (tool, from) => {
    const troupe = await start(tool);
    const session = await troupe.session("s");
    const turn = session.turn("go");
    const waiting: Extract<Activity, { type: "tool_call_pending" }> = await pending(turn);
    expect(waiting).toMatchObject({ toolName: tool, announcement: { from, key: waiting.key } });
    expect(await reviewed(session)).toEqual([]);
    await troupe.completeTool(waiting.key, { value: { approved: true } });
    expect(firstToolValue(await turn)).toEqual({ approved: true });
    expect(await reviewed(session)).toEqual([{ approved: true }]);
  });

  // turn §8.59
  test("is not asked for again, whatever it is and whatever the tool's policy", async () => {
    let calls = 0;
    const ask = defineTool({
      description: "Waits for the host",
      inputSchema: EMPTY_OBJECT,
      retry: { policy: "idempotent", baseDelayMs: 1 },
      execute: () => {
        calls++;
        return pendingTool();
      },
    });
    const troupe = await start("ask", { tools: { ask } });
    const turn = (await troupe.session("s")).turn("go");
    const { key } = await pending(turn);
    // Of a tool itself this is a reason to call it again.
    await troupe.completeTool(key, { failure: { code: "tool_timeout", message: "Nobody was there." } });
    expect(firstToolValue(await turn)).toBe("tool_timeout");
    expect(calls).toBe(1);
  });

  test("may fail, and the model reads why", async () => {
    const troupe = await start("ask");
    const turn = (await troupe.session("s")).turn("go");
    const { key } = await pending(turn);
    await troupe.completeTool(key, { failure: { code: "declined", message: "The boss said no." } });
    const result = await turn;
    expect(result.toolCalls[0]?.output).toEqual({
      status: "failure",
      failure: { kind: "external", code: "declined", message: "The boss said no." },
    });
    expect(result.text).toContain("The boss said no.");
  });

  test("is answered once; whoever comes second, late or with a wrong key is told", async () => {
    const troupe = await start("ask");
    const turn = (await troupe.session("s")).turn("go");
    const { key } = await pending(turn);
    await troupe.completeTool(key, { value: 1 });
    const codeOf = async (answer: Promise<void>) => (await refusalOf(answer)).code;
    expect(await codeOf(troupe.completeTool(key, { value: 2 }))).toBe("completion_unknown");
    expect(firstToolValue(await turn)).toBe(1);
    expect(await codeOf(troupe.completeTool(key, { value: 3 }))).toBe("completion_unknown");
    expect(await codeOf(troupe.completeTool("nonsense", { value: 4 }))).toBe("completion_unknown");
  });

  test("fails at its deadline, and can be cancelled with its turn", async () => {
    const late = defineTool({
      description: "Waits a moment",
      inputSchema: EMPTY_OBJECT,
      execute: () => pendingTool({ deadlineMs: 1 }),
    });
    const troupe = await start("late", { tools: { late } });
    expect(firstToolValue(await (await troupe.session("s")).turn("go"))).toBe("tool_completion_timeout");
    const patient: Troupe = await start("ask");
    const turn = (await patient.session("s")).turn("go");
    await pending(turn);
    turn.cancel();
    const result = await turn;
    expect(result.outcome).toMatchObject({ reason: "cancelled" });
    expect(result.toolCalls[0]?.output.status).toBe("cancelled");
  });

  test("and that the turn cannot do without ends it at its deadline", async () => {
    const urgent = defineTool({
      description: "Waits a moment",
      inputSchema: EMPTY_OBJECT,
      execute: () => pendingTool({ deadlineMs: 1, onTimeout: "fail_turn" }),
    });
    const troupe = await start("urgent", { tools: { urgent } });
    const result = await (await troupe.session("s")).turn("go");
    const told = { code: "tool_completion_timeout", message: "urgent was not completed within 1 ms." };
    expect(result.outcome).toEqual({ type: "stopped", reason: "tool_error", ...told, toolName: "urgent" });
    expect([result.modelCalls, result.issues]).toEqual([1, [{ kind: "tool", ...told }]]);
    expect(firstToolValue(result)).toBe("tool_completion_timeout");
  });

  const waits = (onCancel: "cancel" | "wait") =>
    defineTool({
      description: "Waits for the host",
      inputSchema: EMPTY_OBJECT,
      execute: () => pendingTool({ deadlineMs: 600_000, onCancel }),
    });

  test("may keep a cancelled turn until it is there, and is recorded and reviewed", async () => {
    const calls = ["keeps", "lets_go"].map((tool) => ({ tool, args: {} }));
    const troupe = await start("ask", {
      tools: { keeps: waits("wait"), lets_go: waits("cancel") },
      model: scriptedModel({ turns: [[{ toolCalls: calls }, { text: "not cancelled" }]] }),
    });
    const session = await troupe.session("s");
    const turn = session.turn("go");
    const keys: Record<string, string> = {};
    for await (const activity of turn) {
      if (activity.type === "tool_call_pending") keys[activity.toolName] = activity.key;
      if (activity.type === "tool_call_pending" && Object.keys(keys).length === 2) turn.cancel();
      // The one that lets go has heard of it, and so has the other.
      if (activity.type === "tool_call_finished" && activity.toolName === "lets_go")
        await troupe.completeTool(keys.keeps as string, { value: "paid" });
    }
    const { outcome, toolCalls } = await turn;
    expect(outcome).toMatchObject({ reason: "cancelled" });
    expect(toolCalls.map(({ output }) => output)).toEqual([
      { status: "success", value: "paid" },
      { status: "cancelled", message: "The call of lets_go was cancelled." },
    ]);
    expect(toolCalls.map(({ completed }) => completed)).toEqual([1, 0]);
    expect(await reviewed(session)).toEqual(["paid"]);
  });

  test.each([
    ["ask", {}],
    ["keeps", { tools: { keeps: waits("wait") } }],
  ])("(%s) does not keep the runtime from closing", async (tool, options) => {
    const troupe = await start(tool, options);
    const turn = (await troupe.session("s")).turn("go");
    await pending(turn);
    await troupe.close();
    expect((await turn).outcome).toMatchObject({ reason: "cancelled" });
  });

  // turn §8.62
  test("is placed among the others of its step by when it came, not by when it was asked for", async () => {
    const calls = ["ask", "quick", "ask"].map((tool, n) => ({ tool, args: {}, callId: `c${n}` }));
    const troupe = await start("ask", {
      tools: {
        ask: waits("cancel"),
        quick: defineTool({ description: "d", inputSchema: EMPTY_OBJECT, execute: () => "quick" }),
      },
      model: scriptedModel({ turns: [[{ toolCalls: calls }, { text: "done" }]] }),
    });
    const turn = (await troupe.session("s")).turn("go");
    const keys: Record<string, string> = {};
    const finished: string[] = [];
    /** The ids of the calls, in their order. */
    const ids: string[] = [];
    const nameOf = (callId: string) => `c${ids.indexOf(callId)}`;
    const answer = (callId: string) => troupe.completeTool(keys[callId] as string, { value: callId });
    for await (const activity of turn) {
      if (activity.type === "tool_call_started") ids.push(activity.callId);
      if (activity.type === "tool_call_pending") keys[nameOf(activity.callId)] = activity.key;
      if (activity.type === "tool_call_finished") finished.push(nameOf(activity.callId));
      // The last one is asked for last and answered first.
      if (activity.type === "tool_call_finished" && nameOf(activity.callId) === "c2") await answer("c0");
      if (Object.keys(keys).length === 2 && finished.join() === "c1") await answer("c2");
    }
    expect(finished).toEqual(["c1", "c2", "c0"]);
    expect((await turn).toolCalls.map(({ callId, completed }) => [nameOf(callId), completed])).toEqual([
      ["c0", 2],
      ["c1", 0],
      ["c2", 1],
    ]);
  });
});

// §15.38
test.each(["worker", "inline"] as const)(
  "a hook in the tier %s is told what a tool wants done with its arguments",
  async (tier) => {
    const plain = defineTool({ description: "d", inputSchema: EMPTY_OBJECT, execute: () => "ok" });
    const projecting = defineTool({ ...plain, argumentProjection: { fields: ["document"], as: "reference" } });
    const calls = [
      { tool: "plain", args: {} },
      { tool: "projecting", args: {} },
    ];
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("sees-projection"), tier }],
      tools: { plain, projecting },
      model: scriptedModel({ turns: [[{ toolCalls: calls }, { text: "done" }]] }),
    });
    const activities = await collect((await troupe.session("s")).turn("go"));
    const told = activities.flatMap((activity) => (activity.type === "plugin_event" ? [activity.event] : []));
    expect(told).toEqual([
      { name: "plain", payload: "not said" },
      { name: "projecting", payload: { fields: ["document"], as: "reference" } },
    ]);
  },
);
