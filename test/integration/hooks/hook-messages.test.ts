import { HOOK_KINDS } from "troupe/plugin";
import { describe, expect, test } from "vitest";
import { EMPTY_OBJECT, fixture, plugin, RESIDENT, registers, remembering, startTroupe } from "../../support/runtime.js";

/** Exactly how many messages hooks cost. A message that is not sent is the cheapest. */
const FIRST = "test.first";
const tool = (value: string) => ({ description: "d", inputSchema: EMPTY_OBJECT, execute: () => value });
const model = fixture("models/obeys.mjs");

describe("opening a session", () => {
  test("with plugins that only declare sends them nothing", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("counter") }, { module: plugin("notes") }, { module: plugin("matched") }],
    });
    await Promise.all(["a", "b", "c"].map((id) => troupe.session(id)));
    await (await troupe.session("a")).surface();
    await (await troupe.session("b")).close();
    expect((await troupe.stats()).hookMessages).toEqual({ sent: 0, received: 0 });
  });

  test("with a plugin that registers costs it one round trip, and closing it one word", async () => {
    const troupe = await startTroupe({
      ...RESIDENT, // Leaving memory and coming back are messages of their own.
      sessionWorkers: 1,
      plugins: [remembering(registers(FIRST)), remembering(plugin("counter"))],
    });
    const counted = async () => (await troupe.stats()).hookMessages;
    const session = await troupe.session("a");
    expect(await counted()).toEqual({ sent: 1, received: 1 });
    await troupe.session("a");
    await session.surface();
    expect(await counted()).toEqual({ sent: 1, received: 1 });
    await troupe.session("b");
    expect(await counted()).toEqual({ sent: 2, received: 2 });
    await session.close();
    expect(await counted()).toEqual({ sent: 3, received: 2 });
    await troupe.session("a");
    expect(await counted()).toEqual({ sent: 4, received: 3 });
  });
});

describe("hooks of a plugin on its own thread", () => {
  test("cost a message each way for every call of one that is registered, and none for any other", async () => {
    const troupe = await startTroupe({
      ...RESIDENT, // Leaving memory and coming back are messages of their own.
      sessionWorkers: 1,
      plugins: [remembering(registers(FIRST))],
      tools: { echo: tool("e") },
      model,
    });
    const sent = async () => {
      const { hookMessages } = await troupe.stats();
      // Every call is answered by one message.
      expect(hookMessages.received).toBe(hookMessages.sent);
      return hookMessages.sent;
    };
    const counts: Record<string, number[]> = {};
    for (const name of [...Object.keys(HOOK_KINDS), "none"]) {
      const hooks = name === "none" ? [] : [{ name }];
      const marks = [await sent()];
      const session = await troupe.session(name, { pluginOptions: { [FIRST]: { hooks } } });
      for (const step of [
        () => session.turn("call echo\nsay x"),
        () => session.turn("call echo\nsay x"),
        () => session.turn("whole x"),
        () => session.configure({ maxSteps: 5 }),
        () => session.compact(),
      ]) {
        marks.push(await sent());
        await step();
      }
      marks.push(await sent());
      counts[name] = marks.slice(1).map((mark, i) => mark - (marks[i] as number));
    }
    // Opening (registering is one), two turns with a tool and a streamed answer, one with an answer that was not
    // streamed, a change of the configuration, a compaction.
    expect(counts).toEqual({
      turnContextTransform: [1, 1, 1, 1, 0, 0],
      beforeTurn: [1, 1, 1, 1, 0, 0],
      toolCatalogContributor: [1, 1, 0, 0, 0, 0],
      promptContributor: [1, 1, 1, 1, 0, 0],
      assistantStream: [1, 1, 1, 0, 0, 0],
      assistantResponse: [1, 2, 2, 1, 0, 0],
      proseProjector: [1, 0, 0, 1, 0, 0],
      streamFinished: [1, 2, 2, 1, 0, 0],
      beforeToolCall: [1, 1, 1, 0, 0, 0],
      afterToolCall: [1, 1, 1, 0, 0, 0],
      toolResultProjector: [1, 1, 1, 0, 0, 0],
      checkpoint: [1, 2, 2, 1, 0, 0],
      afterTurn: [1, 1, 1, 1, 0, 0],
      turnFinalized: [1, 1, 1, 1, 0, 0],
      turnPersisted: [1, 1, 1, 1, 0, 0],
      sessionRestored: [2, 0, 0, 0, 0, 0],
      sessionConfigMutator: [1, 0, 0, 0, 1, 0],
      sessionConfigChanged: [1, 0, 0, 0, 1, 0],
      contextCompactor: [1, 0, 0, 0, 0, 1],
      none: [1, 0, 0, 0, 0, 0],
    });
  });

  test("cost nothing for tools they do not name, nor for a catalog that nothing has changed", async () => {
    const troupe = await startTroupe({
      ...RESIDENT, // Leaving memory and coming back are messages of their own.
      sessionWorkers: 1,
      plugins: [remembering(registers(FIRST)), remembering(plugin("notes"))],
      tools: { dig: tool("d"), echo: tool("e") },
      model,
    });
    const hooks = [{ name: "toolCatalogContributor" }, { name: "beforeToolCall", tools: ["dig"] }];
    const session = await troupe.session("s", { pluginOptions: { [FIRST]: { hooks } } });
    const asks = async () => (await troupe.stats()).hooks[`plugin_hook.tool_catalog_contributor.${FIRST}`]?.count;
    const turn = async (input: string) => {
      const { sent } = (await troupe.stats()).hookMessages;
      await session.turn(input);
      return [(await troupe.stats()).hookMessages.sent - sent, await asks()];
    };
    // The notes have a beforeTurn hook and state to capture: two messages in every turn.
    expect(await turn("call echo")).toEqual([2 + 1, 1]);
    // Their state was never captured before, so it may have changed.
    expect(await turn("call echo")).toEqual([2 + 1, 2]);
    expect(await turn("call echo")).toEqual([2, 2]);
    expect(await turn("call dig")).toEqual([2 + 1, 2]);
    await session.command("notes.add", { text: "milk" });
    expect(await turn("call echo")).toEqual([2 + 1, 3]);
    expect(await turn("call echo")).toEqual([2, 3]);
  });
});
