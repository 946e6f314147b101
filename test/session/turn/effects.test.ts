import { expect, test } from "vitest";
import { abortTurn, definePlugin, enqueueMessages, finishTurn, nativeToolStep } from "../../../src/plugin/index.js";
import { diskFull } from "../../support/memory-store.js";
import { memorySession } from "./memory-session.js";

const plugin = (hooks: object, more: object = {}) => definePlugin({ id: "p", version: "1.0.0", hooks, ...more });
const call = (tool: string) => ({ toolCalls: [{ tool, args: {} }] });

/** A protocol that is asked before every model call. */
const asks = (beforeLlmCall: (context: { readonly turnId: string }) => unknown) => ({
  id: "protocol",
  version: "1.0.0",
  protocol: {
    session: { beforeLlmCall },
    driver: {
      readsState: false,
      buildPreamble: ({ tools }: { readonly tools: readonly unknown[] }) => ({
        toolSpecs: tools,
        executionPrompt: "",
        promptContributions: [],
        syncExecutionEnvironment: false,
        interpret: nativeToolStep,
      }),
    },
  },
});

test("an answer of the model in words is the turn's, stored in one write with its input", async () => {
  const { turn, store, told } = await memorySession();
  const result = await turn("hi");
  expect(result).toMatchObject({
    turnId: "t1",
    turnIndex: 1,
    revision: 1,
    outcome: { type: "finished", text: "You said: hi" },
    modelCalls: 1,
    issues: [],
  });
  expect(store.commits).toHaveLength(1);
  expect((await store.history("s@1.1")).map(({ role }) => role)).toEqual(["user", "assistant"]);
  expect([told[0], told.at(-1)]).toEqual(["turn_started", "turn_finished"]);
});

test("a model call that fails ends the turn, which is stored with the reason", async () => {
  const { turn, store } = await memorySession({
    says: [[{ fail: { code: "model_auth_failed", message: "No key." } }]],
  });
  const { outcome, issues } = await turn("hi");
  expect(outcome).toEqual({
    type: "stopped",
    reason: "provider_error",
    code: "model_auth_failed",
    message: "No key.",
  });
  expect(issues.map(({ code }) => code)).toEqual(["model_auth_failed"]);
  expect(store.commits).toHaveLength(1);
});

test("a hook that fails when the stream has ended is an issue, and the answer stands", async () => {
  const fails = plugin({
    streamFinished: () => {
      throw new Error("Nobody heard it.");
    },
  });
  const { outcome, issues } = await (await memorySession({ plugins: [fails] })).turn("hi");
  expect(outcome).toMatchObject({ type: "finished" });
  expect(issues).toMatchObject([{ kind: "plugin", message: "streamFinished: Nobody heard it.", pluginId: "p" }]);
});

test("tool calls run at once, and their records stand in call order", async () => {
  const order: string[] = [];
  let first: () => void = () => undefined;
  const second = new Promise<void>((resolve) => {
    first = resolve;
  });
  const tools = {
    slow: async () => {
      await second;
      order.push("slow");
      return "one";
    },
    quick: () => {
      order.push("quick");
      first();
      return "two";
    },
  };
  const { turn } = await memorySession({
    tools,
    says: [
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
  });
  const { toolCalls, text } = await turn("both");
  expect(order).toEqual(["quick", "slow"]);
  expect(toolCalls.map(({ toolName, completed }) => [toolName, completed])).toEqual([
    ["slow", 1],
    ["quick", 0],
  ]);
  expect(text).toBe("done");
});

test("of a tool that throws the model reads that it failed, and not the words of the exception", async () => {
  const tools = {
    breaks: () => {
      throw new Error("It broke.");
    },
  };
  const { turn } = await memorySession({ tools, says: [[call("breaks"), { text: "{tool_result}" }]] });
  expect((await turn("go")).text).toBe("[Tool execution failed]\ntool_failed: breaks failed");
});

test("a tool that finishes the turn ends it without another model call", async () => {
  const tools = { report: () => finishTurn({ celsius: 4 }, { text: "4 °C" }) };
  const { turn } = await memorySession({ tools, says: [[call("report"), { text: "never said" }]] });
  const { outcome, modelCalls } = await turn("weather?");
  expect(outcome).toEqual({ type: "finished", text: "4 °C", value: { celsius: 4 }, toolName: "report" });
  expect(modelCalls).toBe(1);
});

test("what was steered into the turn is said behind its tools, and taken once", async () => {
  const made = await memorySession({
    tools: {
      look: () => {
        made.inputs.add({
          id: "i1",
          text: "Only the cheap ones.",
          waitsFor: { kind: "active_turn", turnId: "t1", boundary: "after_work" },
        });
        return "beds";
      },
    },
    says: [[call("look"), { text: "done" }]],
  });
  await made.turn("Find me a bed.");
  const said = await made.store.history("s@1.4");
  expect(said.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "user", "assistant"]);
  expect(made.inputs.pending).toEqual([]);
  expect(made.told).toContain("inputs_accepted");
});

test("a checkpoint hook that injects before completion takes the answer back, and the model goes on", async () => {
  let asked = 0;
  const doubts = plugin({
    checkpoint: ({ checkpoint }: { readonly checkpoint: string }) =>
      checkpoint === "before_completion" && asked++ === 0
        ? [enqueueMessages({ role: "user", text: "Are you sure?" })]
        : undefined,
  });
  const { turn } = await memorySession({ plugins: [doubts], says: [[{ text: "Yes." }, { text: "Quite." }]] });
  expect(await turn("Well?")).toMatchObject({ text: "Quite.", modelCalls: 2 });
});

test("a checkpoint hook that fails stops the turn, which is stored", async () => {
  const fails = plugin({
    checkpoint: () => {
      throw new Error("No.");
    },
  });
  const { turn, store } = await memorySession({ plugins: [fails] });
  expect((await turn("hi")).outcome).toMatchObject({ reason: "runtime_error", code: "plugin_checkpoint" });
  expect(store.commits).toHaveLength(1);
});

test.each([
  ["beforeTurn", "plugin_prepare_turn"],
  ["turnContextTransform", "context_prepare_turn"],
  ["afterTurn", "plugin_finalize_turn"],
])("a turn that a failing %s hook refuses stores nothing and leaves its inputs waiting", async (hook, code) => {
  const refuses = plugin({
    [hook]: () => {
      throw new Error("Not today.");
    },
  });
  const { turn, store, inputs, session } = await memorySession({ plugins: [refuses] });
  inputs.add({ id: "i1", text: "later", waitsFor: { kind: "next_turn" } });
  inputs.takeForTurn();
  await expect(turn("hi")).rejects.toMatchObject({ code });
  expect(store.commits).toEqual([]);
  expect(inputs.untaken.map(({ id }) => id)).toEqual(["i1"]);
  expect([session.life.isStale, session.life.unstoredTurn]).toEqual([false, undefined]);
});

test("a turn the store refuses rejects, and the session must be opened anew", async () => {
  const { turn, store, session } = await memorySession();
  store.onCommit = () => {
    throw diskFull();
  };
  await expect(turn("hi")).rejects.toMatchObject({ code: "store_write_failed" });
  expect([session.life.isStale, session.stored.revision]).toEqual([true, 0]);
});

test("a turn of an unknown model is refused before anything is asked", async () => {
  const { turn, told } = await memorySession();
  await expect(turn("hi", { model: "none" })).rejects.toMatchObject({ code: "model_unknown" });
  expect(told).toEqual([]);
});

test("a beforeTurn hook that aborts ends the turn before the model is called, and the turn is stored", async () => {
  const aborts = plugin({ beforeTurn: () => [abortTurn("closed", "Come back tomorrow.")] });
  const { turn, told } = await memorySession({ plugins: [aborts] });
  expect((await turn("hi")).outcome).toMatchObject({ reason: "plugin_abort", code: "closed" });
  expect(told).not.toContain("model_call_started");
});

test("a capture that fails is an issue of the stored result as of the delivered one", async () => {
  const unsavable = plugin({ beforeTurn: () => undefined }, { state: () => ({ map: new Map() }) });
  const { turn } = await memorySession({ plugins: [unsavable] });
  const first = await turn("hi", { key: "k" });
  expect(first.issues).toMatchObject([{ kind: "plugin", code: "plugin_capture_failed" }]);
  expect(await turn("hi", { key: "k" })).toEqual(first);
});

test("a turn under a key is answered from another life of the session, and not run", async () => {
  const { turn, store } = await memorySession();
  const first = await turn("hi", { key: "k" });
  const again = await memorySession({ store, says: [[{ text: "something else" }]] });
  expect(await again.turn("hi", { key: "k" })).toEqual(first);
  await expect(again.turn("hello", { key: "k" })).rejects.toMatchObject({ code: "turn_key_conflict" });
});

test("state a plugin changes when it is told of the stored turn is written behind it", async () => {
  const counts = plugin(
    {
      turnPersisted: (_: unknown, context: { readonly state: { told: number } }) => {
        context.state.told++;
      },
    },
    { state: () => ({ told: 0 }) },
  );
  const { turn, store } = await memorySession({ plugins: [counts] });
  expect((await turn("hi")).revision).toBe(1);
  expect(store.commits).toHaveLength(2);
});

test("a frame switch of the protocol stores the turn, and its task is the next turn, in the new frame", async () => {
  const leaves = asks(({ turnId }) =>
    turnId === "t1" ? { kind: "switch_agent_frame", frameId: "second", task: "Go on." } : undefined,
  );
  const { turn, session } = await memorySession({ protocol: definePlugin(leaves as never) });
  const result = await turn("hi");
  expect(result).toMatchObject({ turnId: "t2", text: "You said: Go on." });
  expect(result.before).toMatchObject([{ turnId: "t1", outcome: { type: "frame_switch", frameId: "second" } }]);
  expect(session.stored.head?.frameId).toBe("second");
});

test("a frame that cannot be entered behind the commit is an issue of the stored turn, and the session must be opened anew", async () => {
  const leaves = asks(() => ({ kind: "switch_agent_frame", frameId: "second", task: "Go on." }));
  const { turn, store, session } = await memorySession({ protocol: definePlugin(leaves as never) });
  store.onCommit = (_, nth) => {
    if (nth === 2) throw diskFull();
  };
  const result = await turn("hi", { key: "k" });
  expect(result).toMatchObject({
    revision: 1,
    issues: [{ code: "frame_switch_failed", message: "The disk is full." }],
  });
  expect(session.life.isStale).toBe(true);
});
