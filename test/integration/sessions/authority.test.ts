import { createTroupe, type Session, type Troupe, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import {
  collect,
  EMPTY_OBJECT,
  fixture,
  PATIENT,
  plugin,
  RESIDENT,
  refusalOf,
  startTroupe,
  tempFolder,
} from "../../support/runtime.js";

interface Told {
  readonly registered: {
    readonly parentSessionId: string | null;
    readonly isRootSession: boolean;
    readonly toolAccess: object;
    readonly subagent: object | null;
    readonly pluginOptions: object;
    readonly extensions: object;
  };
  readonly catalog: { readonly tools: string[]; readonly hiddenTools: string[]; readonly subagent: object | null };
}

const toldTo = (session: Session) => session.query<Told>("told.show");
const toolsOf = async (session: Session) => (await session.surface()).tools.map(({ name }) => name);
const host = (name: string) => ({ description: name, inputSchema: EMPTY_OBJECT, execute: () => `${name} ran` });
const spec = (name: string, extra: object = {}) => ({ name, description: name, inputSchema: EMPTY_OBJECT, ...extra });
const refusalCode = async (fork: Promise<unknown>) => (await refusalOf(fork)).code;
const writes = async (troupe: Troupe) => {
  const { transactions, records } = (await troupe.stats()).store;
  return { transactions, records };
};
const TOOLS = { read: host("read"), shell: host("shell"), write: host("write") };

describe.each(["worker", "inline"] as const)("the authority of a fork, with plugins in the tier %s", (tier) => {
  const options = (path?: string): TroupeOptions => ({
    sessionWorkers: 2,
    plugins: [{ ...PATIENT, module: plugin("told"), tier }],
    model: fixture("models/show-prompt.mjs"),
    tools: TOOLS,
    ...(path !== undefined && { store: { path } }),
  });

  test("is told to its plugins when they register and when the catalog is made, and stays after reopening", async () => {
    const path = await tempFolder();
    const first = await createTroupe({ ...RESIDENT, ...options(path) }); // Opened again, it makes its catalog anew.
    const parent = await first.session("parent", { pluginOptions: { "test.told": { mood: "curious" } } });
    await parent.turn("hi");
    await parent.turn("hi again");
    // §15.67: nothing changed, so it was asked once for both.
    expect((await first.stats()).hooks["plugin_hook.tool_catalog_contributor.test.told"]?.count).toBe(1);
    expect(await toldTo(parent)).toMatchObject({
      registered: {
        sessionId: "parent",
        parentSessionId: null,
        isRootSession: true,
        toolAccess: {},
        subagent: null,
        pluginOptions: { "test.told": { mood: "curious" } },
        extensions: { "test.words": ["hello"] },
      },
      catalog: { tools: ["read", "shell", "write"], hiddenTools: [], subagent: null },
    });
    const subagent = { capability: "research", depth: 1, maxDepth: 2 };
    const child = await parent.fork({
      id: "child",
      authority: { hiddenTools: ["shell"], subagent, pluginOptions: { "test.told": { mood: "calm" }, other: 1 } },
    });
    await child.turn("hi");
    const toldChild = {
      registered: {
        sessionId: "child",
        parentSessionId: "parent",
        isRootSession: false,
        toolAccess: { hiddenTools: ["shell"] },
        subagent,
        pluginOptions: { "test.told": { mood: "calm" }, other: 1 },
        extensions: { "test.words": ["hello"] },
      },
      catalog: {
        tools: ["read", "write"],
        hiddenTools: ["shell"],
        subagent,
        extensions: { "test.words": ["hello"] },
      },
    };
    expect(await toldTo(child)).toEqual(toldChild);
    // A fork keeps what it does not change: a plain one keeps all of it.
    const grandchild = await child.fork({ id: "grandchild", authority: { pluginOptions: { other: 2 } } });
    const plain = await grandchild.fork({ id: "plain" });
    for (const [session, parentSessionId] of [
      [grandchild, "child"],
      [plain, "grandchild"],
    ] as const) {
      expect((await toldTo(session)).registered).toMatchObject({
        parentSessionId,
        isRootSession: false,
        toolAccess: { hiddenTools: ["shell"] },
        subagent,
        pluginOptions: { "test.told": { mood: "calm" }, other: 2 },
      });
    }
    await first.close();
    const second = await startTroupe(options(path));
    const again = await second.session("child");
    await again.turn("hi");
    expect(await toldTo(again)).toEqual(toldChild);
    expect((await again.view()).parentSessionId).toBe("parent");
  });

  // turn §8.72
  test("hides what any generation hid, and no generation brings it back", async () => {
    const path = await tempFolder();
    const first = await createTroupe(options(path));
    const parent = await first.session("parent");
    await parent.turn("hi");
    const child = await parent.fork({ id: "child", authority: { hiddenTools: ["shell"] } });
    const grandchild = await child.fork({ id: "grandchild", authority: { hiddenTools: ["write"] } });
    const last = await grandchild.fork({ id: "last", authority: { hiddenTools: [] } });
    const tools = async (troupe: Troupe) => {
      const names = [];
      for (const id of ["parent", "child", "grandchild", "last"]) names.push(await toolsOf(await troupe.session(id)));
      return names;
    };
    const expected = [["read", "shell", "write"], ["read", "write"], ["read"], ["read"]];
    expect(await tools(first)).toEqual(expected);
    expect(JSON.parse((await last.turn("hi")).text).tools).toEqual(["read"]);
    await first.close();
    expect(await tools(await startTroupe(options(path)))).toEqual(expected);
  });

  test("shows exactly the definitions it gives, and a child can have fewer of them and no others", async () => {
    const troupe = await startTroupe({ ...options(), model: fixture("models/calls-and-lists.mjs") });
    const parent = await troupe.session("parent");
    const narrowRead = spec("read", {
      description: "Read, in these words",
      inputSchema: { type: "object", maxProperties: 0 },
    });
    const child = await parent.fork({ id: "child", authority: { tools: [narrowRead, spec("write")] } });
    expect((await child.surface()).tools.map(({ name, description }) => [name, description])).toEqual([
      ["read", "Read, in these words"],
      ["write", "write"],
    ]);
    const calls = JSON.stringify([{ tool: "read" }, { tool: "read", args: { much: true } }, { tool: "shell" }]);
    expect((await child.turn(calls)).toolCalls.map(({ output }) => output)).toMatchObject([
      { status: "success", value: "read ran" },
      { failure: { code: "invalid_tool_args" } },
      { failure: { code: "tool_unavailable", message: "There is no tool called shell." } },
    ]);
    const fork = (...tools: ReturnType<typeof spec>[]) => child.fork({ authority: { tools } });
    expect(await toolsOf(await fork(spec("write")))).toEqual(["write"]);
    // What is not given is inherited, and so is what is given as nothing.
    expect(await toolsOf(await child.fork())).toEqual(["read", "write"]);
    expect(await toolsOf(await fork())).toEqual(["read", "write"]);
    const stranger = await refusalOf(fork(spec("write"), spec("shell")));
    expect([stranger.code, stranger.details]).toEqual(["authority_widened", { tool: "shell" }]);
    // The parent's name for another tool, or for the same one with more to ask of it, is another tool.
    expect(await refusalCode(fork(spec("write", { id: "shell" })))).toBe("authority_widened");
    expect(await refusalCode(fork(spec("read")))).toBe("authority_widened");
    expect(await toolsOf(await fork(narrowRead))).toEqual(["read"]);
  });

  test("is not its catalog overlay, which is inherited or replaced as a whole", async () => {
    const path = await tempFolder();
    const first = await createTroupe(options(path));
    const parent = await first.session("parent");
    await parent.turn("hi");
    const child = await parent.fork({ id: "child", catalog: { remove: ["shell", "no such tool"] } });
    expect(await toolsOf(child)).toEqual(["read", "write"]);
    expect(await toolsOf(await child.fork({ id: "same" }))).toEqual(["read", "write"]);
    expect(await toolsOf(await child.fork({ id: "other", catalog: { remove: ["read"] } }))).toEqual(["shell", "write"]);
    const all = await child.fork({ id: "all", catalog: { remove: [] } });
    expect(await toolsOf(all)).toEqual(["read", "shell", "write"]);
    // What is hidden stays hidden, whatever the overlay says.
    const hiding = await child.fork({ id: "hiding", authority: { hiddenTools: ["write"] } });
    expect(await toolsOf(await hiding.fork({ catalog: { remove: [] } }))).toEqual(["read", "shell"]);
    await first.close();
    const second = await startTroupe(options(path));
    expect(await toolsOf(await second.session("same"))).toEqual(["read", "write"]);
    expect(await toolsOf(await second.session("other"))).toEqual(["shell", "write"]);
    expect(JSON.parse((await (await second.session("child")).turn("hi")).text).tools).toEqual(["read", "write"]);
  });

  test("can do without a plugin only if the host says so; its children then do without it too", async () => {
    const path = await tempFolder();
    const stored: TroupeOptions = {
      ...options(path),
      plugins: [
        { ...PATIENT, module: plugin("told"), tier },
        { ...PATIENT, module: plugin("counter"), tier, optionalInChildren: true },
        { ...PATIENT, module: plugin("notes"), tier, optionalInChildren: true },
      ],
    };
    const counted = async (session: Session) =>
      (await collect(session.turn("hi"))).flatMap((activity) =>
        activity.type === "plugin_event" && activity.pluginId === "test.counter" ? [activity.event.payload] : [],
      );
    const first = await createTroupe(stored);
    const parent = await first.session("parent");
    await parent.turn("hi");
    await parent.command("notes.add", { text: "the parent's" });
    for (const pluginId of ["test.told", "troupe.standard"]) {
      const refused = await refusalOf(parent.fork({ id: "child", authority: { withoutPlugins: [pluginId] } }));
      expect([refused.code, refused.details]).toEqual(["plugin_not_droppable", { pluginId }]);
    }
    const child = await parent.fork({ id: "child", authority: { withoutPlugins: ["test.counter"] } });
    expect(await counted(child)).toEqual([]);
    expect(await toolsOf(child)).toEqual(["read", "shell", "write"]);
    const grandchild = await child.fork({ id: "grandchild", authority: { withoutPlugins: ["test.notes"] } });
    expect(await counted(grandchild)).toEqual([]);
    expect(await refusalCode(grandchild.query("notes.list"))).toBe("operation_unknown");
    expect(await child.query("notes.list")).toEqual(["the parent's"]);
    // Nothing of it is lost in the parent.
    expect(await counted(parent)).toEqual([2]);
    await first.close();
    const second = await startTroupe(stored);
    expect(await counted(await second.session("grandchild"))).toEqual([]);
    expect(await counted(await second.session("parent"))).toEqual([3]);
    expect(await (await second.session("parent")).query("notes.list")).toEqual(["the parent's"]);
  });
});

describe.each(["worker", "inline"] as const)("a session that a plugin makes, in the tier %s", (tier) => {
  test("is no wider than the one it is made from, as a child and as a root of its own", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 2,
      plugins: ["steward", "bookkeeper"].map((name) => ({ ...PATIENT, module: plugin(name), tier })),
      tools: TOOLS,
    });
    const create = async (session: Session, request: object) =>
      (await session.command("steward.create", request)).output as { code?: string; answer?: object };
    const root = await troupe.session("root");
    await root.turn("add one");
    const parent = await root.fork({ id: "parent", authority: { hiddenTools: ["shell"] } });
    const own = ["ask", "lend", "read", "write"];

    const made = { sessionId: "child", authority: { hiddenTools: ["ask"] } };
    expect(await create(parent, made)).toMatchObject({ answer: { sessionId: "child", parentSessionId: "parent" } });
    const child = await troupe.session("child");
    expect(await toolsOf(child)).toEqual(["lend", "read", "write"]);
    expect((await child.query<{ entries: string[] }>("ledger.show")).entries).toEqual(["one"]);

    await create(parent, { sessionId: "apart", relation: "root", pluginSource: "fresh" });
    const apart = await troupe.session("apart");
    expect((await apart.view()).parentSessionId).toBe(null);
    expect(await toolsOf(apart)).toEqual(own);
    expect((await apart.query<{ entries: string[] }>("ledger.show")).entries).toEqual([]);

    await create(parent, { sessionId: "copy", start: { kind: "existing_session", sessionId: "apart" } });
    expect(await toolsOf(await troupe.session("copy"))).toEqual(own);
    expect(await create(parent, { start: { kind: "existing_session", sessionId: "root" } })).toMatchObject({
      code: "session_not_visible",
    });
    expect(await create(parent, { authority: { withoutPlugins: ["test.ledger"] } })).toMatchObject({
      code: "plugin_not_droppable",
    });
    for (const request of [
      { authority: { hiddenTools: "write" } },
      { authority: { withoutPlugins: "test.ledger" } },
      { authority: { tools: ["write"] } },
      { catalog: {} },
    ]) {
      expect(await create(parent, request)).toMatchObject({ code: "invalid_session_request" });
      expect(await refusalCode(parent.fork(request as never))).toBe("invalid_fork");
    }
  });
});

test("a fork writes its head and what it has that its parent has not; history never", async () => {
  const path = await tempFolder();
  const troupe = await startTroupe({
    sessionWorkers: 2,
    store: { path },
    plugins: [
      { ...PATIENT, module: plugin("counter") },
      { ...PATIENT, module: plugin("bookkeeper") },
    ],
    tools: TOOLS,
  });
  const parent = await troupe.session("parent");
  for (let turn = 0; turn < 20; turn++) await parent.turn(`add ${turn}`);
  const cost = async (fork: () => Promise<Session>) => {
    const before = await writes(troupe);
    const session = await fork();
    const after = await writes(troupe);
    const cost = { transactions: after.transactions - before.transactions, records: after.records - before.records };
    return { session, cost };
  };
  const [head, headAndAuthority] = [
    { transactions: 1, records: 1 },
    { transactions: 1, records: 2 },
  ];
  const plain = await cost(() => parent.fork({ id: "plain" }));
  expect(plain.cost).toEqual(head);
  const narrow = await cost(() => parent.fork({ id: "narrow", authority: { hiddenTools: ["shell"] } }));
  expect(narrow.cost).toEqual(headAndAuthority);
  expect((await cost(() => narrow.session.fork({ id: "same" }))).cost).toEqual(head);
  const again = await cost(() => narrow.session.fork({ id: "again", authority: { hiddenTools: ["shell"] } }));
  expect(again.cost).toEqual(head);
  expect((await plain.session.view()).messageCount).toBe(40);
  expect((await plain.session.view()).components).toEqual((await parent.view()).components);
});
