import { createTroupe, type Session, type Troupe } from "troupe";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type notes from "../../../examples/plugins/notes.js";
import { told } from "../../support/asking.js";
import { fixture, PATIENT, plugin, refusalOf, registers, until } from "../../support/runtime.js";

const notesModule = new URL("../../../dist/examples/plugins/notes.js", import.meta.url);

/** What the model says to completions of the plugin. */
const SUMMARY = '{"asked":0,"givenUp":0}';

/** A turn whose model never answers. Not returned itself: whoever awaits a turn waits for its end. */
async function running(session: Session) {
  const turn = session.turn(told({ hang: true }));
  for await (const { type } of turn) if (type === "model_call_started") break;
  return { turn };
}

describe.each(["worker", "inline"] as const)("a remote of a plugin in the tier %s", (tier) => {
  let troupe: Troupe;
  beforeAll(async () => {
    troupe = await createTroupe({
      sessionWorkers: 1,
      drainMs: 500,
      model: fixture("models/told.mjs"),
      plugins: [notesModule, plugin("ledger"), registers("test.first")].map((module) => ({ module, tier, ...PATIENT })),
    });
  });
  afterAll(() => troupe.close());

  test("calls operations of all four kinds, by whole names and by their parts", async () => {
    const session = await troupe.session("kinds");
    const remote = session.plugin<typeof notes>("example.notes");
    expect(await remote.notes.add({ text: "milk", tag: "shop" })).toEqual({ count: 1 });
    expect(await remote["notes.add"]({ text: "eggs" })).toEqual({ count: 2 });
    expect(await remote.notes.list()).toEqual([
      { text: "milk", tag: "shop" },
      { text: "eggs", tag: "none" },
    ]);
    expect(await remote["notes.list"]({ tag: "shop" })).toEqual([{ text: "milk", tag: "shop" }]);
    expect(await remote.notes.count()).toEqual({ status: "success", value: 2 });
    expect(await remote.notes.sum_up()).toBe(SUMMARY);
    expect(await remote.notes.list()).toEqual([{ text: SUMMARY, tag: "summary" }]);
    const invalid = await refusalOf(remote.notes.add({ text: "" }));
    expect(invalid).toMatchObject({ code: "operation_failed", message: expect.stringContaining("notes.add") });
  });

  test("gives the receipt of an operation, which is run once under a key", async () => {
    const session = await troupe.session("receipt");
    const remote = session.plugin<typeof notes>("example.notes");
    const asked = { text: "milk", tell: true };
    const receipt = {
      output: { count: 1 },
      events: [{ pluginId: "example.notes", value: { name: "noted", payload: "milk" } }],
      turns: ["Noted: milk"],
    };
    expect(await remote.receipt("notes.add", asked, { key: "order-17" })).toEqual(receipt);
    expect(await remote.receipt("notes.add", asked, { key: "order-17" })).toEqual(receipt);
    expect(await remote.receipt("notes.count")).toEqual({
      output: { status: "success", value: 1 },
      events: [],
      turns: [],
    });
  });

  test("can be returned from an async function", async () => {
    const open = async () => (await troupe.session("returned")).plugin<typeof notes>("example.notes");
    const remote = await open();
    expect(await remote.notes.list()).toEqual([]);
  });

  test("answers queries while a turn runs, and keeps commands behind it", async () => {
    const session = await troupe.session("places");
    const remote = session.plugin("test.ledger");
    const { turn } = await running(session);
    const add = remote["ledger.add"]?.({ text: "in its place" });
    const write = remote["ledger.write"]?.({ text: "behind it" });
    expect(await remote["ledger.log"]?.()).toEqual([]);
    expect(await remote["ledger.greet"]?.({ name: "Ada" })).toEqual({ status: "success", value: "Hello Ada" });
    turn.cancel();
    expect(await add).toEqual(["in its place"]);
    expect(await write).toMatchObject({ value: { count: 2, turnIndex: 1 } });
  });

  test("keeps the order in which a parked session is asked for operations and turns", async () => {
    const session = await troupe.session("order");
    await session.turn("first");
    await session.park();
    const remote = session.plugin("test.ledger");
    const asked = [
      session.action("ledger.write", { text: "first" }),
      remote["ledger.write"]?.({ text: "second" }),
      remote.ledger?.add?.({ text: "third" }),
      session.turn("second"),
      remote.ledger?.write?.({ text: "behind the turn" }),
    ];
    const [first, second, third, , behind] = await Promise.all(asked);
    expect(first).toMatchObject({ value: { count: 1, turnIndex: 1 } });
    expect(second).toMatchObject({ value: { count: 2, turnIndex: 1 } });
    expect(third).toEqual(["first", "second", "third"]);
    expect(behind).toMatchObject({ value: { count: 4, turnIndex: 2 } });
  });

  test("answers a query of a parked session although a turn that was asked for before it never ends", async () => {
    const session = await troupe.session("parked query");
    await session.command("ledger.add", { text: "kept" });
    await session.park();
    const turn = session.turn(told({ hang: true }));
    expect(await session.plugin("test.ledger")["ledger.log"]?.()).toEqual(["kept"]);
    turn.cancel();
    await turn;
  });

  test("calls what a plugin has registered for the session, and finds nothing where it has not", async () => {
    const given = { queries: ["a.query"], commands: ["a.command"], tasks: ["a.task"], actions: ["a.action"] };
    const session = await troupe.session("registered", { pluginOptions: { "test.first": given } });
    await session.park();
    const remote = session.plugin("test.first");
    expect(
      await Promise.all([
        remote["a.query"]?.(),
        remote.a?.command?.({}),
        remote.a?.task?.(),
        remote["a.action"]?.(),
        remote.receipt("a.command"),
      ]),
    ).toEqual([
      "test.first",
      "test.first",
      "test.first",
      { status: "success", value: "test.first" },
      { output: "test.first", events: [], turns: [] },
    ]);
    const other = (await troupe.session("other")).plugin("test.first");
    expect(await refusalOf(other.receipt("a.query"))).toMatchObject({ code: "operation_unknown" });
  });

  test("refuses what its plugin does not have, and says what it has", async () => {
    const session = await troupe.session("refusals");
    const remote = session.plugin("test.ledger");
    const unknown = await refusalOf(remote.receipt("ledger.lg"));
    expect(unknown).toMatchObject({
      code: "operation_unknown",
      details: { name: "ledger.lg", pluginId: "test.ledger", operations: expect.arrayContaining(["ledger.log"]) },
    });
    expect(unknown.message).toContain("Plugin test.ledger has no operation ledger.lg.");
    const foreign = await refusalOf(remote.receipt("notes.list"));
    expect(foreign.code).toBe("operation_unknown");
    expect(foreign.message).toContain("notes.list is an operation of plugin example.notes.");
    expect(foreign.details.operations).not.toContain("notes.list");
    expect((await refusalOf(session.plugin("test.nobody").receipt("notes.list"))).code).toBe("plugin_unknown");
    // The names of objects' own members are looked for in the same way.
    expect((await refusalOf(remote.receipt("toString"))).code).toBe("operation_unknown");
  });

  test("gives up at once what has not begun, and it is never run", async () => {
    const session = await troupe.session("given up");
    const remote = session.plugin("test.ledger");
    const { turn } = await running(session);
    const give = new AbortController();
    const asked = [
      remote.ledger?.add?.({ text: "never" }, give.signal),
      remote.ledger?.polite?.({}, give.signal),
      remote.receipt("ledger.write", { text: "never" }, { signal: give.signal }),
    ];
    give.abort();
    for (const call of asked) expect((await refusalOf(call as Promise<unknown>)).code).toBe("aborted");
    expect((await refusalOf(remote.receipt("ledger.log", {}, { signal: give.signal }))).code).toBe("aborted");
    turn.cancel();
    await turn;
    expect(await remote["ledger.log"]?.()).toEqual([]);
  });

  test("asks a task that has begun to stop, and waits for its answer", async () => {
    const session = await troupe.session("stopped");
    const remote = session.plugin("test.ledger");
    const give = new AbortController();
    const task = remote.ledger?.polite?.({}, give.signal);
    await until("the task runs", async () => (await session.info()).state === "running");
    give.abort();
    expect(await task).toBe("stopped");
    expect(await remote["ledger.log"]?.()).toEqual(["stopped"]);
  });
});
