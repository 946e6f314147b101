import { EventEmitter, once } from "node:events";
import {
  type Activity,
  defineTool,
  type Observed,
  type PluginEntry,
  pendingTool,
  type Session,
  scriptedModel,
} from "troupe";
import { describe, expect, test } from "vitest";
import { EMPTY_OBJECT, fixture, plugin, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

/** A tool that lets a test do something in the middle of a turn. */
function gate() {
  const events = new EventEmitter();
  const tool = defineTool({
    description: "Waits until it is let through.",
    inputSchema: EMPTY_OBJECT,
    execute: async () => {
      const opened = once(events, "open");
      events.emit("begun");
      await opened;
      return "through";
    },
  });
  return { tool, begun: () => once(events, "begun"), open: () => events.emit("open") };
}

const CHUNKS = Array.from({ length: 5_000 }, (_, n) => `word-${n} `);
const LONG = CHUNKS.join("");

const activityOf = ({ event }: Observed): Activity | undefined =>
  event.type === "activity" ? event.activity : undefined;
const textOf = (seen: readonly Observed[]) =>
  seen.map(activityOf).reduce((text, activity) => text + (activity?.type === "text_delta" ? activity.text : ""), "");
/** How text is cut means nothing: neighbouring deltas count once. */
const typesOf = (seen: readonly Observed[]) =>
  seen
    .map(({ event }) => (event.type === "activity" ? event.activity.type : event.type))
    .filter((type, at, all) => type !== "text_delta" || all[at - 1] !== type);

/** Reads until a turn is stored. */
async function readTurn(session: Session, options: Parameters<Session["observe"]>[0] = { from: "turn" }) {
  const seen: Observed[] = [];
  for await (const observed of session.observe(options)) {
    seen.push(observed);
    if (observed.event.type === "committed" || observed.event.type === "refused") break;
  }
  return seen;
}

describe("a page that is reloaded in the middle of a turn", () => {
  const start = async (chunks: readonly string[] = ["Let me ", "look. "], plugins: readonly PluginEntry[] = []) => {
    const { tool, ...held } = gate();
    const model = scriptedModel({
      turns: [[{ chunks, toolCalls: [{ tool: "hold", args: {} }] }, { chunks: ["It is ", "done."] }]],
    });
    const troupe = await startTroupe({ sessionWorkers: 1, model, plugins, tools: { hold: tool } });
    return { troupe, session: await troupe.session("s"), ...held };
  };

  test("sees the turn from its beginning, and then how it goes on and ends", async () => {
    const { session, begun, open } = await start();
    const holding = begun();
    const turn = session.turn("go");
    await holding;
    const reading = readTurn(session);
    await session.view();
    open();
    const seen = await reading;
    expect(typesOf(seen)).toEqual([
      "turn_started",
      "model_call_started",
      "text_delta",
      "model_call_finished",
      "tool_call_started",
      "tool_call_finished",
      "model_call_started",
      "text_delta",
      "model_call_finished",
      "turn_finished",
      "committed",
    ]);
    expect(textOf(seen)).toBe("Let me look. It is done.");
    expect(new Set(seen.map(({ event }) => ("turnId" in event ? event.turnId : event.type)))).toEqual(
      new Set(["t1", "committed"]),
    );
    await turn;
  });

  test("reads what the turn has shown, since when it runs and at which step, and nothing of it between turns", async () => {
    const { session, begun, open } = await start();
    const before = Date.now();
    const holding = begun();
    const turn = session.turn("go");
    await holding;
    const { running } = await session.view();
    expect(running).toEqual({
      turnId: "t1",
      turnIndex: 1,
      since: expect.any(Number),
      input: "go",
      step: 1,
      text: "Let me look. ",
      pending: [],
    });
    expect(running?.since).toBeGreaterThanOrEqual(before);
    expect(running?.since).toBeLessThanOrEqual(Date.now());
    open();
    await turn;
    expect((await session.view()).running).toBeNull();
  });

  test("has the whole of a long answer that one reader has followed word by word", async () => {
    const { session, begun, open } = await start(CHUNKS);
    const first = readTurn(session, {});
    await session.view();
    const holding = begun();
    const turn = session.turn("go");
    await holding;
    const second = await readSome(session, "tool_call_started");
    expect(textOf(second)).toBe(LONG);
    expect(second.length).toBeLessThan(3_000);
    open();
    await turn;
    const seen = await first;
    expect(textOf(seen)).toBe(`${LONG}It is done.`);
    // From any place the first reader was at, another one gets the rest, once.
    const places = seen.filter(({ event }) => event.type === "activity" && event.activity.type === "text_delta");
    for (const at of [0, 1, 17, Math.floor(places.length / 2), places.length - 1]) {
      const { cursor } = places[at] as Observed;
      const rest = await readTurn(session, { from: cursor });
      expect(textOf(places.slice(0, at + 1)) + textOf(rest)).toBe(`${LONG}It is done.`);
    }
  });

  test("just after its end, sees the end", async () => {
    const { session, begun, open } = await start();
    const holding = begun();
    const turn = session.turn("go");
    await holding;
    open();
    const result = await turn;
    const seen = await readTurn(session);
    expect(typesOf(seen)).toEqual(["turn_finished", "committed"]);
    expect(activityOf(seen[0] as Observed)).toEqual({ type: "turn_finished", result, at: expect.any(Number) });
  });

  test("begins with what happens now when no turn ever ran", async () => {
    const { session, begun, open } = await start();
    const reading = readTurn(session);
    await session.view();
    const holding = begun();
    const turn = session.turn("go");
    await holding;
    open();
    await turn;
    expect(typesOf(await reading)[0]).toBe("turn_started");
  });

  test("knows the turn's id also without asking for what came before", async () => {
    const { session, begun, open } = await start();
    const holding = begun();
    const turn = session.turn("go");
    await holding;
    const reading = readTurn(session, { from: "now" });
    await session.view();
    open();
    await turn;
    const [first] = await reading;
    expect(first?.event).toMatchObject({ type: "activity", turnId: "t1", activity: { type: "tool_call_finished" } });
  });

  test("sees that the turn was refused", async () => {
    const { session, begun, open } = await start(undefined, [
      { module: plugin("scriptable"), options: { afterTurn: "throw" } },
    ]);
    const holding = begun();
    const turn = session.turn("go");
    await holding;
    const reading = readTurn(session);
    await session.view();
    open();
    const { code, message } = await refusalOf(turn);
    expect(code).toBe("plugin_finalize_turn");
    expect((await reading).at(-1)?.event).toEqual({ type: "refused", turnId: "t1", code, message });
  });
});

/** Reads from the turn's beginning up to an activity. */
async function readSome(session: Session, last: Activity["type"]): Promise<Observed[]> {
  const seen: Observed[] = [];
  for await (const observed of session.observe({ from: "turn" })) {
    seen.push(observed);
    if (activityOf(observed)?.type === last) break;
  }
  return seen;
}

test("a call that waits for a person is in the view of whoever opens the page later", async () => {
  const troupe = await startTroupe({
    sessionWorkers: 1,
    model: scriptedModel([{ toolCalls: [{ tool: "pay", args: { amount: 3 } }] }, { text: "Paid." }]),
    tools: {
      pay: defineTool({
        description: "Pays.",
        inputSchema: { type: "object" },
        execute: () => pendingTool({ announcement: { amount: 3 } }),
      }),
    },
  });
  const session = await troupe.session("s");
  const turn = session.turn("pay");
  await until("it waits", async () => ((await session.view()).running?.pending.length ?? 0) > 0);
  const [call] = (await session.view()).running?.pending ?? [];
  expect(call).toMatchObject({ toolName: "pay", announcement: { amount: 3 }, at: expect.any(Number) });
  await troupe.completeTool(call?.key ?? "", { value: "yes" });
  await turn;
});

test.each([false, true])(
  "a call that was given its yes waits in no view any more while its tool still runs (journal: %s)",
  async (journal) => {
    const { tool, begun, open } = gate();
    const troupe = await startTroupe({
      sessionWorkers: 1,
      journal,
      model: scriptedModel([{ toolCalls: [{ tool: "pay" }, { tool: "ask" }] }, { text: "Paid." }]),
      tools: {
        pay: { ...tool, approval: true as const },
        ask: { description: "Asks.", inputSchema: EMPTY_OBJECT, execute: () => pendingTool() },
      },
    });
    const session = await troupe.session("s");
    const waiting = async () => ((await session.view()).running?.pending ?? []).map(({ toolName }) => toolName);
    const turn = session.turn("pay");
    await until("both wait", async () => (await waiting()).length === 2);
    const pending = (await session.view()).running?.pending ?? [];
    const keyOf = (name: string) => pending.find(({ toolName }) => toolName === name)?.key ?? "";
    const paying = begun();
    await troupe.approve(keyOf("pay"));
    await paying;
    expect(await waiting()).toEqual(["ask"]);
    if (journal) {
      const again = begun();
      await troupe.kill({ sessionWorker: 0 });
      await again;
      expect(await waiting()).toEqual(["ask"]);
    }
    open();
    await troupe.completeTool(keyOf("ask"), { value: "yes" });
    expect((await turn).text).toBe("Paid.");
  },
);

test("a turn that was taken up after its worker died is shown from its beginning, with the answers it paid for", async () => {
  const { tool, begun, open } = gate();
  const troupe = await startTroupe({
    sessionWorkers: 1,
    store: { path: await tempFolder() },
    model: scriptedModel([
      { reasoning: "Hm.", chunks: ["Let me ", "look. "], toolCalls: [{ tool: "hold", args: {} }] },
      { text: "It is done." },
    ]),
    tools: { hold: tool },
  });
  const session = await troupe.session("s");
  const held = begun();
  const turn = session.turn("go");
  await held;
  const { running } = await session.view();
  const again = begun();
  const killed = Date.now();
  await troupe.kill({ sessionWorker: 0 });
  await again;
  const resumed = (await session.view()).running;
  // By the row the turn's beginning was written in.
  expect(resumed).toEqual({ ...running, since: expect.any(Number) });
  expect(resumed?.since).toBeLessThanOrEqual(killed);
  const seen = await readSome(session, "tool_call_started");
  expect(typesOf(seen)).toEqual([
    "turn_started",
    "model_call_started",
    "reasoning_delta",
    "text_delta",
    "model_call_finished",
    "tool_call_started",
  ]);
  expect(textOf(seen)).toBe("Let me look. ");
  open();
  expect((await turn).text).toBe("It is done.");
});

test("watching ends cleanly with its signal, before it began and while it waits", async () => {
  const troupe = await startTroupe({ sessionWorkers: 1 });
  const session = await troupe.session("s");
  const stop = new AbortController();
  const waiting = session.observe({ signal: stop.signal }).next();
  await session.view();
  stop.abort();
  expect(await waiting).toEqual({ done: true, value: undefined });
  expect(await session.observe({ signal: AbortSignal.abort() }).next()).toEqual({ done: true, value: undefined });
  expect((await session.turn("hi")).text).toBe("You said: hi");
});

test.each([
  [{ from: "turn", cursor: "x" }, "invalid_observe", /give one of them/],
  [{ form: "turn" }, "invalid_observe", /Did you mean "from"/],
  [{ signal: {} }, "invalid_observe", /signal must be an AbortSignal/],
  [{ children: "yes" }, "invalid_observe", /children is true or false/],
  [null, "invalid_observe", /its options are an object/],
  [{ from: 7 }, "cursor_invalid", /no cursor of session s/],
])("watching with %j is refused at the call with %s", async (options, code, message) => {
  const troupe = await startTroupe({ sessionWorkers: 1 });
  const session = await troupe.session("s");
  expect(() => session.observe(options as Parameters<Session["observe"]>[0])).toThrow(
    expect.objectContaining({ code, message: expect.stringMatching(message) }),
  );
});

describe("a turn's result, asked for by its id", () => {
  test("is waited for while the turn runs, and there when it is over", async () => {
    const { tool, begun, open } = gate();
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model: scriptedModel([{ toolCalls: [{ tool: "hold", args: {} }] }, { text: "Done." }]),
      tools: { hold: tool },
    });
    const session = await troupe.session("s");
    const held = begun();
    const turn = session.turn("go");
    await held;
    const asked = session.turnResult("t1");
    const stop = new AbortController();
    const left = session.turnResult("t1", { signal: stop.signal });
    await session.view();
    stop.abort();
    expect((await refusalOf(left)).code).toBe("aborted");
    open();
    const result = await turn;
    expect(await asked).toEqual(result);
    expect(await session.turnResult("t1")).toEqual(result);
  });

  test("of a turn that a queue began is there too, and of an unknown one refused", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1 });
    const session = await troupe.session("s");
    await session.enqueue("hello");
    await until("it is stored", async () => (await session.view()).turnIndex === 1);
    expect((await session.turnResult("t1")).text).toBe("You said: hello");
    for (const unknown of ["t2", "nonsense", "t0"])
      expect((await refusalOf(session.turnResult(unknown))).code).toBe("turn_unknown");
  });

  test("of a named turn is known to the next process; of another one it says that it is forgotten", async () => {
    const store = { path: await tempFolder() };
    const first = await startTroupe({ sessionWorkers: 1, store });
    const session = await first.session("s");
    const named = await session.turn("one", { key: "k" });
    await session.turn("two");
    await first.close();
    const second = await startTroupe({ sessionWorkers: 1, store });
    const again = await second.session("s");
    expect(await again.turnResult("t1")).toEqual(named);
    expect(await refusalOf(again.turnResult("t2"))).toMatchObject({
      code: "turn_result_forgotten",
      details: { sessionId: "s", turnId: "t2", turnIndex: 2 },
    });
  });

  test("of a turn that is refused is the refusal", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model: fixture("models/show-prompt.mjs"),
      plugins: [{ module: plugin("scriptable"), options: { beforeTurn: "hang" }, deadlineMs: 300 }],
    });
    const session = await troupe.session("s");
    const turn = session.turn("go");
    await until("it runs", async () => (await session.view()).running !== null);
    const asked = refusalOf(session.turnResult("t1"));
    const { code } = await refusalOf(turn);
    expect((await asked).code).toBe(code);
  });
});

test("arguments are shown while the model writes them, under the id of the call they become", async () => {
  const args = { city: "Oslo", days: Array.from({ length: 40 }, (_, n) => n) };
  const troupe = await startTroupe({
    sessionWorkers: 1,
    model: scriptedModel([{ toolCalls: [{ tool: "weather", args, streamArgs: true }] }, { text: "Rain." }]),
  });
  const session = await troupe.session("s");
  let written = "";
  const ids = new Set<string>();
  for await (const activity of session.turn("hi")) {
    if (activity.type === "tool_input_delta") {
      written += activity.text;
      ids.add(activity.callId);
    }
    if (activity.type !== "tool_call_started") continue;
    expect(JSON.parse(written)).toEqual(activity.args);
    expect([...ids]).toEqual([activity.callId]);
  }
});

test("a list of chats that wait for a person is one call, and an id is known without opening it", async () => {
  const store = { path: await tempFolder() };
  const troupe = await startTroupe({
    sessionWorkers: 1,
    store,
    model: scriptedModel([{ text: "Hello." }]),
    models: { pays: scriptedModel([{ toolCalls: [{ tool: "pay", args: {} }] }, { text: "Paid." }]) },
    tools: {
      pay: defineTool({ description: "Pays.", inputSchema: EMPTY_OBJECT, execute: () => pendingTool() }),
    },
  });
  for (const id of ["chat/1", "chat/2", "other"]) await (await troupe.session(id)).turn("hi");
  const turn = (await troupe.session("chat/2")).turn("pay", { model: "pays" });
  const waiting = () => troupe.listSessions({ prefix: "chat/", state: "waiting", orderBy: "changed" });
  await until("it waits", async () => (await waiting()).sessions.length > 0);
  expect((await waiting()).sessions.map(({ id, state }) => `${id} ${state}`)).toEqual(["chat/2 waiting"]);
  expect(await Promise.all(["chat/1", "chat/3"].map((id) => troupe.has(id)))).toEqual([true, false]);
  await expect(troupe.has("")).rejects.toMatchObject({ code: "invalid_session_id" });
  const { pending } = (await (await troupe.session("chat/2")).view()).running ?? { pending: [] };
  await troupe.completeTool(pending[0]?.key ?? "", { value: "yes" });
  await turn;
  expect((await waiting()).sessions).toEqual([]);
});

test("messages and activities say when they were", async () => {
  const troupe = await startTroupe({ sessionWorkers: 1 });
  const session = await troupe.session("s");
  const before = Date.now();
  const times: number[] = [];
  for await (const { at } of session.turn("hi")) times.push(at);
  await session.append({ nodes: [{ kind: "message", message: { role: "system", text: "Later." } }] });
  const after = Date.now();
  const said = (await session.messages()).map(({ at }) => at ?? 0);
  expect(said).toHaveLength(3);
  for (const all of [times, said]) {
    expect(all).toEqual([...all].sort((a, b) => a - b));
    expect(all[0]).toBeGreaterThanOrEqual(before);
    expect(all.at(-1)).toBeLessThanOrEqual(after);
  }
});
