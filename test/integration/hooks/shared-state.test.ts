import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type PluginEntry, type Session, scriptedModel, type Troupe, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import { counted, gates } from "../../support/journaled.js";
import { EMPTY_OBJECT, PATIENT, plugin, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

const module = (query = "") => new URL(`${plugin("shares")}${query}`);
const shares = (entry: Partial<PluginEntry> = {}, query = ""): PluginEntry => ({
  module: module(query),
  ...PATIENT,
  ...entry,
});
const noop = { description: "Does nothing", inputSchema: EMPTY_OBJECT, execute: () => "ok" };
/** One call of `noop`, then the answer. */
const calls = scriptedModel({
  turns: [[{ toolCalls: [{ tool: "noop", args: {} }] }, { text: "{tool_result}" }]],
});
const start = (options: TroupeOptions) => startTroupe({ sessionWorkers: 2, model: calls, tools: { noop }, ...options });
const sharedOf = async (troupe: Troupe, key: string, id = "test.shares") => (await troupe.shared.get(id, key))?.state;
const change = async (session: Session, ...changes: readonly string[]) =>
  (await session.command("shared.change", { changes })).output as readonly unknown[];
const all = <T>(count: number, make: (index: number) => Promise<T>) =>
  Promise.all(Array.from({ length: count }, (_, index) => make(index)));

describe("a tenant's limit", () => {
  const limited = (entry: Partial<PluginEntry> = {}) => shares({ options: { max: 5 }, ...entry });

  test.each([
    ["a thread for every session", { isolation: "session" as const }],
    ["one thread", {}],
    ["both session workers, inline", { tier: "inline" as const }],
  ])("is counted over %s and never past it", async (_where, entry) => {
    const troupe = await start({ plugins: [limited(entry)] });
    const sessions = await all(4, (index) => troupe.session(`s${index}`, { tenant: "acme" }));
    const results = await Promise.all(sessions.flatMap((session) => [session.turn("go"), session.turn("go")]));
    const values = results.flatMap(({ toolCalls }) => toolCalls.map(({ output }) => output.status));
    expect(values.filter((status) => status === "success")).toHaveLength(5);
    expect(values.filter((status) => status === "failure")).toHaveLength(3);
    expect(await sharedOf(troupe, "acme")).toMatchObject({ tools: 8, beforeTurn: 8 });
    const other = await (await troupe.session("other", { tenant: "else" })).turn("go");
    expect(other.toolCalls[0]?.output.status).toBe("success");
  });

  test("survives the death of the plugin's thread, the session worker's and a restart", async () => {
    const store = { path: join(await tempFolder(), "store") };
    const troupe = await start({ plugins: [limited()], store });
    const session = await troupe.session("s", { tenant: "acme" });
    await session.turn("go");
    await troupe.kill({ plugin: "test.shares" });
    await session.turn("go");
    await troupe.kill({ sessionWorker: 0 });
    await troupe.kill({ sessionWorker: 1 });
    await session.turn("go");
    await troupe.close();
    const again = await start({ plugins: [limited()], store });
    expect(await sharedOf(again, "acme")).toMatchObject({ tools: 3 });
    const other = await again.session("other", { tenant: "acme" });
    const outcomes = [];
    for (let n = 0; n < 3; n++) outcomes.push((await other.turn("go")).toolCalls[0]?.output.status);
    expect(outcomes).toEqual(["success", "success", "failure"]);
  });

  test("counts a call once whose thread dies after it was counted", async () => {
    const file = join(await tempFolder(), "go on");
    const options = { max: 5, wait: file };
    const entry = shares({ options, deadlineMs: 60_000, permissions: { read: [file] } });
    const troupe = await start({ plugins: [entry] });
    const session = await troupe.session("s", { tenant: "acme" });
    const turn = session.turn("go");
    await until("it is counted", async () => ((await sharedOf(troupe, "acme")) as { tools?: number })?.tools === 1);
    await troupe.kill({ plugin: "test.shares" });
    await writeFile(file, "");
    expect((await turn).outcome).toMatchObject({ type: "finished", text: "ok" });
    expect(await sharedOf(troupe, "acme")).toMatchObject({ tools: 1 });
    const { plugins } = await troupe.stats();
    expect(plugins.map(({ restarts }) => restarts)).toEqual([1]);
  });
});

test.each(["worker", "inline"] as const)(
  "a hook of a plugin in the tier %s that a crash makes again counts once",
  async (tier) => {
    const gate = gates();
    const counting = ["beforeTurn", "afterTurn", "checkpoint", "assistantStream"];
    const { start } = await counted({
      plugins: [shares({ tier, options: { counting, max: 9 } })],
      tools: { wait: gate.tool("wait") },
    });
    const troupe = await start();
    const session = await troupe.session("s", { tenant: "acme" });
    const turn = session.turn("wait answer");
    await until("the tool runs", () => gate.calls.length === 1);
    const before = (await sharedOf(troupe, "acme")) as { others: number };
    expect(before).toMatchObject({ beforeTurn: 1, tools: 1 });
    await troupe.kill({ sessionWorker: 0 });
    await until("the tool runs again", () => gate.calls.length === 2);
    expect(await sharedOf(troupe, "acme")).toEqual(before);
    gate.open("wait");
    expect((await turn).text).toBe("answer");
    // Without a crash the same turn counts the same.
    const calm = await troupe.session("calm", { tenant: "calm" });
    const turns = calm.turn("wait answer");
    await until("the tool runs", () => gate.calls.length === 3);
    gate.open("wait");
    await turns;
    expect(await sharedOf(troupe, "acme")).toEqual(await sharedOf(troupe, "calm"));
  },
);

test("n updates at once are n, from sessions, calls and threads of any number", async () => {
  const troupe = await start({ plugins: [shares({ isolation: "session" })] });
  const sessions = await all(5, (index) => troupe.session(`s${index}`, { tenant: "acme" }));
  await Promise.all(sessions.map((session) => change(session, ...Array(40).fill("add"))));
  expect(await sharedOf(troupe, "acme")).toMatchObject({ others: 200 });
});

test("of turns whose plugin threads are killed at random, each that finished is counted once and none twice", async () => {
  const troupe = await start({ plugins: [shares({ isolation: "session" })], tools: { noop } });
  const sessions = await all(4, (index) => troupe.session(`s${index}`, { tenant: "acme" }));
  let finished = 0;
  let refused = 0;
  const running = Promise.all(
    sessions.map(async (session) => {
      for (let turn = 0; turn < 8; turn++)
        await session.turn("go").then(
          () => finished++,
          () => refused++,
        );
    }),
  );
  for (let deaths = 0; deaths < 3; deaths++) {
    await until("some turns are through", () => finished + refused > deaths * 8);
    await troupe.kill({ plugin: "test.shares" });
  }
  await running;
  const { beforeTurn } = (await sharedOf(troupe, "acme")) as { beforeTurn: number };
  expect(finished + refused).toBe(32);
  expect(beforeTurn).toBeGreaterThanOrEqual(finished);
  // A hook that was on the thread when it died failed its turn, and may have counted before.
  expect(beforeTurn).toBeLessThanOrEqual(finished + refused);
});

test("is the same for forks, children and whoever else has the key, and stays when sessions are deleted", async () => {
  const troupe = await start({ plugins: [shares()] });
  const session = await troupe.session("s", { tenant: "acme" });
  await session.turn("go");
  const fork = await session.fork({ id: "fork" });
  await fork.turn("go");
  expect(await fork.query("shared.read", {})).toMatchObject({ beforeTurn: 2 });
  await troupe.deleteSession("s");
  await troupe.deleteSession("fork");
  expect(await sharedOf(troupe, "acme")).toMatchObject({ beforeTurn: 2 });
});

test("one plugin does not see another's, whatever their ids and keys", async () => {
  const plugins = [shares({}, "?id=a"), shares({ options: { max: 1 } }, "?id=a-b&bare=1")];
  const troupe = await start({ plugins });
  const session = await troupe.session("s", { tenant: "b:k" });
  await change(session, "add");
  await session.turn("go");
  expect(await sharedOf(troupe, "b:k", "a")).toEqual({ beforeTurn: 1, tools: 0, others: 1 });
  expect(await sharedOf(troupe, "b:k", "a-b")).toEqual({ beforeTurn: 1, tools: 1, others: 0 });
  expect((await troupe.shared.list("a")).entries.map(({ key }) => key)).toEqual(["b:k"]);
});

test.each(["worker", "inline"] as const)("an update that leaves no state is refused in the tier %s", async (tier) => {
  const troupe = await start({ plugins: [shares({ tier }, "?schema=1")] });
  const session = await troupe.session("s", { tenant: "acme" });
  const left = await change(session, "throws", "async", "function", "map", "large", "wrong");
  expect(left).toEqual([
    { error: "I will not." },
    { error: "shared_state_invalid" },
    { error: "unserialisable" },
    { error: "unserialisable" },
    { error: "shared_state_invalid" },
    { error: "shared_state_invalid" },
  ]);
  expect(await sharedOf(troupe, "acme")).toBeUndefined();
  expect(await session.query("shared.writes", {})).toEqual({ error: "shared_unavailable" });
  const [halves, returned] = await change(session, "halves", "returns");
  expect(halves).toMatchObject({ text: "\ufffd" });
  expect(returned).toMatchObject({ others: 10, text: "\ufffd" });
});

test.each([["wrong"], ["long"], ["broken"]])("a key that is %s is refused before anything is stored", async (key) => {
  const troupe = await start({ plugins: [shares({}, `?key=${key}`)] });
  const session = await troupe.session("s", { tenant: "acme" });
  const [answer] = await change(session, "add");
  expect(answer).toEqual({ error: "shared_key_invalid" });
  expect((await refusalOf(session.turn("go"))).message).toContain("1 to 256 bytes");
});

test("state of another version of the plugin is turned into this one's, where the plugin says how", async () => {
  const store = { path: join(await tempFolder(), "store") };
  const first = await start({ plugins: [shares()], store });
  await (await first.session("s", { tenant: "acme" })).turn("go");
  await first.close();
  const troupe = await start({ plugins: [shares({}, "?version=1.1.0&migrates=1")], store });
  const session = await troupe.session("s");
  expect(await session.query("shared.read", {})).toMatchObject({ beforeTurn: 1, from: "1.0.0" });
  expect(await troupe.shared.get("test.shares", "acme")).toMatchObject({ pluginVersion: "1.0.0", version: 1 });
});

test("an update in beforeTurn costs one write, with the journal's row of its answer in it, and one more for what the turn is asked with", async () => {
  const store = { path: join(await tempFolder(), "store") };
  const hello = scriptedModel({ turns: [[{ text: "hello" }]] });
  const plugins = [shares({ options: { counting: [] } }), shares({}, "?id=b&bare=1")];
  const written = async (plugins: readonly PluginEntry[]) => {
    const troupe = await start({ plugins, store, model: hello });
    const session = await troupe.session("s", { tenant: "acme" });
    await session.turn("go");
    const { commits, recorded, records } = (await troupe.stats()).store;
    await session.turn("go");
    const after = (await troupe.stats()).store;
    await troupe.close();
    return [after.commits - commits, after.recorded - recorded, after.records - records];
  };
  const without = await written(plugins.slice(0, 1));
  const withOne = await written(plugins);
  // The update: a journal row and the row of the shared state. It has the turn's beginning written before the turn is
  // prepared, so what the turn is asked with has a row of its own in place of riding with the beginning.
  expect(withOne.map((count, index) => count - (without[index] ?? 0))).toEqual([0, 2, 3]);
});

test("a plugin without shared state, and one whose session is still being opened, are told so", async () => {
  const restored = await start({ plugins: [shares({ options: { restored: true } })] });
  const refusal = await refusalOf(restored.session("s"));
  expect(refusal.message).toContain("sessionRestored");
  const troupe = await start({ plugins: [{ module: plugin("undeclared-shared"), ...PATIENT }] });
  const { code, cause } = await refusalOf((await troupe.session("s")).turn("go"));
  expect([code, (cause as { code?: string }).code]).toEqual(["plugin_prepare_turn", "shared_unavailable"]);
});

test("the host reads, pages and deletes what plugins share", async () => {
  const troupe = await start({ plugins: [shares()] });
  for (const tenant of ["b", "a", "c"]) await (await troupe.session(`s-${tenant}`, { tenant })).turn("go");
  const { entries, next } = await troupe.shared.list("test.shares", { limit: 2 });
  expect(entries.map(({ key, version }) => [key, version])).toEqual([
    ["a", 1],
    ["b", 1],
  ]);
  expect(await troupe.shared.list("test.shares", { after: next ?? "", limit: 2 })).toMatchObject({
    entries: [{ key: "c" }],
    next: null,
  });
  expect(await troupe.shared.delete("test.shares", "a")).toBe(true);
  expect(await troupe.shared.delete("test.shares", "a")).toBe(false);
  expect(await troupe.shared.get("test.shares", "a")).toBeUndefined();
  await (await troupe.session("s-a")).turn("go");
  expect(await sharedOf(troupe, "a")).toMatchObject({ beforeTurn: 1 });
  expect((await refusalOf(troupe.shared.list("test.shares", { limit: 0 }))).code).toBe("invalid_options");
  expect((await refusalOf(troupe.shared.get("", "a"))).code).toBe("invalid_options");
});
