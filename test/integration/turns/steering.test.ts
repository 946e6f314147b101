import { type Activity, createTroupe, defineTool, type Session, scriptedModel, type Turn } from "troupe";
import { describe, expect, test } from "vitest";
import { only, untimed } from "../../support/activities.js";
import {
  EMPTY_OBJECT,
  fixture,
  PATIENT,
  plugin,
  refusalOf,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

/** A tool the test opens like a gate, so that it knows where the turn is. */
function gate() {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const tool = defineTool({
    description: "Waits at the gate",
    inputSchema: EMPTY_OBJECT,
    execute: async () => {
      await opened;
      return "through";
    },
  });
  return { tool, open };
}

const model = scriptedModel({
  turns: [
    [{ toolCalls: [{ tool: "gate", args: {} }] }, { text: "first answer" }, { text: "second answer" }],
    [{ text: "later" }],
  ],
});

async function reach(turn: Turn, type: Activity["type"]): Promise<void> {
  for await (const activity of turn) if (activity.type === type) return;
}
const userTexts = async (session: Session) => {
  const { messages } = await session.query<{ messages: string[] }>("conversation");
  return messages;
};
const plugins = [{ module: plugin("conversation"), ...PATIENT }];

describe("an input that is said into a running turn", () => {
  // turn §8.27
  test("is delivered at the next checkpoint as one plain user message, and told once", async () => {
    const { tool, open } = gate();
    const troupe = await startTroupe({ sessionWorkers: 1, tools: { gate: tool }, model, plugins });
    const session = await troupe.session("s");
    const turn = session.turn("go");
    const seen: Activity[] = [];
    const reading = (async () => {
      for await (const activity of turn) seen.push(activity);
    })();
    await until("the tool runs", () => seen.some(({ type }) => type === "tool_call_started"));
    const input = await session.steer("Be quick.");
    expect(input.waitsFor).toEqual({ kind: "active_turn", turnId: "t1", boundary: "after_work" });
    expect(await session.inputs()).toEqual([input]);
    open();
    await reading;
    expect(untimed(only(seen, "inputs_accepted"))).toEqual([{ type: "inputs_accepted", inputIds: [input.id] }]);
    expect(await session.inputs()).toEqual([]);
    expect(await userTexts(session)).toEqual(["go", "Be quick."]);
  });

  test("for the end of the turn waits until the model has its answer, and reopens the turn", async () => {
    const { tool, open } = gate();
    const troupe = await startTroupe({ sessionWorkers: 1, tools: { gate: tool }, model, plugins });
    const session = await troupe.session("s");
    const turn = session.turn("go");
    await reach(turn, "tool_call_started");
    await session.steer("Anything else?", { boundary: "before_completion" });
    open();
    const result = await turn;
    expect(result.modelCalls).toBe(3);
    expect(result.text).toBe("second answer");
  });

  // turn §8.29
  test("goes on waiting when a checkpoint hook ends the turn, and begins the next", async () => {
    const { tool, open } = gate();
    const troupe = await startTroupe({
      sessionWorkers: 1,
      tools: { gate: tool },
      model,
      plugins: [...plugins, { module: plugin("scriptable"), options: { checkpoint: "abort" }, ...PATIENT }],
    });
    const session = await troupe.session("s");
    const turn = session.turn("go");
    await reach(turn, "tool_call_started");
    await session.steer("Wait for me.");
    open();
    expect((await turn).outcome).toMatchObject({ reason: "plugin_abort" });
    // The next turn begins by itself with it, and is ended by the same hook.
    await until("the next turn is stored", async () => (await session.view()).turnIndex === 2);
    expect(await userTexts(session)).toEqual(["go", "Wait for me."]);
  });

  test("is said once under one key, and conflicts with another text", async () => {
    const { tool, open } = gate();
    const troupe = await startTroupe({ sessionWorkers: 1, tools: { gate: tool }, model, plugins });
    const session = await troupe.session("s");
    const turn = session.turn("go");
    await reach(turn, "tool_call_started");
    const first = await session.steer("Once.", { key: "k" });
    expect(await session.steer("Once.", { key: "k" })).toEqual(first);
    expect((await refusalOf(session.steer("Twice.", { key: "k" }))).code).toBe("input_key_conflict");
    open();
    await turn;
    expect(await userTexts(session)).toEqual(["go", "Once."]);
  });

  test("can be taken back until a turn has it", async () => {
    const { tool, open } = gate();
    const troupe = await startTroupe({ sessionWorkers: 1, tools: { gate: tool }, model, plugins });
    const session = await troupe.session("s");
    const turn = session.turn("go");
    await reach(turn, "tool_call_started");
    await session.steer("Never mind.", { key: "k" });
    expect(await session.cancelInput("k")).toBe("cancelled");
    expect(await session.cancelInput("k")).toBe("not_found");
    open();
    await turn;
    expect(await userTexts(session)).toEqual(["go"]);
  });
});

describe("an input that waits for the next turn", () => {
  test("begins one by itself, together with what waits beside it", async () => {
    const { tool, open } = gate();
    const troupe = await startTroupe({ sessionWorkers: 1, tools: { gate: tool }, model, plugins });
    const session = await troupe.session("s");
    const turn = session.turn("go");
    await reach(turn, "tool_call_started");
    await session.enqueue("one");
    await session.enqueue("two");
    open();
    await turn;
    await until("the queued turn is stored", async () => (await session.view()).turnIndex === 2);
    expect(await userTexts(session)).toEqual(["go", "one\n\ntwo"]);
    expect(await session.inputs()).toEqual([]);
  });

  test("comes behind turns that were asked for", async () => {
    const { tool, open } = gate();
    const troupe = await startTroupe({ sessionWorkers: 1, tools: { gate: tool }, model, plugins });
    const session = await troupe.session("s");
    const first = session.turn("go");
    await reach(first, "tool_call_started");
    await session.enqueue("queued");
    const second = session.turn("asked");
    open();
    await Promise.all([first, second]);
    await until("the queued turn is stored", async () => (await session.view()).turnIndex === 3);
    expect(await userTexts(session)).toEqual(["go", "asked", "queued"]);
  });

  test("waits again when its turn is refused, and is not tried in a circle", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("scriptable"), options: { beforeTurn: "throw" }, ...PATIENT }],
    });
    const session = await troupe.session("s");
    const { id } = await session.enqueue("patience");
    await until("it was tried", async () => {
      const { hooks } = await troupe.stats();
      return hooks["plugin_hook.before_turn.test.scriptable"]?.count === 1;
    });
    await until("it waits again", async () => (await session.inputs()).length === 1);
    expect((await session.inputs())[0]?.id).toBe(id);
    expect((await troupe.stats()).hooks["plugin_hook.before_turn.test.scriptable"]?.count).toBe(1);
  });

  test("survives the process, and begins its turn when the session is opened again", async () => {
    const path = await tempFolder();
    const options = { sessionWorkers: 1, store: { path }, plugins, model: fixture("models/told.mjs") };
    const first = await createTroupe({
      ...options,
      plugins: [...plugins, { module: plugin("scriptable"), options: { beforeTurn: "throw" } }],
    });
    await (await first.session("s")).enqueue("still here");
    await first.kill({ sessionWorker: 0 });
    await first.close();
    const second = await startTroupe({ ...options, model });
    const session = await second.session("s");
    await until("the queued turn is stored", async () => (await session.view()).turnIndex === 1);
    expect(await userTexts(session)).toEqual(["still here"]);
  });

  test("is its session's own: a fork does not have it", async () => {
    const { tool, open } = gate();
    const troupe = await startTroupe({ sessionWorkers: 1, tools: { gate: tool }, model, plugins });
    const session = await troupe.session("s");
    const turn = session.turn("go");
    await reach(turn, "tool_call_started");
    await session.enqueue("mine");
    const child = await session.fork({ id: "child" });
    expect(await child.inputs()).toEqual([]);
    open();
    await turn;
  });
});
