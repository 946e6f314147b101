import { type Activity, createTroupe, defineTool, type Session, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
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

/** What waits for a session, when the turn it waits for goes wrong, is over, or never comes to be stored. */
const LINGERS = { module: new URL(`${plugin("lingers")}?id=test.lingers`), tier: "inline" } as const;
const OBEYS = fixture("models/obeys.mjs");

/** Everything in the history but the texts of the model: who said what, and in which turn. */
const saidIn = async (session: Session) => {
  const history = await session.query<[id: string, role: string, text: string][]>("test.lingers.history");
  return history.filter(([, role]) => role === "user" || role === "system").map(([id, , text]) => `${id} ${text}`);
};
const storedTurns = (session: Session, count: number) =>
  until(`${count} turns are stored`, async () => {
    const { turnIndex, running } = await session.view();
    return turnIndex === count && !running;
  });

/** A tool the test opens like a gate; `reached` resolves when the turn is at it. */
function gate() {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  let arrive: () => void = () => undefined;
  const reached = new Promise<void>((resolve) => {
    arrive = resolve;
  });
  const tool = defineTool({
    description: "Waits at the gate",
    inputSchema: EMPTY_OBJECT,
    execute: async () => {
      arrive();
      await opened;
      return "through";
    },
  });
  return { tool, open, reached };
}

async function atGate(options: TroupeOptions & { readonly scripted?: Readonly<Record<string, string>> } = {}) {
  const { scripted, ...rest } = options;
  const { tool, ...gates } = gate();
  const scriptable = { module: plugin("scriptable"), tier: "inline", options: scripted } as const;
  const troupe = await startTroupe({
    sessionWorkers: 1,
    model: OBEYS,
    tools: { gate: tool },
    plugins: [LINGERS, ...(scripted === undefined ? [] : [scriptable])],
    ...rest,
  });
  return { troupe, session: await troupe.session("s"), ...gates };
}

describe("an input said into a turn", () => {
  // turn §8.28
  test("behind its last model call is what the next turn's first call reads", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model: OBEYS,
      plugins: [LINGERS, { module: plugin("gate"), deadlineMs: 600_000, ...PATIENT }],
    });
    const session = await troupe.session("afterTurn");
    const turn = session.turn("say one");
    await until("the turn has had its last hook called", () => session.query<boolean>("gate.reached"));
    const input = await session.steer("And now?");
    expect(input.waitsFor).toEqual({ kind: "active_turn", turnId: "t1", boundary: "after_work" });
    const seen: Activity[] = [];
    const watching = (async () => {
      for await (const { event } of session.observe()) {
        if (event.type === "activity") seen.push(event.activity);
        if (event.type === "activity" && event.activity.type === "turn_finished" && event.turnId === "t2") return;
      }
    })();
    await session.query("gate.open");
    expect(await turn).toMatchObject({ modelCalls: 1, text: "one" });
    await watching;
    // It began the next turn: it was not put into this one, nor into that one a second time.
    expect(seen.filter(({ type }) => type === "inputs_accepted")).toEqual([]);
    const last = seen.at(-1);
    const { conversation } = JSON.parse(last?.type === "turn_finished" ? last.result.text : "");
    expect(conversation).toEqual([
      ["user", "say one"],
      ["assistant", "one"],
      ["user", "And now?"],
    ]);
    expect(await session.inputs()).toEqual([]);
  });

  // turn §8.30
  test.each([
    ["has taken it", "after_work"],
    ["has not come to it", "before_completion"],
  ] as const)(
    "that %s and is then refused waits for the next turn, and is in the history once",
    async (_, boundary) => {
      const { session, open, reached } = await atGate({ scripted: { afterTurn: "throwOnce" } });
      const turn = session.turn("call gate\nsay done");
      await reached;
      const { id } = await session.steer("Be quick.", { boundary });
      open();
      expect((await refusalOf(turn)).code).toBe("plugin_finalize_turn");
      expect(await session.inputs()).toEqual([{ id, text: "Be quick.", waitsFor: { kind: "next_turn" } }]);
      expect((await session.view()).turnIndex).toBe(0);
      await session.turn("say next");
      await storedTurns(session, 2);
      expect(await saidIn(session)).toEqual(["t1.0 say next", "t2.0 Be quick."]);
      expect(await session.inputs()).toEqual([]);
    },
  );

  // turn §8.30
  test("that is lost with its worker waits for the next one, which begins by itself", async () => {
    const { troupe, session, reached } = await atGate();
    const turn = session.turn("call gate");
    await reached;
    await session.steer("Is anybody there?");
    await troupe.kill({ sessionWorker: 0 });
    expect((await refusalOf(turn)).code).toBe("worker_lost");
    const again = await troupe.session("s");
    await storedTurns(again, 1);
    expect(await saidIn(again)).toEqual(["t1.0 Is anybody there?"]);
    expect(await again.inputs()).toEqual([]);
  });

  // turn §8.31
  test("that has taken it and is then cancelled is stored with it, and it is not said again", async () => {
    const { session, open, reached } = await atGate();
    const turn = session.turn("call gate\nsay a|<hang>");
    await reached;
    await session.steer("Be quick.");
    open();
    for await (const { type } of turn) if (type === "text_delta") turn.cancel("Too slow.");
    expect((await turn).outcome).toMatchObject({ reason: "cancelled" });
    expect(await session.inputs()).toEqual([]);
    await session.turn("say next");
    expect(await saidIn(session)).toEqual(["t1.0 call gate\nsay a|<hang>", "t1.3 Be quick.", "t2.0 say next"]);
    expect((await session.view()).turnIndex).toBe(2);
  });

  // turn §8.31
  test("that is cancelled before it has taken it leaves it for the next", async () => {
    const { session, reached } = await atGate();
    const turn = session.turn("call gate");
    await reached;
    await session.steer("say later");
    turn.cancel();
    expect((await turn).outcome).toMatchObject({ reason: "cancelled" });
    await storedTurns(session, 2);
    expect(await saidIn(session)).toEqual(["t1.0 call gate", "t2.0 say later"]);
  });
});

describe("an input that begins a turn", () => {
  // turn §8.24
  test("which a hook aborts is settled with it: the turn is stored, and not begun again", async () => {
    const path = await tempFolder();
    const options = {
      sessionWorkers: 1,
      store: { path },
      plugins: [LINGERS, { module: plugin("scriptable"), options: { beforeTurn: "abort" }, ...PATIENT }],
    };
    const first = await createTroupe(options);
    const session = await first.session("s");
    await session.enqueue("May I?");
    await storedTurns(session, 1);
    expect([await session.inputs(), await saidIn(session)]).toEqual([[], ["t1.0 May I?"]]);
    expect(await session.query("test.lingers.told")).toEqual([
      ["decided", "t1", "plugin_abort"],
      ["stored", "t1", "plugin_abort", 2],
    ]);
    await first.close();
    const again = await (await startTroupe(options)).session("s");
    expect((await again.view()).turnIndex).toBe(1);
    expect(await again.inputs()).toEqual([]);
  });
});

describe("what is asked of a session one after another", () => {
  // turn §8.33
  test("is done in that order: a change waits for the turns before it, and those behind it for the change", async () => {
    const { session, open, reached } = await atGate();
    const first = session.turn("call gate\nshow");
    await reached;
    const one = session.configure({ instructions: "One." });
    const second = session.turn("show");
    const two = session.configure({ instructions: "Two." });
    const third = session.turn("show");
    // Asked for later than everything else, although it would have to wait for nothing.
    const queued = session.enqueue("show");
    open();
    const systems = await Promise.all([first, second, third].map(async (turn) => JSON.parse((await turn).text).system));
    expect(systems).toEqual(["", "One.", "Two."]);
    await Promise.all([one, two, queued]);
    await storedTurns(session, 4);
    expect(await saidIn(session)).toEqual(["t1.0 call gate\nshow", "t2.0 show", "t3.0 show", "t4.0 show"]);
  });

  // turn §8.33
  test.each(["open", "closed"])("is stored in that order, in a session that is %s when it is asked", async (state) => {
    const troupe = await startTroupe({ sessionWorkers: 1, plugins: [{ module: plugin("notes"), ...PATIENT }] });
    const session = await troupe.session("s");
    if (state === "closed") await session.close();
    const asked = [
      session.command("notes.add", { text: "milk" }),
      session.turn("one"),
      session.configure({ instructions: "Be brief." }),
      session.turn("two"),
      session.append({ nodes: [{ kind: "message", message: { role: "user", text: "by the way" } }] }),
      session.turn("three"),
      session.command("notes.add", { text: "eggs" }),
      session.turn("four"),
    ] as const;
    const [, one, , two, , three, , four] = await Promise.all(asked);
    // Each of them is one write.
    expect([one, two, three, four].map(({ revision }) => revision)).toEqual([2, 4, 6, 8]);
  });

  // turn §8.33
  test("is no turn when nothing but changes are asked for", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [LINGERS, { module: plugin("notes"), ...PATIENT }],
    });
    const session = await troupe.session("s");
    await Promise.all([
      session.configure({ instructions: "One." }),
      session.command("notes.add", { text: "milk" }),
      session.append({ nodes: [{ kind: "message", message: { role: "user", text: "by the way" } }] }),
    ]);
    expect(await session.view()).toMatchObject({ turnIndex: 0, running: null, messageCount: 1 });
    expect(await session.query("test.lingers.told")).toBeUndefined();
  });
});

describe("a turn that is stored and whose last hooks still run", () => {
  const START = {
    sessionWorkers: 1,
    plugins: [LINGERS, { module: plugin("gate"), deadlineMs: 600_000, ...PATIENT }],
  };

  // turn §8.40
  test("is part of the session already, once", async () => {
    const troupe = await startTroupe(START);
    const session = await troupe.session("turnPersisted");
    const turn = session.turn("hi");
    // Whoever watches may leave: that changes nothing.
    for await (const { type } of turn) if (type === "model_call_finished") break;
    await until("the turn is stored", () => session.query<boolean>("gate.reached"));
    expect(await session.view()).toMatchObject({
      turnIndex: 1,
      revision: 1,
      messageCount: 2,
      running: { turnIndex: 1 },
    });
    const child = await session.fork({ id: "child" });
    await child.turn("hi");
    expect(await child.view()).toMatchObject({ turnIndex: 2, messageCount: 4 });
    await session.query("gate.open");
    expect(await turn).toMatchObject({ outcome: { type: "finished" }, revision: 1 });
    expect(await session.turn("again")).toMatchObject({ turnIndex: 2, revision: 2 });
  });

  // turn §8.40
  test("is there when its session is opened again, although its caller never heard of it", async () => {
    const troupe = await startTroupe(START);
    const session = await troupe.session("turnPersisted");
    const turn = session.turn("hi");
    await until("the turn is stored", () => session.query<boolean>("gate.reached"));
    await troupe.kill({ sessionWorker: 0 });
    expect((await refusalOf(turn)).code).toBe("worker_lost");
    await session.query("gate.open");
    expect(await session.view()).toMatchObject({ turnIndex: 1, revision: 1, messageCount: 2, running: null });
    expect(await saidIn(session)).toEqual(["t1.0 hi"]);
  });
});
