import { type PluginEntry, type Session, scriptedModel, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import { collect, plugin, RESIDENT, refusalOf, startTroupe, until } from "../../support/runtime.js";

const IDS = ["one", "two", "three"];
const entries = (more: Partial<PluginEntry> = {}): PluginEntry[] =>
  IDS.map((id) => ({ module: `${plugin("grouped")}?id=${id}`, group: "ours", blockedMs: 60_000, ...more }));

async function started(options: TroupeOptions = {}) {
  const troupe = await startTroupe({ ...RESIDENT, sessionWorkers: 1, plugins: entries(), ...options });
  return { troupe, session: await troupe.session("s") };
}
const askedOf = (session: Session) => session.query<string[]>("one.asked");
const turnsOf = (session: Session) => Promise.all(IDS.map((id) => session.query<number>(`${id}.turns`)));
const oslo = scriptedModel({
  turns: [[{ toolCalls: [{ tool: "weather", args: { city: "Oslo" } }] }, { text: "done" }]],
});
const weather = {
  description: "The weather in a city",
  inputSchema: { type: "object", properties: { city: { type: "string" } } },
  execute: ({ city }: { city: string }) => `sunny in ${city}`,
} as const;

describe("hooks of plugins in one group", () => {
  test("cross in one message a kind, there and back, and are asked in their order", async () => {
    const { troupe, session } = await started();
    await session.turn("hi");
    const before = (await troupe.stats()).hookMessages;
    await session.turn("hi");
    const after = (await troupe.stats()).hookMessages;
    // beforeTurn, assistantStream, assistantResponse, afterTurn.
    expect([after.sent - before.sent, after.received - before.received]).toEqual([4, 4]);
    expect((await askedOf(session)).slice(6)).toEqual(
      ["beforeTurn", "afterTurn"].flatMap((kind) => IDS.map((id) => `${id} ${kind}`)),
    );
  });

  test("stand before and behind one of another thread, and all of them are asked", async () => {
    const apart = { module: `${plugin("grouped")}?id=apart`, blockedMs: 60_000 };
    const [one, two, three] = entries() as [PluginEntry, PluginEntry, PluginEntry];
    const { session } = await started({ plugins: [one, two, apart, three] });
    expect((await session.turn("hi")).outcome.type).toBe("finished");
    expect(await turnsOf(session)).toEqual([1, 1, 1]);
    expect(await session.query("apart.turns")).toBe(1);
  });

  test("pass on what flows through them: each sees the text as the one before it left it", async () => {
    const { session } = await started({ model: scriptedModel({ turns: [[{ text: "hi " }]] }) });
    expect((await session.turn("hi")).text).toBe("hi ott");
  });

  test("are each measured by what they took themselves", async () => {
    const { troupe, session } = await started();
    await session.turn("hi");
    const { hooks } = await troupe.stats();
    expect(IDS.map((id) => hooks[`plugin_hook.before_turn.${id}`]?.count)).toEqual([1, 1, 1]);
  });

  test("are told of an input that is one plugin's own alone", async () => {
    const { session } = await started();
    await session.turn("hi", { pluginInputs: { two: "for two" } });
    expect((await askedOf(session)).slice(0, 3)).toEqual([
      "one beforeTurn",
      "two beforeTurn for two",
      "three beforeTurn",
    ]);
  });

  test("do not see what another one did to what it was told", async () => {
    const { session } = await started({ model: oslo, tools: { weather } });
    await session.turn("one mutates");
    const calls = (await askedOf(session)).filter((line) => line.includes("beforeToolCall"));
    expect(calls).toEqual(IDS.map((id) => `${id} beforeToolCall {"city":"Oslo"}`));
  });

  test("inspect arguments that one replaced as they do on threads of their own", async () => {
    const lines = async (plugins: PluginEntry[]) => {
      const { session } = await started({ model: oslo, tools: { weather }, plugins });
      await session.turn("two replaces");
      return Promise.all(IDS.map((id) => session.query<string[]>(`${id}.asked`)));
    };
    const [together] = await lines(entries());
    const apart = await lines(entries().map(({ group: _, ...entry }) => ({ ...entry, isolation: "shared" })));
    for (const [n, id] of IDS.entries())
      expect(together?.filter((line) => line.startsWith(id))).toEqual(apart[n]?.filter((line) => line.startsWith(id)));
    expect(together?.filter((line) => line.includes("beforeToolCall"))).toEqual([
      'one beforeToolCall {"city":"Oslo"}',
      'two beforeToolCall {"city":"Oslo"}',
      'one beforeToolCall {"city":"Bergen"}',
      'three beforeToolCall {"city":"Bergen"}',
    ]);
  });

  test.each([
    ["throws", "hook_failed"],
    ["bad", "invalid_directive"],
  ])("end with the error of the first that %s; those behind one that throws are not asked", async (deed) => {
    const { session } = await started();
    const { cause } = await refusalOf(session.turn(`two ${deed}`));
    expect((cause as Error).message).toMatch(/two/);
    if (deed === "throws") expect(await askedOf(session)).toEqual(["one beforeTurn", "two beforeTurn"]);
  });

  test("go on behind one that fails and is to be skipped, once each", async () => {
    const { session } = await started({ plugins: entries({ onFailure: "skip" }) });
    const activities = await collect(session.turn("two throws"));
    expect(activities.flatMap((each) => (each.type === "plugin_event" ? each.pluginId : []))).toEqual(["one", "three"]);
    expect((await askedOf(session)).slice(0, 3)).toEqual(IDS.map((id) => `${id} beforeTurn`));
  });

  test("that wait for something are waited for in their order, each asked once", async () => {
    const { session } = await started();
    const activities = await collect(session.turn("one waits two waits"));
    expect(activities.flatMap((each) => (each.type === "plugin_event" ? each.pluginId : []))).toEqual(IDS);
    expect((await askedOf(session)).slice(0, 3)).toEqual(IDS.map((id) => `${id} beforeTurn`));
    expect(await turnsOf(session)).toEqual([1, 1, 1]);
  });

  test("that hang miss their own deadline, and the answers before them are not lost", async () => {
    const { session } = await started({ plugins: entries({ deadlineMs: 300, onFailure: "skip" }) });
    const activities = await collect(session.turn("two hangs"));
    expect(activities.flatMap((each) => (each.type === "plugin_event" ? each.pluginId : []))).toEqual(["one", "three"]);
    const end = activities.at(-1);
    expect(end).toMatchObject({ type: "turn_finished" });
    expect((await session.turn("hi")).issues).toEqual([]);
  });

  test("ask for host services in their own name, before and behind an await", async () => {
    const { troupe, session } = await started();
    await session.turn("one asks three asks");
    const { sessions } = await troupe.listSessions({ prefix: "s-child" });
    expect(sessions.map(({ id }) => id)).toEqual([
      "s-child-one-1",
      "s-child-one-2",
      "s-child-three-1",
      "s-child-three-2",
    ]);
    expect(await turnsOf(session)).toEqual([1, 1, 1]);
  });

  test("that are under way when the thread is killed are asked again, and what they asked the host for is done once", async () => {
    const { troupe, session } = await started();
    await session.turn("hi");
    const other = await troupe.session("other");
    const turn = session.turn("one asks two waits");
    await troupe.kill({ plugin: "two" });
    await Promise.all([turn, other.turn("hi")]);
    const { sessions } = await troupe.listSessions({ prefix: "s-child" });
    expect(sessions.length).toBe(2);
  });

  test.each(["exits", "spins"])("fail alone when one of them %s: its own host takes it from then on", async (deed) => {
    const { troupe, session } = await started({ plugins: entries({ blockedMs: 100, onFailure: "skip" }) });
    const good = await Promise.all(["a", "b"].map((id) => troupe.session(id)));
    await Promise.all([session, ...good].map((each) => each.turn("hi")));
    const [hurt, ...others] = await Promise.all([session.turn(`two ${deed}`), ...good.map((each) => each.turn("hi"))]);
    expect(hurt?.issues).toMatchObject([
      { pluginId: "two", code: deed === "spins" ? "plugin_blocked" : "worker_lost" },
    ]);
    expect(others.flatMap(({ issues }) => issues)).toEqual([]);
    await until("it has a host of its own", async () => {
      await good[0]?.turn("hi");
      const [one, two, three] = (await troupe.stats()).plugins;
      return (
        two !== undefined && two.threadId > 0 && two.threadId !== one?.threadId && one?.threadId === three?.threadId
      );
    });
    const [counted] = await turnsOf(good[1] as Session);
    expect(await turnsOf(good[1] as Session)).toEqual([counted, counted, counted]);
    expect(counted).toBe(2);
    expect((await session.turn("hi")).issues).toEqual([]);
  });
});
