import { type Activity, createTroupe, type Session, scriptedModel } from "troupe";
import { describe, expect, test } from "vitest";
import {
  collect,
  EMPTY_OBJECT,
  fixture,
  PATIENT,
  plugin,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

const stopped = (message: string) => ({ type: "stopped", reason: "cancelled", code: "cancelled", message });
const historyOf = async (session: Session) =>
  (await session.query<[id: string, role: string, text: string][]>("test.lingers.history")).map(
    ([id, role, text]) => `${id} ${role}: ${text}`,
  );
const LINGERS = { module: new URL(`${plugin("lingers")}?id=test.lingers`), tier: "inline" } as const;
const OBEYS = fixture("models/obeys.mjs");

describe("cancelling a turn", () => {
  // turn §8.85
  test("that has not begun stores it with its input alone, and no model is called", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, plugins: [LINGERS] });
    const session = await troupe.session("s");
    const turn = session.turn("hi");
    turn.cancel("Never mind.");
    const activities = await collect(turn);
    expect(await turn).toMatchObject({ outcome: stopped("Never mind."), text: "", modelCalls: 0, revision: 1 });
    expect(activities.map(({ type }) => type)).toEqual(["turn_started", "turn_finished"]);
    expect(await historyOf(session)).toEqual(["t1.0 user: hi"]);
    expect((await session.turn("again")).text).toBe("You said: again");
  });

  // turn §8.85
  test("twice keeps the first reason", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS });
    const session = await troupe.session("s");
    const turn = session.turn("say a|<hang>");
    for await (const { type } of turn) {
      if (type !== "text_delta") continue;
      turn.cancel("first");
      turn.cancel("second");
    }
    expect((await turn).outcome).toEqual(stopped("first"));
  });

  test("twice keeps the first reason also while its worker is being replaced", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1 });
    const session = await troupe.session("s");
    await troupe.kill({ sessionWorker: 0 });
    const turn = session.turn("hi");
    await Promise.resolve();
    turn.cancel("first");
    turn.cancel("second");
    expect((await turn).outcome).toEqual(stopped("first"));
  });

  // turn §8.85 turn §8.90
  test("that has ended changes nothing, and it can be awaited and read for ever after", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, plugins: [LINGERS] });
    const session = await troupe.session("s");
    const turn = session.turn("hi");
    const result = await turn;
    turn.cancel();
    expect(await turn).toBe(result);
    expect(await collect(turn)).toEqual([{ type: "turn_finished", result, at: expect.any(Number) }]);
    expect(result.outcome).toEqual({ type: "finished", text: "You said: hi" });
    expect((await session.turn("again")).outcome.type).toBe("finished");
    expect(await session.query("test.lingers.told")).toEqual([
      ["decided", "t1", "finished"],
      ["stored", "t1", "finished", 1],
      ["decided", "t2", "finished"],
      ["stored", "t2", "finished", 2],
    ]);
  });

  // turn §8.50
  test("in the middle of its answer leaves nothing of it: neither in the result nor in the history", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS, plugins: [LINGERS] });
    const session = await troupe.session("s");
    const turn = session.turn("say Half an |<hang>");
    const seen: string[] = [];
    for await (const activity of turn) {
      if (activity.type !== "text_delta") continue;
      seen.push(activity.text);
      turn.cancel();
    }
    const { text, modelCalls, outcome } = await turn;
    expect([seen, text, modelCalls, outcome.type]).toEqual([["Half an "], "", 0, "stopped"]);
    expect(await historyOf(session)).toEqual(["t1.0 user: say Half an |<hang>"]);
    // The next answer is read without the half one before it.
    const { conversation } = JSON.parse((await session.turn("show")).text);
    expect(conversation).toEqual([
      ["user", "say Half an |<hang>"],
      ["user", "show"],
    ]);
  });

  // turn §8.86
  test("has one reason: what was streamed, what is stored and what plugins are told", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model: OBEYS,
      plugins: [{ module: plugin("tells-ends"), ...PATIENT }],
    });
    const session = await troupe.session("s");
    const turn = session.turn("say a|<hang>");
    const seen: Activity[] = [];
    for await (const activity of turn) {
      seen.push(activity);
      if (activity.type === "text_delta") turn.cancel("Somebody left.");
    }
    const { outcome } = await turn;
    expect(outcome).toEqual(stopped("Somebody left."));
    expect(seen.at(-1)).toMatchObject({ type: "turn_finished", result: { outcome } });
    expect(await session.query("ends")).toEqual({ afterTurn: outcome, turnFinalized: outcome, turnPersisted: outcome });
  });

  // turn §8.88
  test("that waits behind another one leaves that one alone, and is stored in its place", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS, plugins: [LINGERS] });
    const [session, other] = await Promise.all([troupe.session("s"), troupe.session("other")]);
    const first = session.turn("say a|<hang>");
    for await (const { type } of first) if (type === "text_delta") break;
    const second = session.turn("say two");
    const third = session.turn("say three");
    const neighbour = other.turn("say b|<hang>");
    second.cancel("Not this one.");
    // By now the worker knows; nothing has ended by it.
    expect((await session.view()).running).not.toBeNull();
    first.cancel("Now this one.");
    expect([(await first).outcome, (await second).outcome]).toEqual([
      stopped("Now this one."),
      stopped("Not this one."),
    ]);
    expect((await third).text).toBe("three");
    expect(await historyOf(session)).toEqual([
      "t1.0 user: say a|<hang>",
      "t2.0 user: say two",
      "t3.0 user: say three",
      "t3.1 assistant: three",
    ]);
    expect((await other.view()).running).not.toBeNull();
    neighbour.cancel();
    await neighbour;
  });
});

describe.each(["inline", "worker"] as const)("cancelling a turn that is in a hook of a plugin (%s)", (tier) => {
  const START = {
    sessionWorkers: 1,
    model: OBEYS,
    tools: { echo: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => "e" } },
    plugins: [LINGERS, { module: plugin("gate"), tier, deadlineMs: 600_000, ...PATIENT }],
  };
  const CALL = ["t1.1 assistant: tool_call"];
  // Where the hook is, and what is in the history behind the input: nothing that is not whole.
  const HOOKS: [hook: string, outcome: "cancelled" | "finished", history: string[]][] = [
    ["turnContextTransform", "cancelled", []],
    ["beforeTurn", "cancelled", []],
    ["toolCatalogContributor", "cancelled", []],
    ["promptContributor", "cancelled", []],
    ["assistantResponse", "cancelled", []],
    ["streamFinished", "cancelled", []],
    ["beforeToolCall", "cancelled", [...CALL, "t1.2 tool: cut"]],
    ["afterToolCall", "cancelled", [...CALL, "t1.2 tool: cut"]],
    ["toolResultProjector", "cancelled", [...CALL, "t1.2 tool: e"]],
    ["checkpoint", "cancelled", [...CALL, "t1.2 tool: e"]],
    // The turn is decided: it is too late.
    ["afterTurn", "finished", [...CALL, "t1.2 tool: e", "t1.3 assistant: done"]],
    ["turnFinalized", "finished", [...CALL, "t1.2 tool: e", "t1.3 assistant: done"]],
    ["turnPersisted", "finished", [...CALL, "t1.2 tool: e", "t1.3 assistant: done"]],
  ];

  test("ends it as long as it is not decided, and the next turn works", async () => {
    const troupe = await startTroupe(START);
    const neighbour = await troupe.session("neighbour");
    for (const [hook, outcome, lines] of HOOKS) {
      const session = await troupe.session(hook);
      const turn = session.turn("call echo\nsay done");
      await until(`the turn is in ${hook}`, () => session.query<boolean>("gate.reached"));
      turn.cancel();
      // Said behind it on the same lane: when this is answered, the cancellation has arrived.
      await neighbour.turn("say x");
      await session.query("gate.open");
      const { outcome: ended, revision } = await turn;
      expect([hook, ended.type === "stopped" ? ended.reason : ended.type, revision]).toEqual([hook, outcome, 1]);
      const history = (await historyOf(session)).map((line) => line.replace(/\[Tool execution cancelled\].*/s, "cut"));
      expect([hook, ...history]).toEqual([hook, "t1.0 user: call echo\nsay done", ...lines]);
      expect((await session.turn("say next")).text).toBe("next");
    }
  });
});

describe("closing the runtime", () => {
  // turn §8.88
  test("cancels the turn that runs and all that wait behind it, in every session, and each is stored", async () => {
    const path = await tempFolder();
    // With a journal they would be kept for the next runtime instead.
    const options = { sessionWorkers: 2, store: { path }, journal: false, model: OBEYS, plugins: [LINGERS] };
    const troupe = await createTroupe({ ...options, drainMs: 1 });
    const sessions = await Promise.all(["a", "b", "c"].map((id) => troupe.session(id)));
    const turns = sessions.flatMap((session) => [1, 2, 3].map((n) => session.turn(`say ${n}|<hang>`)));
    await Promise.all(
      [0, 3, 6].map(async (n) => {
        for await (const { type } of turns[n] ?? []) if (type === "text_delta") return;
      }),
    );
    await troupe.close();
    const results = await Promise.all(turns);
    expect(results.map(({ sessionId, turnId, outcome }) => [sessionId, turnId, outcome])).toEqual(
      ["a", "b", "c"].flatMap((id) => ["t1", "t2", "t3"].map((turn) => [id, turn, stopped("The runtime is closing.")])),
    );
    const again = await startTroupe(options);
    for (const id of ["a", "b", "c"])
      expect(await historyOf(await again.session(id))).toEqual([1, 2, 3].map((n) => `t${n}.0 user: say ${n}|<hang>`));
  });

  // turn §8.30
  test.each([
    ["keeps a turn that an input began by itself and that does not end: it goes on the next time", true],
    ["without a journal refuses such a turn: its input begins it again the next time", false],
  ])("%s", async (_, journal) => {
    const path = await tempFolder();
    const options = { sessionWorkers: 1, store: { path }, journal, plugins: [LINGERS] };
    const troupe = await createTroupe({ ...options, drainMs: 1, model: OBEYS });
    const session = await troupe.session("s");
    await session.enqueue("say x|<hang>");
    await until("its turn runs", async () => (await session.view()).running !== null);
    await troupe.close();
    const again = await startTroupe(options);
    const reopened = await again.session("s");
    await until("its turn is stored", async () => (await reopened.view()).turnIndex === 1);
    expect(await historyOf(reopened)).toEqual(["t1.0 user: say x|<hang>", "t1.1 assistant: You said: say x|<hang>"]);
    expect(await reopened.inputs()).toEqual([]);
  });

  test("lets a turn that an input began by itself finish", async () => {
    const path = await tempFolder();
    const options = { sessionWorkers: 1, store: { path }, plugins: [LINGERS] };
    const model = scriptedModel({ turns: [[{ text: "in time", delayMs: 50 }]] });
    const troupe = await createTroupe({ ...options, model });
    const session = await troupe.session("s");
    await session.enqueue("hi");
    await until("its turn runs", async () => (await session.view()).running !== null);
    await troupe.close();
    const again = await startTroupe(options);
    expect(await historyOf(await again.session("s"))).toEqual(["t1.0 user: hi", "t1.1 assistant: in time"]);
  });

  test("settles every turn once, whatever it meets", async () => {
    const troupe = await createTroupe({
      sessionWorkers: 2,
      drainMs: 1,
      model: scriptedModel({ turns: [[{ chunks: ["a", "b", "c"], chunkDelayMs: 2 }]] }),
    });
    const sessions = await Promise.all(Array.from({ length: 20 }, (_, n) => troupe.session(`s${n}`)));
    const turns = sessions.flatMap((session) => [1, 2, 3, 4].map(() => session.turn("hi")));
    await turns[0];
    await troupe.close();
    const settled = await Promise.allSettled(turns);
    const ends = settled.map((end) => {
      if (end.status === "rejected") return end.reason.code;
      return end.value.outcome.type === "stopped" ? end.value.outcome.reason : end.value.outcome.type;
    });
    expect(ends.filter((end) => end !== "finished" && end !== "cancelled")).toEqual([]);
    expect(ends[0]).toBe("finished");
  });
});
