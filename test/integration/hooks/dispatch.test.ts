import { scriptedModel } from "troupe";
import { describe, expect, test } from "vitest";
import { collect, EMPTY_OBJECT, fixture, oneToolCall, plugin, refusalOf, startTroupe } from "../../support/runtime.js";

const tool = { description: "d", inputSchema: EMPTY_OBJECT, execute: () => "ran" };

describe("matchers", () => {
  test("a hook sees the tools it names, exactly or by the beginning of their names", async () => {
    const troupe = await startTroupe({
      plugins: [{ module: plugin("matched") }],
      tools: { shell: tool, fs_read: tool, echo: tool },
      model: scriptedModel({
        turns: [
          [{ toolCalls: ["shell", "fs_read", "echo"].map((name) => ({ tool: name, args: {} })) }, { text: "done" }],
        ],
      }),
    });
    const { toolCalls } = await (await troupe.session("s")).turn("hi");
    expect(toolCalls.map(({ output }) => (output.status === "failure" ? output.failure.code : output.status))).toEqual([
      "matched",
      "matched",
      "success",
    ]);
  });

  test("a tool no hook names costs no message", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("matched") }],
      tools: { unwatched: tool },
      model: oneToolCall("unwatched"),
    });
    const session = await troupe.session("s");
    for (let turn = 0; turn < 5; turn++) await session.turn("hi");
    expect((await troupe.stats()).hookMessages).toEqual({ sent: 0, received: 0 });
  });
});

describe("singletons", () => {
  // §15.4
  test("two plugins that project tool results do not start, and the error names both", async () => {
    const both = [{ module: plugin("scriptable") }, { module: plugin("second-scriptable") }];
    const error = await refusalOf(startTroupe({ plugins: both }));
    expect([error.code, error.details.plugins]).toEqual(["duplicate_singleton", ["test.scriptable", "test.second"]]);
  });
});

describe.each(["sequential", "concurrent"] as const)("%s dispatch", (hookDispatch) => {
  test.each(["worker", "inline"] as const)("folds the answers in registration order in the tier %s", async (tier) => {
    const troupe = await startTroupe({
      hookDispatch,
      plugins: [
        { module: plugin("says"), tier, options: { word: "first", delayMs: 30 } },
        { module: plugin("says-second"), tier, options: { word: "second", delayMs: 0 } },
      ],
      model: fixture("models/show-prompt.mjs"),
    });
    const turn = (await troupe.session("s")).turn("hi");
    const activities = await collect(turn);
    const { system, conversation } = JSON.parse((await turn).text);
    expect(system).toBe("## Guidance\n\nfirst\n\nsecond");
    expect(conversation.map(([, text]: [string, string]) => text)).toEqual(["hi", "first", "second"]);
    expect(activities.filter(({ type }) => type === "plugin_event").length).toBe(2);
  });

  // §15.41 §15.44
  test("a denial beats another plugin's success, and the host is told of the conflict", async () => {
    const troupe = await startTroupe({
      hookDispatch,
      plugins: [
        { module: plugin("denies") },
        { module: plugin("says"), options: { word: "ok", delayMs: 0, shortCircuit: true } },
      ],
      tools: { echo: tool },
      model: oneToolCall("echo"),
    });
    const turn = (await troupe.session("s")).turn("hi");
    const activities = await collect(turn);
    expect((await turn).toolCalls[0]?.output).toMatchObject({ failure: { code: "denied" } });
    expect(activities).toContainEqual({
      type: "plugin_event",
      at: expect.any(Number),
      pluginId: "test.says",
      event: {
        name: "before_tool_call.directive_conflict",
        payload: {
          winner_plugin_id: "test.denies",
          winner_directive: "denied_short_circuit",
          ignored_plugin_id: "test.says",
          ignored_directive: "successful_short_circuit",
        },
      },
    });
  });

  test("the first failing plugin in registration order is the one that is reported", async () => {
    const troupe = await startTroupe({
      hookDispatch,
      plugins: [
        { module: plugin("says"), options: { word: "x", delayMs: 20, fail: "the first" } },
        { module: plugin("says-second"), options: { word: "y", delayMs: 0, fail: "the second" } },
      ],
    });
    const error = await refusalOf((await troupe.session("s")).turn("hi"));
    expect(error.message).toContain("the first");
  });
});
