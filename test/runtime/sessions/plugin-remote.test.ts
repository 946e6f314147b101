import { inspect } from "node:util";
import { describe, expect, expectTypeOf, it } from "vitest";
import { z } from "zod";
import type { JsonObject, OperationReceipt, PluginRemote, Session, ToolOutput } from "../../../src/index.js";
import { definePlugin, queueTurn } from "../../../src/plugin/index.js";
import { pluginRemote } from "../../../src/runtime/sessions/plugin-remote.js";

/** These tests are read by the compiler too: a line that should not compile and does is an error of `npm run check`. */

const notes = definePlugin({
  id: "acme.notes",
  version: "1.0.0",
  state: (): { notes: string[] } => ({ notes: [] }),
  queries: {
    "notes.list": {
      description: "d",
      input: z.object({ tag: z.string().optional(), limit: z.number().default(3) }),
      run: async ({ limit }, { state }) => state.notes.slice(0, limit),
    },
    "notes.list.raw": { description: "d", input: z.object({}), run: (_args, { state }) => state.notes.join() },
    "notes.checked": {
      description: "d",
      input: { type: "object" },
      output: z.object({ n: z.number(), unit: z.string().default("kg") }),
      run: () => ({ n: 1 }),
    },
    ping: { description: "d", input: z.object({ at: z.coerce.date() }), run: ({ at }) => at },
  },
  commands: {
    "notes.add": {
      description: "d",
      input: z.object({ text: z.string() }),
      run: ({ text }, { state }) => ({ output: { count: state.notes.push(text) }, directives: [queueTurn(text)] }),
    },
  },
  tasks: {
    "notes.index": {
      description: "d",
      input: z.string(),
      run: async (word) => ({ output: word === "" ? null : 7, events: [{ name: "indexed" }] }),
    },
  },
  actions: {
    "notes.count": { description: "d", input: z.object({ word: z.string() }), run: () => 3 },
  },
});

/** Answers with what it was called with. */
const echo = pluginRemote<typeof notes>(async (name, args, options) => ({
  output: { name, args, options },
  events: [],
  turns: [],
})) satisfies PluginRemote<typeof notes>;

describe("a remote of a plugin that declares its operations", () => {
  it("has them by their whole names and by the parts of their names", () => {
    expectTypeOf(echo["notes.list"]).returns.resolves.toEqualTypeOf<string[]>();
    expectTypeOf(echo.notes.list).returns.resolves.toEqualTypeOf<string[]>();
    expectTypeOf(echo.notes.list.raw).returns.resolves.toEqualTypeOf<string>();
    expectTypeOf(echo.ping).returns.resolves.toEqualTypeOf<Date>();
    // @ts-expect-error there is no such operation
    echo["notes.lst"];
    // @ts-expect-error there is no such operation
    echo.notes.lst;
    // @ts-expect-error parts of names cannot be called
    expectTypeOf(echo.notes).toBeFunction();
  });

  it("takes what the schema accepts, before its defaults and transformations", () => {
    expectTypeOf(echo.notes.list)
      .parameter(0)
      .toEqualTypeOf<{ tag?: string | undefined; limit?: number | undefined } | undefined>();
    expectTypeOf(echo.notes.list).parameter(1).toEqualTypeOf<AbortSignal | undefined>();
    expectTypeOf(echo.notes.add).parameter(0).toEqualTypeOf<{ text: string }>();
    expectTypeOf(echo.notes.index).parameter(0).toEqualTypeOf<string>();
    expectTypeOf(echo.notes.checked).parameter(0).toEqualTypeOf<JsonObject | undefined>();
  });

  it("answers with the output: of a query, of a command, of a task, and a tool's of an action", () => {
    expectTypeOf(echo.notes.add).returns.resolves.toEqualTypeOf<{ count: number }>();
    expectTypeOf(echo.notes.index).returns.resolves.toEqualTypeOf<number | null>();
    expectTypeOf(echo.notes.count).returns.resolves.toEqualTypeOf<ToolOutput>();
    // The output schema adds the unit.
    expectTypeOf(echo.notes.checked).returns.resolves.toEqualTypeOf<{ n: number; unit: string }>();
  });

  it("does not compile with wrong arguments", async () => {
    await echo.notes.list();
    await echo.notes.list({}, new AbortController().signal);
    // @ts-expect-error the text is missing
    await echo.notes.add({});
    // @ts-expect-error its arguments cannot be left out
    await echo.notes.add();
    // @ts-expect-error a text is not a number
    await echo["notes.add"]({ text: 7 });
    // @ts-expect-error there is no such argument
    await echo.notes.list({ tags: ["travel"] });
    // @ts-expect-error options are for `receipt`
    await echo.notes.list({}, { key: "order-17" });
  });

  it("gives receipts, typed by the operation's name", async () => {
    const receipt = await echo.receipt("notes.add", { text: "milk" }, { key: "order-17" });
    expectTypeOf(receipt).toEqualTypeOf<OperationReceipt<{ count: number }>>();
    expectTypeOf(await echo.receipt("notes.list")).toEqualTypeOf<OperationReceipt<string[]>>();
    expectTypeOf(await echo.receipt("notes.count", { word: "a" })).toEqualTypeOf<OperationReceipt<ToolOutput>>();
    // @ts-expect-error its arguments cannot be left out
    await echo.receipt("notes.add");
    // @ts-expect-error there is no such operation
    await echo.receipt("notes.lst");
  });

  it("is asked for by the plugin's own id", () => {
    const ask = (session: Session) => [
      session.plugin<typeof notes>("acme.notes") satisfies PluginRemote<typeof notes>,
      // @ts-expect-error it is the id of another plugin
      session.plugin<typeof notes>("acme.note"),
    ];
    expect(ask).toBeTypeOf("function");
  });
});

describe("what the language asks of every object", () => {
  /** The operations a remote calls while something is done with it. */
  const callsOf = async (use: (remote: PluginRemote<typeof notes>) => unknown) => {
    const calls: string[] = [];
    const remote = pluginRemote<typeof notes>(async (name) => {
      calls.push(name);
      return { output: null, events: [], turns: [] };
    });
    await use(remote);
    return calls;
  };

  it("is not a call: a remote is awaited, shown, compared and turned into a text or JSON", async () => {
    const given = async (remote: PluginRemote<typeof notes>) => remote;
    expect(await callsOf(async (remote) => expect(await given(remote)).toBe(remote))).toEqual([]);
    expect(await callsOf(async (remote) => void (await (remote.notes as unknown)))).toEqual([]);
    expect(await callsOf((remote) => [`${remote}`, `${remote.notes.list}`])).toEqual([]);
    expect(await callsOf((remote) => JSON.stringify([remote, remote.notes]))).toEqual([]);
    expect(await callsOf((remote) => [inspect(remote), inspect(remote.notes.list)])).toEqual([]);
    expect(await callsOf((remote) => Object.keys(remote))).toEqual([]);
    expect(await callsOf((remote) => remote.notes.list())).toEqual(["notes.list"]);
  });

  it("has no say in types: what is awaited is the remote", () => {
    expectTypeOf<Awaited<PluginRemote<typeof notes>>>().toEqualTypeOf<PluginRemote<typeof notes>>();
    expectTypeOf<Awaited<PluginRemote>>().toEqualTypeOf<PluginRemote>();
    // @ts-expect-error a remote is not a promise
    expect(echo.then).toBeUndefined();
    expect((echo as { toJSON?: unknown }).toJSON).toBeUndefined();
  });
});

describe("operations with the names of members", () => {
  const odd = definePlugin({
    id: "acme.odd",
    version: "1.0.0",
    queries: {
      receipt: { description: "d", input: z.object({}), run: () => 1 },
      "receipt.print": { description: "d", input: z.object({}), run: () => 2 },
      // biome-ignore lint/suspicious/noThenProperty: an operation may have any name
      then: { description: "d", input: z.object({}), run: () => 3 },
      "odd.then": { description: "d", input: z.object({}), run: () => 4 },
      "odd.name": { description: "d", input: z.object({}), run: () => 5 },
      "odd.call": { description: "d", input: z.object({}), run: () => 6 },
    },
  });
  const remote = pluginRemote<typeof odd>(async (name) => ({ output: name as never, events: [], turns: [] }));

  it("are called by their whole names, or by receipt when the name is a member's", async () => {
    expect((await remote.receipt("receipt")).output).toBe("receipt");
    expect((await remote.receipt("then")).output).toBe("then");
    expect(await remote["receipt.print"]()).toBe("receipt.print");
    expect(await remote["odd.then"]()).toBe("odd.then");
    // @ts-expect-error the method gives receipts
    expect(remote.receipt.print).toBeUndefined();
    // @ts-expect-error what is in parts can be awaited too
    expect(remote.odd.then).toBeUndefined();
  });

  it("that only functions have are operations", async () => {
    expect(await remote.odd.name()).toBe("odd.name");
    expect(await remote.odd.call()).toBe("odd.call");
  });
});

describe("what a remote sends", () => {
  it("is the name, the arguments or none, and the signal or options", async () => {
    const { signal } = new AbortController();
    expect(await echo.notes.list()).toEqual({ name: "notes.list", args: {}, options: {} });
    expect(await echo["notes.list.raw"]({}, signal)).toEqual({ name: "notes.list.raw", args: {}, options: { signal } });
    expect(await echo.notes.index("milk")).toEqual({ name: "notes.index", args: "milk", options: {} });
    expect(await echo.receipt("notes.add", { text: "milk" }, { key: "order-17" })).toEqual({
      output: { name: "notes.add", args: { text: "milk" }, options: { key: "order-17" } },
      events: [],
      turns: [],
    });
  });
});

describe("a remote of what is not known beforehand", () => {
  it("can be called by any name, with unknown answers, when no type is given", () => {
    type Unknown = ReturnType<typeof Session.prototype.plugin>;
    expectTypeOf<Unknown>().toEqualTypeOf<PluginRemote>();
    const remote = pluginRemote(async (name) => ({ output: name, events: [], turns: [] }));
    expectTypeOf(remote["notes.list"]).exclude<undefined>().returns.resolves.toEqualTypeOf<unknown>();
    expectTypeOf(remote.notes?.list).exclude<undefined>().parameter(0).toEqualTypeOf<unknown>();
    expectTypeOf(remote.receipt("notes.list", 7)).resolves.toEqualTypeOf<OperationReceipt>();
  });

  it("has what the plugin declares typed, and the rest unknown, when the plugin registers", () => {
    const pages = definePlugin({
      id: "acme.pages",
      version: "1.0.0",
      queries: { "pages.count": { description: "d", input: z.object({}), run: () => 7 } },
      register(registrar) {
        registrar.query("pages.list", { description: "d", input: z.object({}), run: () => ["a"] });
      },
    });
    const remote = pluginRemote<typeof pages>(async (name) => ({ output: name, events: [], turns: [] }));
    expectTypeOf(remote["pages.count"]).returns.resolves.toEqualTypeOf<number>();
    expectTypeOf(remote["pages.list"]).exclude<undefined>().returns.resolves.toEqualTypeOf<unknown>();
    expectTypeOf(remote.pages.list).exclude<undefined>().returns.resolves.toEqualTypeOf<unknown>();
    expectTypeOf(remote.pages.count).returns.resolves.toEqualTypeOf<number>();
    expectTypeOf(remote.receipt("pages.count")).resolves.toEqualTypeOf<OperationReceipt<number>>();
    expectTypeOf(remote.receipt("pages.list")).resolves.toEqualTypeOf<OperationReceipt>();
  });
});
