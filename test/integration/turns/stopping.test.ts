import { type Activity, pendingTool, type Session, type Troupe, type Turn } from "troupe";
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

const OBEYS = fixture("models/obeys.mjs");
const HALTS = fixture("models/halts.mjs");
const LOOK = { look: { description: "Looks", inputSchema: EMPTY_OBJECT, execute: () => "seen" } };
const stopped = (message: string) => ({ type: "stopped", reason: "cancelled", code: "cancelled", message });

/** Resolves when the turn has told of this. */
async function shows(turn: Turn, type: Activity["type"]): Promise<void> {
  for await (const activity of turn) if (activity.type === type) return;
  throw new Error(`It never told of ${type}.`);
}

/** The next activity of this type in a session, whoever asked for its turn. */
async function sees<T extends Activity["type"]>(session: Session, type: T): Promise<Extract<Activity, { type: T }>> {
  for await (const { event } of session.observe())
    if (event.type === "activity" && event.activity.type === type) return event.activity as never;
  throw new Error(`It never told of ${type}.`);
}

const textsOf = async (session: Session) =>
  (await session.messages()).map(({ role, parts, interrupted }) =>
    [role, ...parts.map((part) => ("text" in part ? part.text : part.type)), ...(interrupted ? ["…"] : [])].join(" "),
  );

describe("session.cancel", () => {
  test("stops the turn that runs, and its handle resolves with the reason", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS });
    const session = await troupe.session("s");
    const turn = session.turn("say a|<hang>");
    await shows(turn, "text_delta");
    expect(await session.cancel("Enough.")).toBe("cancelled");
    expect((await turn).outcome).toEqual(stopped("Enough."));
  });

  test("of a turn that was asked for in the line before stops that turn", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS });
    const session = await troupe.session("s");
    const turn = session.turn("say a");
    expect(await session.cancel()).toBe("cancelled");
    expect(await turn).toMatchObject({ outcome: stopped("The host cancelled the turn."), modelCalls: 0 });
  });

  test("says idle when nothing runs, and the next turn is not stopped by it", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1 });
    const session = await troupe.session("s");
    expect(await session.cancel()).toBe("idle");
    expect((await session.turn("hi")).outcome.type).toBe("finished");
    expect(await session.cancel()).toBe("idle");
  });

  test("stops a turn that a queue began, and its input does not come again", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS });
    const session = await troupe.session("s");
    const shown = sees(session, "text_delta");
    await session.view();
    await session.enqueue("say a|<hang>");
    await shown;
    expect(await session.cancel("Enough.")).toBe("cancelled");
    await until("nothing of the session runs", async () => (await session.view()).running === null);
    expect(await session.inputs()).toEqual([]);
    expect(await textsOf(session)).toEqual(["user say a|<hang>", "assistant a …"]);
  });

  test("stops a turn that a plugin began", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model: OBEYS,
      plugins: [{ module: plugin("ledger"), ...PATIENT }],
    });
    const session = await troupe.session("s");
    const shown = sees(session, "text_delta");
    await session.view();
    await session.command("ledger.ask", { inputs: ["say a|<hang>"] });
    await shown;
    expect(await session.cancel("Enough.")).toBe("cancelled");
    await until("nothing of the session runs", async () => (await session.view()).running === null);
    expect(await session.inputs()).toEqual([]);
    expect((await session.turnResult("t1")).outcome).toEqual(stopped("Enough."));
    expect(await textsOf(session)).toEqual(["user say a|<hang>", "assistant a …"]);
  });

  test("of an input that was queued in the line before stops the turn it begins", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS });
    const session = await troupe.session("s");
    await session.enqueue("say a|<hang>");
    expect(await session.cancel("Enough.")).toBe("cancelled");
    await until("the turn is stored", async () => (await session.info()).turns === 1);
    expect((await textsOf(session))[0]).toBe("user say a|<hang>");
    expect(Boolean((await session.view()).running)).toBe(false);
  });

  test("leaves the turns that wait behind it: the next one begins", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS });
    const session = await troupe.session("s");
    const first = session.turn("say a|<hang>");
    const second = session.turn("say two");
    await shows(first, "text_delta");
    expect(await session.cancel()).toBe("cancelled");
    expect((await first).outcome.type).toBe("stopped");
    expect((await second).text).toBe("two");
  });

  test("that comes when the turn is decided says idle, and the turn ends as it was decided", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("gate"), deadlineMs: 600_000, ...PATIENT }],
    });
    const session = await troupe.session("turnFinalized");
    const turn = session.turn("hi");
    await until("the turn is decided", () => session.query<boolean>("gate.reached"));
    expect(await session.cancel("Too late.")).toBe("idle");
    expect(await troupe.cancelTurn("turnFinalized", "t1")).toBe("ended");
    await session.query("gate.open");
    expect((await turn).outcome).toEqual({ type: "finished", text: "You said: hi" });
  });

  test("twice is answered alike, and the first reason counts", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS });
    const session = await troupe.session("s");
    const turn = session.turn("say a|<hang>");
    await shows(turn, "text_delta");
    expect(await Promise.all([session.cancel("first"), session.cancel("second")])).toEqual(["cancelled", "cancelled"]);
    expect((await turn).outcome).toEqual(stopped("first"));
  });

  test("ends a call that waits for an answer, and an answer that comes later is told that it is too late", async () => {
    const ask = { description: "Asks", inputSchema: EMPTY_OBJECT, execute: () => pendingTool() };
    const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS, tools: { ask } });
    const session = await troupe.session("s");
    const turn = session.turn("call ask");
    let key = "";
    for await (const activity of turn) {
      if (activity.type !== "tool_call_pending") continue;
      key = activity.key;
      break;
    }
    expect(await session.cancel("Enough.")).toBe("cancelled");
    expect(await turn).toMatchObject({ outcome: stopped("Enough."), toolCalls: [{ output: { status: "cancelled" } }] });
    expect(await refusalOf(troupe.completeTool(key, { value: "yes" }))).toMatchObject({ code: "completion_unknown" });
  });

  test.each<[string, (session: Session, turn: Turn) => unknown]>([
    ["a reason that is no text", (session) => session.cancel(7 as never)],
    ["a reason that is too long", (session) => session.cancel("x".repeat(5_000))],
    ["an option nobody knows", (session) => session.cancel("x", { keepPartials: true } as never)],
    ["an option of the wrong type", (session) => session.cancel("x", { keepPartial: "yes" } as never)],
    ["options that are no object", (session) => session.cancel("x", "keep" as never)],
    ["a reason of a turn's handle that is no text", async (_, turn) => turn.cancel(new Error("x") as never)],
  ])("refuses %s with invalid_options, and stops nothing", async (_, cancel) => {
    const troupe = await startTroupe({ sessionWorkers: 1 });
    const session = await troupe.session("s");
    const turn = session.turn("hi");
    const refusal = await refusalOf(Promise.resolve(cancel(session, turn)));
    expect(refusal.code).toBe("invalid_options");
    expect(refusal.message).toMatch(/cancellation|keepPartial/);
    expect((await turn).outcome.type).toBe("finished");
  });
});

describe("troupe.cancelTurn", () => {
  test("stops the turn of that id, and no other", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS });
    const session = await troupe.session("s");
    await session.turn("say one");
    const turn = session.turn("say a|<hang>");
    await shows(turn, "text_delta");
    expect(await troupe.cancelTurn("s", "t1")).toBe("ended");
    expect(await troupe.cancelTurn("s", "t3")).toBe("unknown");
    expect(await troupe.cancelTurn("s", "nonsense")).toBe("unknown");
    expect(Boolean((await session.view()).running)).toBe(true);
    expect(await troupe.cancelTurn("s", "t2", "Enough.")).toBe("cancelled");
    expect((await turn).outcome).toEqual(stopped("Enough."));
    expect(await troupe.cancelTurn("s", "t2")).toBe("ended");
  });

  test("of a session that there is not says unknown, and makes none", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1 });
    expect(await troupe.cancelTurn("nobody", "t1")).toBe("unknown");
    expect((await troupe.listSessions()).sessions).toEqual([]);
  });

  test("refuses ids that are none", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1 });
    expect(await refusalOf(troupe.cancelTurn("s", 1 as never))).toMatchObject({ code: "invalid_options" });
    expect(await refusalOf(troupe.cancelTurn("", "t1"))).toMatchObject({ code: "invalid_session_id" });
  });
});

describe("a turn with a key", () => {
  test("is cancelled by every handle it was asked for with", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS });
    const session = await troupe.session("s");
    const first = session.turn("say a|<hang>", { key: "k" });
    await shows(first, "text_delta");
    const second = session.turn("say a|<hang>", { key: "k" });
    second.cancel("By the second.");
    expect((await first).outcome).toEqual(stopped("By the second."));
    expect(await second).toEqual(await first);
  });

  test("is left alone by a handle that asked for something else under its key", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS });
    const session = await troupe.session("s");
    const first = session.turn("say a|<hang>", { key: "k" });
    await shows(first, "text_delta");
    const other = session.turn("say b", { key: "k" });
    other.cancel();
    await session.inputs(); // behind the cancellation, on the same way
    expect(Boolean((await session.view()).running)).toBe(true);
    expect(await session.cancel()).toBe("cancelled");
    await first;
    expect(await refusalOf(other)).toMatchObject({ code: "turn_key_conflict" });
  });
});

describe("keepPartial", () => {
  const start = (options = {}): Promise<Troupe> =>
    startTroupe({ sessionWorkers: 1, model: HALTS, tools: LOOK, ...options });

  test("keeps what was shown as one marked message: no reasoning and no call without a result", async () => {
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("halt");
    await shows(turn, "text_delta");
    await session.cancel();
    expect((await turn).text).toBe("");
    const [, kept, ...others] = await session.messages();
    expect(others).toEqual([]);
    const { at: _, ...message } = { at: 0, ...kept };
    expect(message).toEqual({
      id: "t1.1",
      role: "assistant",
      parts: [{ type: "text", text: "My number is 4711, and" }],
      interrupted: true,
    });
  });

  test("tells the model in words that its answer was cut off, each time it reads it", async () => {
    const troupe = await start({ store: { path: await tempFolder() } });
    const session = await troupe.session("s");
    const turn = session.turn("halt");
    await shows(turn, "text_delta");
    await session.cancel();
    await turn;
    const read = [
      ["user", "halt"],
      ["assistant", "My number is 4711, and\n\n[This answer was cut off here: it was stopped before it was complete.]"],
    ];
    expect(JSON.parse((await session.turn("show")).text)).toEqual([...read, ["user", "show"]]);
    // The same when it is read from the store.
    await session.park();
    expect(JSON.parse((await session.turn("show")).text).slice(0, 2)).toEqual(read);
  });

  test("is what turn.cancel does when it is asked to, and session.cancel does not when it is asked not to", async () => {
    const troupe = await start();
    const [kept, left, plain] = await Promise.all([
      troupe.session("kept"),
      troupe.session("left"),
      troupe.session("p"),
    ]);
    const turns = [kept, left, plain].map((session) => session.turn("halt"));
    await Promise.all(turns.map((turn) => shows(turn, "text_delta")));
    turns[0]?.cancel("x", { keepPartial: true });
    await left.cancel("x", { keepPartial: false });
    turns[2]?.cancel("x");
    await Promise.all(turns);
    expect(await textsOf(kept)).toEqual(["user halt", "assistant My number is 4711, and …"]);
    expect(await textsOf(left)).toEqual(["user halt"]);
    expect(await textsOf(plain)).toEqual(["user halt"]);
  });

  test("keeps no message when nothing was shown", async () => {
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("halt silently");
    await shows(turn, "reasoning_delta");
    await session.cancel();
    await turn;
    expect(await textsOf(session)).toEqual(["user halt silently"]);
  });

  test.each(["inline", "worker"] as const)(
    "passes the response hooks (%s): what they take out is not stored",
    async (tier) => {
      const troupe = await start({ plugins: [{ module: plugin("redacts"), tier, ...PATIENT }] });
      const session = await troupe.session("s");
      const turn = session.turn("halt");
      await shows(turn, "text_delta");
      await session.cancel();
      await turn;
      expect(await textsOf(session)).toEqual(["user halt", "assistant My number is [number], and …"]);
    },
  );

  test("keeps nothing when a response hook fails, and says so", async () => {
    const troupe = await start({ plugins: [{ module: plugin("redacts"), ...PATIENT }] });
    const session = await troupe.session("fails");
    const turn = session.turn("halt");
    await shows(turn, "text_delta");
    await session.cancel();
    const { issues, outcome } = await turn;
    expect(outcome).toMatchObject({ reason: "cancelled" });
    expect(issues).toMatchObject([{ kind: "plugin", code: "plugin_assistant_response" }]);
    expect(await textsOf(session)).toEqual(["user halt"]);
  });

  test("leaves answers that were whole as they are, calls and all", async () => {
    const dig = {
      description: "Digs",
      inputSchema: EMPTY_OBJECT,
      cancelGraceMs: 0,
      execute: () => new Promise(() => {}),
    };
    const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS, tools: { dig } });
    const session = await troupe.session("s");
    const turn = session.turn("call dig");
    await shows(turn, "tool_call_started");
    await session.cancel();
    await turn;
    expect((await session.messages()).map(({ role, interrupted }) => [role, interrupted])).toEqual([
      ["user", undefined],
      ["assistant", undefined],
      ["tool", undefined],
    ]);
  });
});
