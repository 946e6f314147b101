import { createTroupe, type Session, scriptedModel, type Troupe } from "troupe";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openLmdbReader, readHistory } from "../../../dist/src/store/index.js";
import { untimed } from "../../support/activities.js";
import { told } from "../../support/asking.js";
import { fixture, PATIENT, plugin, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

describe.each(["worker", "inline"] as const)("operations of a plugin in the tier %s", (tier) => {
  const withNotes = (options = {}) =>
    startTroupe({ sessionWorkers: 1, plugins: [{ module: plugin("notes"), tier, ...PATIENT }], ...options });

  // §15.69
  test("are listed by name, with their kind and schema", async () => {
    const troupe = await withNotes();
    const listed = await troupe.operations();
    expect(listed.map(({ name, kind, session }) => [name, kind, session])).toEqual([
      ["notes.add", "command", "optional"],
      ["notes.ask", "command", "optional"],
      ["notes.fail", "command", "optional"],
      ["notes.list", "query", "optional"],
      ["notes.session", "query", "optional"],
      ["notes.version", "query", "forbidden"],
      ["notes.wait", "task", "optional"],
      ["notes.wrong", "query", "optional"],
    ]);
    expect(listed[0]?.inputSchema).toMatchObject({ type: "object", required: ["text"] });
  });

  test("a command changes the session's state, tells its events in the plugin's name, and a query reads it", async () => {
    const troupe = await withNotes();
    const session = await troupe.session("s");
    expect(await session.command("notes.add", { text: "milk" })).toEqual({
      output: { count: 1 },
      events: [{ pluginId: "test.notes", value: { name: "noted", payload: "milk" } }],
      turns: [],
    });
    expect(await session.query("notes.list")).toEqual(["milk"]);
    expect(await (await troupe.session("other")).query("notes.list")).toEqual([]);
  });

  test("what a command changed is stored before it is answered", async () => {
    const path = await tempFolder();
    const first = await createTroupe({
      sessionWorkers: 1,
      store: { path },
      plugins: [{ module: plugin("notes"), tier }],
    });
    const session = await first.session("s");
    await session.turn("hi");
    await session.command("notes.add", { text: "kept" });
    await first.close();
    const second = await withNotes({ store: { path } });
    expect(await (await second.session("s")).query("notes.list")).toEqual(["kept"]);
  });

  // §15.72
  test("a query is answered while a turn runs; a command waits for it", async () => {
    const troupe = await withNotes({ model: scriptedModel({ turns: [[{ text: "done", delayMs: 60_000 }]] }) });
    const session = await troupe.session("s");
    const turn = session.turn("slow");
    await until("the turn runs", async () => (await session.info()).state === "running");
    const command = session.command("notes.add", { text: "later" });
    // Asked after the command, answered before it.
    expect(await session.query("notes.list")).toEqual([]);
    turn.cancel();
    await Promise.all([turn, command]);
    // The turn is the first thing stored, the command's event the second.
    expect(await session.view()).toMatchObject({ turnIndex: 1, leafNodeId: "s@2.0" });
  });

  // §15.68
  test("are about the session they are called on, or the one that is named; a forbidden one about none", async () => {
    const troupe = await withNotes();
    const session = await troupe.session("s");
    expect(await session.query("notes.session")).toBe("s");
    expect(await session.query("notes.session", {}, { sessionId: "elsewhere" })).toBe("elsewhere");
    expect(await session.query("notes.version")).toBe("none");
    const error = await refusalOf(session.query("notes.version", {}, { sessionId: "s" }));
    expect(error.code).toBe("operation_unexpected_session");
  });

  // §15.68
  test("an unknown name and the wrong kind are unknown", async () => {
    const troupe = await withNotes();
    const session = await troupe.session("s");
    expect((await refusalOf(session.query("notes.nothing"))).code).toBe("operation_unknown");
    expect((await refusalOf(session.query("notes.add", { text: "x" }))).code).toBe("operation_unknown");
    expect((await refusalOf(session.command("notes.list"))).code).toBe("operation_unknown");
    expect((await refusalOf(session.task("notes.add", { text: "x" }))).code).toBe("operation_unknown");
    expect((await refusalOf(session.command("notes.wait"))).code).toBe("operation_unknown");
    expect((await refusalOf(session.action("notes.list"))).code).toBe("operation_unknown");
    expect((await refusalOf(session.action("notes.nothing"))).code).toBe("operation_unknown");
  });

  // §15.69
  test("bad arguments, bad output and a throw are failures, and change nothing", async () => {
    const troupe = await withNotes();
    const session = await troupe.session("s");
    for (const refusal of [
      refusalOf(session.command("notes.add", { text: "" })),
      refusalOf(session.query("notes.wrong")),
      refusalOf(session.command("notes.fail")),
    ]) {
      expect((await refusal).code).toBe("operation_failed");
    }
    expect(await session.query("notes.list")).toEqual([]);
    expect((await session.turn("still here")).outcome.type).toBe("finished");
  });

  // §15.71
  test("a task gets the signal; cancelling it is asking, and what it did counts", async () => {
    const troupe = await withNotes();
    const session = await troupe.session("s");
    const cancel = new AbortController();
    const task = session.task("notes.wait", {}, { signal: cancel.signal });
    await until("the task runs", async () => (await session.info()).state === "running");
    cancel.abort();
    expect((await task).output).toBe("stopped");
    expect(await session.query("notes.list")).toEqual(["stopped"]);
  });

  test("a command can ask for a turn, which runs behind it", async () => {
    const troupe = await withNotes();
    const session = await troupe.session("s");
    await session.command("notes.add", { text: "milk" });
    expect((await session.command("notes.ask")).turns).toEqual(["Notes: milk"]);
    await until("the turn was stored", async () => (await session.info()).turns === 1);
  });
});

describe.each(["worker", "inline"] as const)("what operations of a plugin in the tier %s come to", (tier) => {
  const plugins = [{ module: plugin("ledger"), tier, ...PATIENT }];
  let troupe: Troupe;
  beforeAll(async () => {
    troupe = await createTroupe({ sessionWorkers: 1, drainMs: 500, plugins, model: fixture("models/told.mjs") });
  });
  afterAll(() => troupe.close());

  /** A turn whose model never answers. Not returned itself: whoever awaits a turn waits for its end. */
  const running = async (session: Session) => {
    const turn = session.turn(told({ hang: true }));
    for await (const { type } of turn) if (type === "model_call_started") break;
    return { turn };
  };

  test("an action answers with a tool's output, whatever happens in it", async () => {
    const session = await troupe.session("actions");
    const failed = (kind: string, code: string) => ({
      status: "failure",
      failure: { kind, code, message: expect.any(String) },
    });
    expect(await session.action("ledger.greet", { name: "Ada" })).toEqual({ status: "success", value: "Hello Ada" });
    expect(await session.action("ledger.nothing")).toEqual({ status: "success", value: null });
    expect(await session.action("ledger.greet", { name: 7 })).toEqual(failed("invalid_request", "invalid_action_args"));
    expect(await session.action("ledger.throws")).toEqual({
      status: "failure",
      failure: { kind: "execution", code: "action_failed", message: "no ink left" },
    });
    expect(await session.action("ledger.checked", { value: { n: 1 } })).toEqual({
      status: "success",
      value: { n: 1, unit: "kg" },
    });
    expect(await session.action("ledger.checked", { value: { n: "one" } })).toEqual(
      failed("execution", "invalid_action_output"),
    );
    expect(await session.action("ledger.closure")).toEqual(failed("execution", "tool_result_unserialisable"));
    // An output is taken as it is; what only resembles one is a value.
    const cancelled = { status: "cancelled", message: "Not now." };
    const refused = failed("external", "no_paper");
    const paper = { status: "failure", failure: { kind: "external", code: "no_paper", message: "None." } };
    expect(await session.action("ledger.output", { output: cancelled })).toEqual(cancelled);
    expect(await session.action("ledger.output", { output: paper })).toEqual(refused);
    expect(await session.action("ledger.output", { output: { status: "success", value: [1] } })).toEqual({
      status: "success",
      value: [1],
    });
    expect(await session.action("ledger.output", { output: { status: "failure", reason: "late" } })).toEqual({
      status: "success",
      value: { status: "failure", reason: "late" },
    });
  });

  test("an action's events and directives are only values: nothing is stored or asked for", async () => {
    const session = await troupe.session("actions/effects");
    const looksLike = {
      output: 1,
      events: [{ name: "told" }],
      directives: [{ kind: "queue_turn", input: "never" }],
    };
    expect(await session.action("ledger.outcome")).toEqual({ status: "success", value: looksLike });
    expect(await session.view()).toMatchObject({ revision: 0, turnIndex: 0, leafNodeId: null });
    expect((await session.turn("the first")).turnIndex).toBe(1);
  });

  test("an action answers while a turn runs; one that acts as a command waits for its place, and its state is stored", async () => {
    const session = await troupe.session("actions/place");
    const { turn } = await running(session);
    expect(await session.action("ledger.greet", { name: "Ada" })).toMatchObject({ value: "Hello Ada" });
    const write = session.action("ledger.write", { text: "in its place" });
    // Asked after the action, answered before it.
    expect(await session.query("ledger.log")).toEqual([]);
    turn.cancel();
    // It found the turn stored.
    const written = { sessionId: "actions/place", count: 1, turnIndex: 1 };
    expect(await write).toEqual({ status: "success", value: written });
    await turn;
    expect(await session.view()).toMatchObject({ revision: 2, turnIndex: 1 });
    const again = await session.action("ledger.write", { text: "x" }, { sessionId: "elsewhere" });
    expect(again).toMatchObject({ value: { sessionId: "elsewhere", count: 2 } });
  });

  // §15.69
  test.each([
    "nothing",
    "no output",
    "events that are no list",
    "an event without a name",
    "a directive of a hook",
    "a turn without an input",
  ])("a command that comes to %s fails, and nothing of it is stored", async (how) => {
    const session = await troupe.session(`broken/${how}`);
    expect((await refusalOf(session.command("ledger.broken", { how }))).code).toBe("operation_failed");
    expect(await session.view()).toMatchObject({ revision: 0, turnIndex: 0, leafNodeId: null });
    expect((await session.command("ledger.quiet")).output).toBe(1);
  });

  // §15.70
  test("a command's events and its plugin's state are stored in one write, before it is answered", async () => {
    const session = await troupe.session("one write");
    await session.turn("hi");
    const { revision, messageCount } = await session.view();
    const before = (await troupe.stats()).store.transactions;
    expect(await session.command("ledger.add", { text: "milk" })).toEqual({
      output: ["milk"],
      events: [
        { pluginId: "test.ledger", value: { name: "added", payload: { text: "milk" } } },
        { pluginId: "test.ledger", value: { name: "counted" } },
      ],
      turns: [],
    });
    expect((await troupe.stats()).store.transactions - before).toBe(1);
    // Records in the history, and not in the conversation.
    expect(await session.view()).toMatchObject({ revision: revision + 1, leafNodeId: "one write@2.1", messageCount });
    expect(await session.command("ledger.quiet")).toEqual({ output: 2, events: [], turns: [] });
    expect(await session.view()).toMatchObject({ revision: revision + 2, leafNodeId: "one write@2.1" });
    const conversation = await session.turn(told({ say: "@conversation" }));
    expect(conversation.text).not.toContain("milk");
  });

  // §15.70
  test("a key names a call: asked again, it is answered with the same receipt and nothing is run, stored or asked for", async () => {
    const session = await troupe.session("keys");
    const first = await session.command("ledger.add", { text: "once" }, { key: "k1" });
    await session.command("ledger.add", { text: "between" });
    const { revision } = await session.view();
    expect(await session.command("ledger.add", { text: "other arguments" }, { key: "k1" })).toEqual(first);
    expect(first.output).toEqual(["once"]);
    expect((await session.view()).revision).toBe(revision);
    expect(await session.query("ledger.log")).toEqual(["once", "between"]);
    // Two at once are one.
    const both = await Promise.all([1, 2].map(() => session.command("ledger.quiet", {}, { key: "k2" })));
    expect(both.map(({ output }) => output)).toEqual([3, 3]);
    // An action that acts as a command can be named as well.
    for (let n = 0; n < 2; n++) {
      expect(await session.action("ledger.write", { text: "w" }, { key: "k3" })).toMatchObject({ value: { count: 4 } });
    }
    for (const call of [
      session.command("ledger.quiet", {}, { key: "k1" }),
      session.task("ledger.polite", {}, { key: "k1" }),
      session.action("ledger.write", { text: "w" }, { key: "k2" }),
    ]) {
      expect((await refusalOf(call)).code).toBe("operation_key_conflict");
    }
    expect(await session.query("ledger.log")).toEqual(["once", "between", "quiet", "w"]);
  });

  test("a command that failed can be asked again under its key", async () => {
    const session = await troupe.session("keys/failed");
    const failed = session.command("ledger.broken", { how: "nothing" }, { key: "k" });
    expect((await refusalOf(failed)).code).toBe("operation_failed");
    expect((await session.command("ledger.quiet", {}, { key: "k" })).output).toBe(1);
  });

  test("keys are a session's own: a fork is asked for the first time, and the 64 newest are kept", async () => {
    const session = await troupe.session("keys/parent");
    await session.command("ledger.quiet", {}, { key: "k0" });
    const child = await session.fork({ id: "keys/child" });
    expect((await child.command("ledger.quiet", {}, { key: "k0" })).output).toBe(2);
    expect((await session.command("ledger.quiet", {}, { key: "k0" })).output).toBe(1);
    for (let n = 1; n <= 64; n++) await session.command("ledger.quiet", {}, { key: `k${n}` });
    expect((await session.command("ledger.quiet", {}, { key: "k1" })).output).toBe(2);
    expect((await session.command("ledger.quiet", {}, { key: "k0" })).output).toBe(66);
  });

  // §15.70
  test("turns a command asks for run behind it in order, once for each key", async () => {
    const session = await troupe.session("queue");
    const turns = ["first of the ledger", "second of the ledger"];
    expect((await session.command("ledger.queue", {}, { key: "k" })).turns).toEqual(turns);
    expect((await session.command("ledger.queue", {}, { key: "k" })).turns).toEqual(turns);
    const { text } = await session.turn(told({ say: "@conversation" }));
    const inputs = (JSON.parse(text) as [string, string][]).filter(([role]) => role === "user").map(([, said]) => said);
    expect(inputs.slice(0, -1)).toEqual(turns);
  });

  test("turns a command asks for all run, one by one and in order, also when the mailbox has no room for them", async () => {
    const small = await startTroupe({ sessionWorkers: 1, plugins, mailboxLimit: 2, model: fixture("models/told.mjs") });
    const session = await small.session("s");
    const inputs = ["a", "b", "c", "d", "e"];
    expect((await session.command("ledger.ask", { inputs })).turns).toEqual(inputs);
    await until("every turn is stored", async () => (await session.info()).turns === 5);
    const { text } = await session.turn(told({ say: "@conversation" }));
    const said = (JSON.parse(text) as [string, string][]).filter(([role]) => role === "user").map(([, input]) => input);
    expect(said.slice(0, -1)).toEqual(inputs);
  });

  test("a turn a command asked for waits as an input of its own until it begins, and can be taken back", async () => {
    const session = await troupe.session("queue/inputs");
    const { turn } = await running(session);
    const command = session.command("ledger.ask", { inputs: ["never"] });
    const behind = session.turn(told({ hang: true }));
    turn.cancel();
    await command;
    const [input] = await session.inputs();
    expect(input).toMatchObject({ text: "never", waitsFor: { kind: "next_turn" }, ownTurn: true });
    expect(await session.cancelInput(input?.id ?? "")).toBe("cancelled");
    behind.cancel();
    await behind;
    expect((await session.turn("the last")).turnIndex).toBe(3);
  });

  // §15.71
  test("a task that is asked to stop is waited for: what it tells and changes is stored, whether it listens or not", async () => {
    const session = await troupe.session("tasks");
    const runs = (name: string, signal: AbortSignal) => session.task(name, {}, { signal });
    for (const [name, finish] of [
      ["ledger.polite", async () => undefined],
      ["ledger.deaf", () => session.query("ledger.release")],
    ] as const) {
      const cancel = new AbortController();
      const task = runs(name, cancel.signal);
      await until("the task runs", async () => (await session.info()).state === "running");
      // Behind the task on its thread: by now it waits.
      await session.query("ledger.log");
      cancel.abort();
      let settled = false;
      task.then(() => {
        settled = true;
      });
      const behind = session.command("ledger.quiet");
      await session.query("ledger.log");
      if (name === "ledger.deaf") expect(settled).toBe(false);
      await finish();
      expect((await task).events.map(({ value }) => value.name)).toEqual([
        name === "ledger.deaf" ? "finished" : "stopped",
      ]);
      await behind;
    }
    expect(await session.query("ledger.log")).toEqual(["stopped", "quiet", "finished", "quiet"]);
    expect((await session.view()).revision).toBe(4);
    const never = new AbortController();
    never.abort();
    expect((await refusalOf(runs("ledger.polite", never.signal))).code).toBe("aborted");
  });

  test("a task that waits for its place and is cancelled by then is never begun", async () => {
    const session = await troupe.session("tasks/queued");
    const { turn } = await running(session);
    const cancel = new AbortController();
    const task = session.task("ledger.deaf", {}, { signal: cancel.signal });
    await session.query("ledger.log");
    cancel.abort();
    await session.query("ledger.log");
    turn.cancel();
    expect((await refusalOf(task)).code).toBe("aborted");
    await turn;
    expect(await session.query("ledger.log")).toEqual([]);
  });

  // §15.70
  test("survive the process: events are records on the path, receipts and state are as they were, also without a turn", async () => {
    const path = await tempFolder();
    const options = { sessionWorkers: 1, plugins, store: { path } };
    const first = await createTroupe(options);
    const session = await first.session("s");
    const receipt = await session.command("ledger.add", { text: "kept" }, { key: "k1" });
    await session.command("ledger.quiet", {}, { key: "k2" });
    const queued = await session.command("ledger.queue", {}, { key: "k3" });
    // Behind the turns it asked for.
    await session.turn("last");
    const { revision } = await session.view();
    const quiet = await first.session("no events, no turn");
    await quiet.command("ledger.quiet", {}, { key: "k" });
    // As a crash would leave it: nothing is stored on the way out.
    await first.kill({ sessionWorker: 0 });
    await first.close();
    const reader = openLmdbReader(path);
    const history = readHistory(reader, reader.head("s")?.leaf ?? null);
    reader.close();
    const origin = { kind: "plugin", pluginId: "test.ledger" };
    expect(untimed(history.slice(0, 2))).toEqual([
      { id: "s@1.0", role: "record", parts: [], origin, record: { type: "event.added", body: { text: "kept" } } },
      { id: "s@1.1", role: "record", parts: [], origin, record: { type: "event.counted", body: null } },
    ]);
    const second = await startTroupe(options);
    const again = await second.session("s");
    expect(await again.command("ledger.add", { text: "twice?" }, { key: "k1" })).toEqual(receipt);
    expect((await again.command("ledger.quiet", {}, { key: "k2" })).output).toBe(2);
    expect(await again.command("ledger.queue", {}, { key: "k3" })).toEqual(queued);
    expect((await refusalOf(again.command("ledger.quiet", {}, { key: "k1" }))).code).toBe("operation_key_conflict");
    expect(await again.query("ledger.log")).toEqual(["kept", "quiet", "queue"]);
    expect(await again.view()).toMatchObject({ revision, turnIndex: 3, messageCount: 6 });
    const quietAgain = await second.session("no events, no turn");
    expect(await quietAgain.query("ledger.log")).toEqual(["quiet"]);
    expect((await quietAgain.command("ledger.quiet", {}, { key: "k" })).output).toBe(1);
    expect(await quietAgain.query("ledger.log")).toEqual(["quiet"]);
  });
});

// §15.6
test("an operation's name is one over all plugins and kinds", async () => {
  const error = await refusalOf(
    startTroupe({ plugins: [{ module: plugin("notes") }, { module: plugin("notes-twice") }] }),
  );
  expect([error.code, error.details.name]).toEqual(["duplicate_operation", "notes.list"]);
});

describe.each(["worker", "inline"] as const)("an operation of the tier %s that does not settle", (tier) => {
  const start = (entry: object = {}) =>
    startTroupe({ sessionWorkers: 1, plugins: [{ module: plugin("stuck"), tier, ...PATIENT, ...entry }] });

  test.each([
    ["command", "stuck.command"],
    ["query", "stuck.query"],
    ["action", "stuck.action"],
  ] as const)(
    "a %s ends at its plugin's deadline, and the session goes on from the last capture",
    async (kind, name) => {
      const troupe = await start({ deadlineMs: 2_000 });
      const session = await troupe.session("s");
      expect((await session.command("stuck.add")).output).toBe(1);
      const error = await refusalOf(session[kind](name));
      expect(error.code).toBe("operation_timeout");
      expect(error.message).toBe(
        `Plugin test.stuck: ${kind} ${name} did not settle within 2000 ms. What it did counts for nothing, and the plugin ` +
          "goes on from its last captured state. Give it a longer deadlineMs, in its definition or in the plugin's entry, " +
          "or make it a task.",
      );
      expect(error.details).toEqual({ pluginId: "test.stuck", operation: name, deadlineMs: 2_000 });
      expect(await session.query("stuck.count")).toBe(1);
      expect((await session.command("stuck.add")).output).toBe(2);
      expect((await session.turn("still here")).outcome.type).toBe("finished");
      expect(await session.query("stuck.count")).toBe(12);
    },
  );

  test("has the deadline of its definition, and a task none", async () => {
    const troupe = await start({ deadlineMs: 2_000 });
    const other = await troupe.session("other");
    for (const [id, ask] of [
      ["a", async (session: Session) => (await session.task("stuck.task")).output],
      ["b", (session: Session) => session.query("stuck.patient")],
    ] as const) {
      const session = await troupe.session(id);
      const asked = ask(session);
      await until("it waits", () => session.query<boolean>("stuck.waits"));
      // Asked later, given up earlier.
      expect((await refusalOf(other.query("stuck.query"))).code).toBe("operation_timeout");
      await session.query("stuck.release");
      expect(await asked).toBe(id === "a" ? "at last" : "in time");
    }
    const deadlines = (await troupe.operations()).map(({ name, deadlineMs }) => [name, deadlineMs]);
    expect(deadlines).toContainEqual(["stuck.patient", 600_000]);
    expect(deadlines).toContainEqual(["stuck.query", undefined]);
  });

  test("counts for nothing whatever it still does: not its state, its answer, its events or its host calls", async () => {
    const troupe = await start();
    const session = await troupe.session("s");
    await session.command("stuck.add");
    const late = session.command("stuck.late", {}, { key: "k" });
    expect((await refusalOf(late)).code).toBe("operation_timeout");
    const { revision } = await session.view();
    await session.query("stuck.release");
    await until("the late one is over", async () => (await session.query("stuck.met")) !== null);
    expect(await session.query("stuck.met")).toEqual({ code: "host_call_over", aborted: true });
    expect(await session.query("stuck.count")).toBe(1);
    expect(await session.view()).toMatchObject({ revision, leafNodeId: null });
    // Nothing came of it, so nothing is kept under its key.
    expect((await session.command("stuck.add", {}, { key: "k" })).output).toBe(2);
  });

  test("beside a turn leaves nothing in the state that a hook of the turn brings back", async () => {
    const troupe = await start();
    const session = await troupe.session("s");
    await session.query("stuck.hold");
    const turn = session.turn("wait at the end");
    await until("the hook waits", () => session.query<boolean>("stuck.waits"));
    expect((await refusalOf(session.query("stuck.quick"))).code).toBe("operation_timeout");
    await session.query("stuck.release");
    expect((await turn).outcome.type).toBe("finished");
    // Neither what the query did, nor what the hook did before the instance was made anew.
    expect(await session.query("stuck.count")).toBe(0);
  });
});

test("an operation that blocks its plugin's thread ends at its deadline; the thread is replaced, and the session goes on", async () => {
  const plugins = [{ module: plugin("stuck"), blockedMs: 2_000 }];
  const troupe = await startTroupe({ sessionWorkers: 1, plugins });
  const session = await troupe.session("s");
  await session.command("stuck.add");
  expect((await refusalOf(session.command("stuck.spin"))).code).toBe("operation_timeout");
  // Waits for the next thread, and finds the last capture there.
  expect(await session.query("stuck.count")).toBe(1);
  expect((await troupe.stats()).plugins[0]?.restarts).toBeGreaterThan(0);
  expect((await session.turn("still here")).outcome.type).toBe("finished");
});
