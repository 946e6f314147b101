import { createTroupe, type Session, scriptedModel, type TraceEvent, type Troupe } from "troupe";
import {
  abortTurn,
  createSession,
  type Directive,
  deny,
  emitEvents,
  emitTrace,
  replaceToolArgs,
  shortCircuitTool,
} from "troupe/plugin";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { collect, firstToolValue, oneToolCall, plugin, startTroupe, until } from "../../support/runtime.js";

type Rule = { when?: string; give?: readonly Directive[]; fail?: string; wait?: true };
type Rules = Record<string, Record<string, readonly Rule[]>>;
const turnOf = (session: Session, rules: Rules) => session.turn(JSON.stringify(rules));
const put = (value: string) => replaceToolArgs({ value });

/** A tool that says its argument, and a list of what it was called with. */
function echoing() {
  const ran: [sessionId: string, value: string][] = [];
  const echo = {
    description: "Says its argument",
    inputSchema: { type: "object", properties: { value: { type: "string" } }, required: ["value"] },
    execute: (args: unknown, { sessionId }: { sessionId: string }) => {
      const { value } = args as { value: string };
      ran.push([sessionId, value]);
      return value;
    },
  } as const;
  return { echo, ran };
}

const CONDITIONS = (["worker", "inline"] as const).flatMap((tier) =>
  (["sequential", "concurrent"] as const).flatMap((hookDispatch) =>
    ([["a", "b"] as const, ["b", "a"] as const] as const).map((order) => ({ tier, hookDispatch, order })),
  ),
);

describe.each(CONDITIONS)("tool hooks in the tier $tier, $hookDispatch, registered $order", (condition) => {
  const { tier, hookDispatch, order } = condition;
  const { echo, ran } = echoing();
  const traces: TraceEvent[] = [];
  let troupe: Troupe;
  beforeAll(async () => {
    troupe = await createTroupe({
      sessionWorkers: 1,
      hookDispatch,
      plugins: order.map((name) => ({ module: plugin(`directs-${name}`), tier })),
      tools: { echo },
      model: oneToolCall("echo", { value: "original" }),
      onTrace: (event) => traces.push(event),
    });
  });
  afterAll(() => troupe.close());

  const ranIn = (id: string) => ran.flatMap(([sessionId, value]) => (sessionId === id ? [value] : []));
  const tracesOf = (id: string) => traces.flatMap(({ name, context }) => (context.sessionId === id ? [name] : []));
  /** What a plugin's hooks of one name were asked about, each subject once: concurrent dispatch also asks early. */
  const subjects = async (session: Session, pluginId: string, hook: string) => {
    const seen = await session.query<[string, string][]>(`${pluginId}.seen`);
    return [...new Set(seen.flatMap(([name, subject]) => (name === hook ? [subject] : [])))];
  };

  // §15.45
  test("arguments one plugin puts in are inspected by the other, whichever was registered first", async () => {
    const session = await troupe.session("replaced");
    const result = await turnOf(session, { "test.b": { beforeToolCall: [{ when: "original", give: [put("new")] }] } });
    expect(firstToolValue(result)).toBe("new");
    expect(result.toolCalls[0]?.args).toEqual({ value: "new" });
    expect(ranIn("replaced")).toEqual(["new"]);
    const early = order[0] === "a" || hookDispatch === "concurrent";
    expect(await subjects(session, "test.a", "beforeToolCall")).toEqual(early ? ["original", "new"] : ["new"]);
  });

  // §15.45 §15.46
  test("a policy denies a secret another plugin puts in, whichever was registered first", async () => {
    const result = await turnOf(await troupe.session("secret"), {
      "test.a": { beforeToolCall: [{ when: "secret", give: [deny("no_secrets", "No.")] }] },
      "test.b": { beforeToolCall: [{ when: "original", give: [put("secret")] }] },
    });
    expect(firstToolValue(result)).toBe("no_secrets");
    expect(ranIn("secret")).toEqual([]);
  });

  // §15.46
  // turn §8.61
  test("a second look makes no session, leaves no trace and says nothing again, and is no conflict", async () => {
    const turn = turnOf(await troupe.session("again"), {
      "test.a": {
        beforeToolCall: [
          { give: [createSession({ sessionId: "again:child" }), emitTrace("once"), emitEvents({ name: "once" })] },
        ],
      },
      "test.b": { beforeToolCall: [{ when: "original", give: [put("new")] }] },
    });
    const activities = await collect(turn);
    expect(firstToolValue(await turn)).toBe("new");
    expect(activities.filter(({ type }) => type === "plugin_event")).toHaveLength(1);
    expect(tracesOf("again")).toEqual(["plugin.test.a.once"]);
    expect(await (await troupe.session("again:child")).info()).toMatchObject({ parent: "again", revision: 1 });
  });

  // §15.46
  // turn §8.61
  test("a second look at a result makes no session, leaves no trace and says nothing again", async () => {
    const turn = turnOf(await troupe.session("after"), {
      "test.a": {
        afterToolCall: [
          { give: [createSession({ sessionId: "after:child" }), emitTrace("once"), emitEvents({ name: "once" })] },
        ],
      },
      "test.b": { afterToolCall: [{ when: "original", give: [shortCircuitTool("new")] }] },
    });
    const activities = await collect(turn);
    expect(firstToolValue(await turn)).toBe("new");
    expect(activities.filter(({ type }) => type === "plugin_event")).toHaveLength(1);
    expect(tracesOf("after")).toEqual(["plugin.test.a.once"]);
    expect(await (await troupe.session("after:child")).info()).toMatchObject({ parent: "after", revision: 1 });
  });

  // §15.47
  // turn §8.60
  test("two plugins that always replace the arguments fail the call, and the model is told who they are", async () => {
    const session = await troupe.session("both");
    const result = await turnOf(session, {
      "test.a": { beforeToolCall: [{ give: [put("of a")] }] },
      "test.b": { beforeToolCall: [{ give: [put("of b")] }] },
    });
    const [first, second] = order.map((name) => `test.${name}`);
    expect(result.toolCalls[0]?.output).toEqual({
      status: "failure",
      failure: {
        kind: "internal",
        code: "before_tool_call_failed",
        message: `Plugins ${second} and ${first} both replace the arguments of this call, and neither accepts the other's.`,
      },
    });
    expect(ranIn("both")).toEqual([]);
    expect(result.outcome.type).toBe("finished");
  });

  // §15.47
  test("two plugins that always replace the result fail the call, and the model is told who they are", async () => {
    const result = await turnOf(await troupe.session("both:after"), {
      "test.a": { afterToolCall: [{ give: [shortCircuitTool("of a")] }] },
      "test.b": { afterToolCall: [{ give: [shortCircuitTool("of b")] }] },
    });
    const [first, second] = order.map((name) => `test.${name}`);
    expect(result.toolCalls[0]?.output).toMatchObject({
      failure: {
        code: "after_tool_call_failed",
        message: `Plugins ${second} and ${first} both replace the result of this call, and neither accepts the other's.`,
      },
    });
  });

  // §15.48
  test("two plugins that bring arguments into a form each accepts compose", async () => {
    const result = await turnOf(await troupe.session("forms"), {
      "test.a": { beforeToolCall: [{ when: "original", give: [put("trimmed")] }] },
      "test.b": { beforeToolCall: [{ when: "trimmed", give: [put("lowered")] }] },
    });
    // Only what was registered later sees what the other one made; on a second look a replacement is a conflict.
    expect(firstToolValue(result)).toBe(order[0] === "a" ? "lowered" : "before_tool_call_failed");
  });

  // §15.49
  test("a policy denies a secret another plugin puts into a result, whichever was registered first", async () => {
    const result = await turnOf(await troupe.session("leak"), {
      "test.a": { afterToolCall: [{ when: "secret", give: [deny("leak", "No.")] }] },
      "test.b": { afterToolCall: [{ when: "original", give: [shortCircuitTool("secret")] }] },
    });
    expect(firstToolValue(result)).toBe("leak");
    expect(result.text).not.toContain("secret");
  });

  // §15.41 §15.43
  // turn §8.60
  test("a denial stands against a success, and of two denials that of the smaller plugin id", async () => {
    const against = await turnOf(await troupe.session("denied"), {
      "test.a": { beforeToolCall: [{ give: [shortCircuitTool("yes")] }] },
      "test.b": { beforeToolCall: [{ give: [deny("of_b", "No.")] }] },
    });
    expect(firstToolValue(against)).toBe("of_b");
    const two = await turnOf(await troupe.session("denied:twice"), {
      "test.a": { beforeToolCall: [{ give: [deny("of_a", "No.")] }] },
      "test.b": { beforeToolCall: [{ give: [deny("of_b", "No.")] }] },
    });
    expect(firstToolValue(two)).toBe("of_a");
  });

  // §15.41 §15.42
  // turn §8.60
  test("an abort ends the turn whatever the other plugin says; a denial before it keeps its words", async () => {
    const success = await turnOf(await troupe.session("aborted"), {
      "test.a": { beforeToolCall: [{ give: [shortCircuitTool("yes")] }] },
      "test.b": { beforeToolCall: [{ give: [abortTurn("stop", "Stop.")] }] },
    });
    expect([success.outcome, firstToolValue(success)]).toEqual([
      { type: "stopped", reason: "plugin_abort", code: "stop", message: "Stop." },
      "stop",
    ]);
    const denial = await turnOf(await troupe.session("aborted:denied"), {
      "test.a": { beforeToolCall: [{ give: [deny("of_a", "No.")] }] },
      "test.b": { beforeToolCall: [{ give: [abortTurn("stop", "Stop.")] }] },
    });
    expect(denial.outcome).toMatchObject({ reason: "plugin_abort", code: "stop" });
    expect(firstToolValue(denial)).toBe(order[0] === "a" ? "of_a" : "stop");
  });
});

describe.each(["worker", "inline"] as const)("hooks around tool calls in the tier %s", (tier) => {
  // §15.37
  // turn §8.55
  test("are not asked about tools that nobody has or that the session may not have", async () => {
    const { echo, ran } = echoing();
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("directs-a"), tier }],
      tools: { echo, shell: echo },
      model: scriptedModel([
        { toolCalls: ["made_up", "shell"].map((tool) => ({ tool, args: { value: "x" } })) },
        { text: "done" },
      ]),
    });
    const parent = await troupe.session("parent");
    const child = await parent.fork({ id: "child", authority: { hiddenTools: ["shell"] } });
    const removed = await parent.fork({ id: "removed", catalog: { remove: ["shell"] } });
    const denying: Rules = {
      "test.a": {
        beforeToolCall: [{ give: [deny("asked", "No.")] }],
        afterToolCall: [{ give: [deny("asked", "No.")] }],
      },
    };
    for (const session of [child, removed]) {
      const { toolCalls, outcome } = await turnOf(session, denying);
      expect(
        toolCalls.map(({ output }) => (output.status === "failure" ? output.failure.code : output.status)),
      ).toEqual(["tool_unavailable", "tool_unavailable"]);
      expect(outcome.type).toBe("finished");
    }
    const { hooks } = await troupe.stats();
    expect(hooks["plugin_hook.before_tool_call.test.a"]?.count ?? 0).toBe(0);
    expect(hooks["plugin_hook.after_tool_call.test.a"]?.count ?? 0).toBe(0);
    expect(ran).toEqual([]);
    // The parent may have it: there the hook is asked.
    expect((await turnOf(parent, denying)).toolCalls[1]?.output).toMatchObject({ failure: { code: "asked" } });
  });

  const one = async (rules: Rules) => {
    const { echo, ran } = echoing();
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [
        { module: plugin("directs-a"), tier },
        { module: plugin("scriptable"), tier, options: { toolResultProjector: "project" } },
      ],
      tools: { echo },
      model: oneToolCall("echo", { value: "original" }),
    });
    const session = await troupe.session("s");
    const result = await turnOf(session, rules);
    const { hooks } = await troupe.stats();
    return { result, ran, afterCalls: hooks["plugin_hook.after_tool_call.test.a"]?.count ?? 0 };
  };

  // §15.39
  // turn §8.54
  test("arguments a plugin puts in must fit the tool's schema: else it is not called, and no hook after it", async () => {
    const { result, ran, afterCalls } = await one({
      "test.a": { beforeToolCall: [{ give: [replaceToolArgs({ value: 7 })] }] },
    });
    expect(result.toolCalls[0]).toMatchObject({
      args: { value: 7 },
      output: { status: "failure", failure: { kind: "invalid_request", code: "invalid_tool_args" } },
    });
    expect(ran).toEqual([]);
    expect(afterCalls).toBe(0);
  });

  // §15.40
  test("a short circuit skips the tool and the hooks after it; what the model reads is still projected", async () => {
    const { result, ran, afterCalls } = await one({
      "test.a": {
        beforeToolCall: [{ give: [shortCircuitTool("short")] }],
        afterToolCall: [{ give: [deny("asked", "No.")] }],
      },
    });
    expect(result.toolCalls[0]).toMatchObject({
      output: { status: "success", value: "short" },
      modelText: "echo says success",
    });
    expect(result.text).toBe("Result: echo says success");
    expect(ran).toEqual([]);
    expect(afterCalls).toBe(0);
  });

  // §15.40
  test("a denial is projected, too", async () => {
    const { result, ran } = await one({ "test.a": { beforeToolCall: [{ give: [deny("no", "No.")] }] } });
    expect(firstToolValue(result)).toBe("no");
    expect(result.text).toBe("Result: echo says failure");
    expect(ran).toEqual([]);
  });

  // §15.50
  test("a success may stand in for the tool's failure", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("directs-a"), tier }],
      tools: {
        echo: {
          description: "d",
          inputSchema: { type: "object" },
          execute: () => {
            throw new Error("no luck");
          },
        },
      },
      model: oneToolCall("echo", { value: "original" }),
    });
    const result = await turnOf(await troupe.session("s"), {
      "test.a": { afterToolCall: [{ when: "tool_failed", give: [shortCircuitTool("mended")] }] },
    });
    expect(firstToolValue(result)).toBe("mended");
    expect(result.text).toBe("Result: mended");
  });

  // §15.54
  test("that throw fail their own call, their words are an issue of the plugin and not for the model, and the turn goes on", async () => {
    const before = await one({ "test.a": { beforeToolCall: [{ fail: "before boom" }] } });
    expect(before.result.toolCalls[0]?.output).toEqual({
      status: "failure",
      failure: {
        kind: "internal",
        code: "before_tool_call_failed",
        message: "echo was not run, because a beforeToolCall hook failed",
      },
    });
    expect(before.result.issues).toEqual([
      { kind: "plugin", code: "before_tool_call_failed", message: "before boom", pluginId: "test.a" },
    ]);
    expect(before.ran).toEqual([]);
    expect(before.result.outcome.type).toBe("finished");
    const after = await one({ "test.a": { afterToolCall: [{ fail: "after boom" }] } });
    expect(after.result.toolCalls[0]?.output).toEqual({
      status: "failure",
      failure: {
        kind: "internal",
        code: "after_tool_call_failed",
        message: "The result of echo is not shown, because an afterToolCall hook failed",
      },
    });
    expect(after.result.issues).toEqual([
      { kind: "plugin", code: "after_tool_call_failed", message: "after boom", pluginId: "test.a" },
    ]);
    expect(after.ran).toEqual([["s", "original"]]);
    expect(after.result.outcome.type).toBe("finished");
  });

  test("that the turn's cancellation interrupts have not failed: their calls are cancelled", async () => {
    for (const site of ["beforeToolCall", "afterToolCall"]) {
      const { echo, ran } = echoing();
      const troupe = await startTroupe({
        sessionWorkers: 1,
        plugins: [{ module: plugin("directs-a"), tier }],
        tools: { echo },
        model: oneToolCall("echo", { value: "original" }),
      });
      const session = await troupe.session("s");
      const turn = turnOf(session, { "test.a": { [site]: [{ wait: true }] } });
      await until("the hook waits", async () =>
        (await session.query<[string, string][]>("test.a.seen")).some(([hook]) => hook === site),
      );
      turn.cancel("enough");
      const { outcome, toolCalls } = await turn;
      expect(outcome).toMatchObject({ reason: "cancelled", message: "enough" });
      expect(toolCalls.map(({ output }) => output.status)).toEqual(["cancelled"]);
      expect(ran).toHaveLength(site === "afterToolCall" ? 1 : 0);
    }
  });

  describe("of a batch in which one aborts the turn", () => {
    const batch = async (rules: Rules[string]) => {
      const { echo, ran } = echoing();
      const troupe = await startTroupe({
        sessionWorkers: 1,
        plugins: [
          { module: plugin("directs-a"), tier },
          { module: plugin("scriptable"), tier, options: { toolResultProjector: "project" } },
        ],
        tools: {
          echo,
          wait: {
            description: "d",
            inputSchema: { type: "object" },
            execute: () => new Promise(() => {}),
          },
        },
        model: scriptedModel([
          {
            toolCalls: [
              { tool: "echo", args: { value: "one" } },
              { tool: "echo", args: { value: "two" } },
              { tool: "wait", args: { value: "three" } },
            ],
          },
          { text: "done" },
        ]),
      });
      const session = await troupe.session("s");
      const { outcome, toolCalls } = await turnOf(session, { "test.a": rules });
      expect(outcome).toEqual({ type: "stopped", reason: "plugin_abort", code: "stop", message: "Stop." });
      const seen = await session.query<[string, string][]>("test.a.seen");
      return {
        ends: toolCalls.map(({ output }) => (output.status === "failure" ? output.failure.code : output.status)),
        read: toolCalls.map(({ modelText }) => modelText),
        asked: seen.flatMap(([hook, value]) => (hook === "beforeToolCall" ? [value] : [])),
        ran: ran.map(([, value]) => value),
      };
    };
    const stop = abortTurn("stop", "Stop.");

    test("before its call, the others are cancelled: none runs, and no hook is asked about those behind it", async () => {
      expect(await batch({ beforeToolCall: [{ when: "one", give: [stop] }] })).toEqual({
        ends: ["stop", "cancelled", "cancelled"],
        read: ["echo says failure", "echo says cancelled", "wait says cancelled"],
        asked: ["one"],
        ran: [],
      });
      expect(await batch({ beforeToolCall: [{ when: "two", give: [stop] }] })).toEqual({
        ends: ["cancelled", "stop", "cancelled"],
        read: ["echo says cancelled", "echo says failure", "wait says cancelled"],
        asked: ["one", "two"],
        ran: [],
      });
    });

    test("after its call, those still running or still being reviewed are cancelled", async () => {
      const rules = { afterToolCall: [{ when: "one", wait: true } as const, { when: "two", give: [stop] }] };
      expect(await batch(rules)).toEqual({
        ends: ["cancelled", "stop", "cancelled"],
        read: ["echo says cancelled", "echo says failure", "wait says cancelled"],
        asked: ["one", "two", "three"],
        ran: ["one", "two"],
      });
    });
  });
});
