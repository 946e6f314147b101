import { createTroupe, scriptedModel } from "troupe";
import { describe, expect, test } from "vitest";
import { plugin, refusalOf, startTroupe, tempFolder, until } from "../support/runtime.js";

describe.each(["worker", "inline"] as const)("operations of a plugin in the tier %s", (tier) => {
  const withNotes = (options = {}) =>
    startTroupe({ sessionWorkers: 1, plugins: [{ module: plugin("notes"), tier }], ...options });

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

  test("a query is answered while a turn runs; a command waits for it", async () => {
    const troupe = await withNotes({ model: scriptedModel({ turns: [[{ text: "done", delayMs: 60_000 }]] }) });
    const session = await troupe.session("s");
    const turn = session.turn("slow");
    await until("the turn runs", async () => (await session.info()).state === "running");
    expect(await session.query("notes.list")).toEqual([]);
    const order: string[] = [];
    const command = session.command("notes.add", { text: "later" }).then(() => order.push("command"));
    turn.cancel();
    await Promise.all([turn.then(() => order.push("turn")), command]);
    expect(order).toEqual(["turn", "command"]);
  });

  test("are about the session they are called on, or the one that is named; a forbidden one about none", async () => {
    const troupe = await withNotes();
    const session = await troupe.session("s");
    expect(await session.query("notes.session")).toBe("s");
    expect(await session.query("notes.session", {}, { sessionId: "elsewhere" })).toBe("elsewhere");
    expect(await session.query("notes.version")).toBe("none");
    const error = await refusalOf(session.query("notes.version", {}, { sessionId: "s" }));
    expect(error.code).toBe("operation_unexpected_session");
  });

  test("an unknown name and the wrong kind are unknown", async () => {
    const troupe = await withNotes();
    const session = await troupe.session("s");
    expect((await refusalOf(session.query("notes.nothing"))).code).toBe("operation_unknown");
    expect((await refusalOf(session.query("notes.add", { text: "x" }))).code).toBe("operation_unknown");
    expect((await refusalOf(session.command("notes.list"))).code).toBe("operation_unknown");
  });

  test("bad arguments, bad output and a throw are failures, and change nothing", async () => {
    const troupe = await withNotes();
    const session = await troupe.session("s");
    for (const call of [
      session.command("notes.add", { text: "" }),
      session.query("notes.wrong"),
      session.command("notes.fail"),
    ]) {
      expect((await refusalOf(call)).code).toBe("operation_failed");
    }
    expect(await session.query("notes.list")).toEqual([]);
    expect((await session.turn("still here")).outcome.type).toBe("finished");
  });

  test("a task gets the signal; cancelling it is asking, and what it did counts", async () => {
    const troupe = await withNotes();
    const session = await troupe.session("s");
    const cancel = new AbortController();
    const task = session.task("notes.wait", {}, { signal: cancel.signal });
    await until("the task runs", async () => (await session.info()).state === "running");
    cancel.abort();
    expect((await refusalOf(task)).code).toBe("aborted");
    await until("the task heard it", async () => ((await session.query("notes.list")) as string[]).includes("stopped"));
  });

  test("a command can ask for a turn, which runs behind it", async () => {
    const troupe = await withNotes();
    const session = await troupe.session("s");
    await session.command("notes.add", { text: "milk" });
    expect((await session.command("notes.ask")).turns).toEqual(["Notes: milk"]);
    await until("the turn was stored", async () => (await session.info()).turns === 1);
  });
});

test("an operation's name is one over all plugins and kinds", async () => {
  const error = await refusalOf(
    startTroupe({ plugins: [{ module: plugin("notes") }, { module: plugin("notes-twice") }] }),
  );
  expect([error.code, error.details.name]).toEqual(["duplicate_operation", "notes.list"]);
});
