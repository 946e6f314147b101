import { scriptedModel } from "troupe";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { told } from "../../support/asking.js";
import {
  collect,
  EMPTY_OBJECT,
  firstToolValue,
  fixture,
  oneToolCall,
  PATIENT,
  plugin,
  startTroupe,
} from "../../support/runtime.js";

describe("tools", () => {
  test("run in their three homes: the host's thread, the plugin's, the pool's", async () => {
    const troupe = await startTroupe({
      plugins: [{ module: plugin("counter") }],
      tools: {
        host: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => "on the main thread" },
        pool: { module: fixture("tools/thread-id.mjs") },
      },
      model: scriptedModel({
        turns: [[{ toolCalls: ["host", "pool", "count"].map((tool) => ({ tool, args: {} })) }, { text: "done" }]],
      }),
    });
    const session = await troupe.session("s");
    const result = await session.turn("hi");
    const { threadId } = await session.info();
    expect(result.toolCalls.map(({ output }) => output.status)).toEqual(["success", "success", "success"]);
    expect(result.toolCalls[0]?.output).toEqual({ status: "success", value: "on the main thread" });
    const pool = result.toolCalls[1]?.output;
    expect(
      pool?.status === "success" && typeof pool.value === "number" && pool.value !== threadId && pool.value !== 0,
    ).toBe(true);
    expect(result.toolCalls[2]?.output).toEqual({ status: "success", value: 1 });
  });

  // turn §8.62
  test("of one step run at once; their results come in call order, and say in which they ended", async () => {
    const order: string[] = [];
    let open = () => {};
    const second = new Promise<void>((resolve) => {
      open = resolve;
    });
    const troupe = await startTroupe({
      tools: {
        slow: {
          description: "d",
          inputSchema: EMPTY_OBJECT,
          execute: () => second.then(() => order.push("slow") && "slow"),
        },
        quick: {
          description: "d",
          inputSchema: EMPTY_OBJECT,
          execute: () => {
            order.push("quick");
            open();
            return "quick";
          },
        },
      },
      model: scriptedModel({
        turns: [
          [
            {
              toolCalls: [
                { tool: "slow", args: {} },
                { tool: "quick", args: {} },
              ],
            },
            { text: "done" },
          ],
        ],
      }),
    });
    const result = await (await troupe.session("s")).turn("hi");
    expect(order).toEqual(["quick", "slow"]);
    expect(result.toolCalls.map(({ toolName, completed }) => [toolName, completed])).toEqual([
      ["slow", 1],
      ["quick", 0],
    ]);
  });

  test("a schema's types and checks reach the host's closure", async () => {
    const troupe = await startTroupe({
      tools: {
        add: {
          description: "d",
          inputSchema: z.object({ a: z.number(), b: z.number().default(10) }),
          execute: ({ a, b }: { a: number; b: number }) => a + b,
        },
      },
      model: scriptedModel({
        turns: [
          [
            {
              toolCalls: [
                { tool: "add", args: { a: 1 } },
                { tool: "add", args: { a: "one" } },
              ],
            },
            { text: "done" },
          ],
        ],
      }),
    });
    const { toolCalls } = await (await troupe.session("s")).turn("hi");
    expect(toolCalls[0]?.output).toEqual({ status: "success", value: 11 });
    expect(toolCalls[1]?.output).toMatchObject({ failure: { kind: "invalid_request", code: "invalid_tool_args" } });
  });

  // turn §8.18
  test.each([
    [
      "throws",
      () => {
        throw new Error("no luck");
      },
      { kind: "execution", code: "tool_failed", message: "bad failed" },
    ],
    [
      "rejects",
      () => Promise.reject(new Error("no luck")),
      { kind: "execution", code: "tool_failed", message: "bad failed" },
    ],
    ["hangs past its timeout", () => new Promise(() => {}), { kind: "timeout", code: "tool_timeout" }],
    ["returns a function", () => () => 1, { kind: "execution", code: "tool_result_unserialisable" }],
    [
      "returns a cycle",
      () => {
        const a: { a?: unknown } = {};
        a.a = a;
        return a;
      },
      { kind: "execution", code: "tool_result_unserialisable" },
    ],
  ])(
    "a host tool that %s fails its call, is shown to the model, and the turn goes on",
    async (_what, execute, failure) => {
      // Only the one that is to run out of time gets little of it: a busy machine takes longer than that to throw.
      const timeoutMs = failure.code === "tool_timeout" ? 80 : 20_000;
      const troupe = await startTroupe({
        tools: { bad: { description: "d", inputSchema: EMPTY_OBJECT, timeoutMs, execute } },
        model: oneToolCall("bad"),
      });
      const result = await (await troupe.session("s")).turn("hi");
      expect(result.toolCalls[0]?.output).toMatchObject({ status: "failure", failure });
      expect(result.text).toContain(failure.code);
      expect(result.outcome.type).toBe("finished");
    },
  );

  test.each(["spins", "exits", "throws"])(
    "a pool tool that %s fails its call, and the next one works",
    async (what) => {
      const troupe = await startTroupe({
        sessionWorkers: 1,
        tools: {
          bad: { module: fixture(`tools/${what}.mjs`), timeoutMs: 300 },
          good: { module: fixture("tools/thread-id.mjs") },
        },
        model: scriptedModel({
          turns: [
            [{ toolCalls: [{ tool: "bad", args: {} }] }, { toolCalls: [{ tool: "good", args: {} }] }, { text: "done" }],
          ],
        }),
      });
      const { toolCalls } = await (await troupe.session("s")).turn("hi");
      const code = { spins: "tool_timeout", exits: "tool_worker_lost", throws: "tool_failed" }[what];
      expect(toolCalls[0]?.output).toMatchObject({ status: "failure", failure: { code } });
      expect(toolCalls[1]?.output.status).toBe("success");
    },
  );

  test("a tool of a plugin that ends its thread fails its call; the plugin is replaced with the state of its last answer", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("counter") }],
      model: scriptedModel({
        turns: [
          [{ toolCalls: [{ tool: "count", args: {} }] }, { text: "a" }],
          [{ toolCalls: [{ tool: "boom", args: {} }] }, { toolCalls: [{ tool: "count", args: {} }] }, { text: "b" }],
        ],
      }),
    });
    const session = await troupe.session("s");
    await session.turn("one");
    const { toolCalls, outcome } = await session.turn("two");
    expect(toolCalls[0]?.output).toMatchObject({ failure: { code: "tool_worker_lost" } });
    // beforeTurn of this turn had counted to 2 and answered: the next thread goes on from there, though nothing is stored.
    expect(toolCalls[1]?.output).toEqual({ status: "success", value: 2 });
    expect(outcome.type).toBe("finished");
  });

  test("arguments that are not JSON come back to the model with what is wrong, never as an empty object", async () => {
    let ran = 0;
    const troupe = await startTroupe({
      tools: { tool: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => ++ran } },
      model: scriptedModel({
        turns: [[{ toolCalls: [{ tool: "tool", argsText: '{"city": Oslo}' }] }, { text: "{tool_result}" }]],
      }),
    });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.toolCalls[0]?.output).toMatchObject({
      failure: { kind: "invalid_request", code: "invalid_tool_args" },
    });
    // In the words of this Node's parser.
    expect(result.text).toMatch(/The arguments of tool are not valid JSON: Unexpected token.*O.*\. Call it again/);
    expect(result.toolCalls[0]?.args).toBe('{"city": Oslo}');
    expect(ran).toBe(0);
  });

  // §15.37
  test("a tool the model made up is unavailable, and it is told so", async () => {
    const troupe = await startTroupe({ model: oneToolCall("no_such_tool") });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.text).toContain("tool_unavailable");
  });

  test("tell the host when they start and finish, also when they are refused before they run", async () => {
    const number = { type: "object", properties: { n: { type: "number" } } } as const;
    let ran = 0;
    const tool = { description: "d", inputSchema: number, execute: () => ++ran };
    const calls = [
      { tool: "made_up", args: {} },
      { tool: "hidden", args: {} },
      { tool: "denied", args: {} },
      { tool: "allowed", args: { n: "one" } },
      { tool: "allowed", argsText: "{n" },
    ];
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("matched-denies"), ...PATIENT }],
      tools: { denied: tool, hidden: tool, allowed: tool },
      model: scriptedModel({ turns: [[{ toolCalls: calls }, { text: "done" }]] }),
    });
    const parent = await troupe.session("s");
    const child = await parent.fork({ id: "child", authority: { hiddenTools: ["hidden"] } });
    const activities = await collect(child.turn("hi"));
    const started = activities.flatMap((activity) => (activity.type === "tool_call_started" ? [activity] : []));
    const ids = started.map(({ callId }) => callId);
    expect(new Set(ids).size).toBe(calls.length);
    expect(started.map(({ toolName }) => toolName)).toEqual(calls.map(({ tool: name }) => name));
    const finished = activities.flatMap((activity) => (activity.type === "tool_call_finished" ? [activity] : []));
    const codes = ids.map((id) => {
      const ends = finished.filter(({ callId }) => callId === id).map(({ output }) => output);
      return ends.map((output) => (output.status === "failure" ? output.failure.code : output.status));
    });
    expect(codes).toEqual([
      ["tool_unavailable"],
      ["tool_unavailable"],
      ["not_today"],
      ["invalid_tool_args"],
      ["invalid_tool_args"],
    ]);
    expect(ran).toBe(0);
  });
});

describe("a tool that does what no tool should", () => {
  const unreadable = new Proxy(new Error("hidden"), {
    get() {
      throw new Error("not to be read");
    },
  });
  const throwing = (thrown: unknown) => ({
    description: "Throws",
    inputSchema: EMPTY_OBJECT,
    execute: () => {
      throw thrown;
    },
  });

  // turn §8.66
  test("fails its call and nothing else: it is recorded, and the session runs its next turn", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      toolThreads: 1,
      plugins: [{ module: plugin("counter"), ...PATIENT }],
      tools: {
        throws_nothing: throwing(undefined),
        throws_null: throwing(null),
        throws_unreadable: throwing(unreadable),
        throws_in_pool: { module: fixture("tools/throws.mjs") },
        exits_in_pool: { module: fixture("tools/exits.mjs") },
      },
      model: fixture("models/told.mjs"),
    });
    const session = await troupe.session("s");
    const { revision } = await session.info();
    const ends = {
      throws_nothing: "tool_failed",
      throws_null: "tool_failed",
      throws_unreadable: "tool_failed",
      throws_in_pool: "tool_failed",
      exits_in_pool: "tool_worker_lost",
      boom: "tool_worker_lost",
    };
    for (const [tool, code] of Object.entries(ends)) {
      const result = await session.turn(told({ call: tool }, { say: "Never mind." }));
      expect([tool, firstToolValue(result)]).toEqual([tool, code]);
      expect([result.outcome.type, result.text]).toEqual(["finished", "Never mind."]);
      expect((await session.turn("next")).text).toBe("You said: next");
    }
    expect((await session.info()).revision).toBe(revision + 12);
  });
});
