import { all, race, type Session, scriptedModel } from "troupe";
import { describe, expect, test } from "vitest";
import {
  firstToolValue,
  oneToolCall,
  PATIENT,
  plugin,
  refusalOf,
  startTroupe,
  tempFolder,
} from "../../support/runtime.js";

const ECHO = scriptedModel({ turns: [[{ text: "{input}" }]] });
const said = async (session: Session) =>
  (await session.messages()).flatMap(({ parts }) => parts.map((part) => (part.type === "text" ? part.text : "")));
const nodeOf = async (session: Session, text: string) =>
  (await session.tree()).find((message) => message.text === text)?.node ?? "";

describe("a session's tree", () => {
  test("shows the conversation and what was forked from it, each message once and behind its parent", async () => {
    const troupe = await startTroupe({ model: ECHO });
    const session = await troupe.session("s");
    expect(await session.tree()).toEqual([]);
    await session.turn("one");
    const child = await session.fork({ id: "child" });
    await session.turn("two");
    await child.turn("other");
    await session.park();
    expect(await session.tree()).toEqual([
      { node: "s@1.0", parent: null, active: true, role: "user", text: "one" },
      { node: "s@1.1", parent: "s@1.0", active: true, role: "assistant", text: "one" },
      { node: "s@2.0", parent: "s@1.1", active: true, role: "user", text: "two" },
      { node: "s@2.1", parent: "s@2.0", active: true, role: "assistant", text: "two" },
      { node: "child@2.0", parent: "s@1.1", active: false, role: "user", text: "other" },
      { node: "child@2.1", parent: "child@2.0", active: false, role: "assistant", text: "other" },
    ]);
    expect((await session.info()).state).toBe("parked");
  });
});

describe("a fork at a node", () => {
  test("has the history up to it, counts on from its turn, and writes none of it", async () => {
    const troupe = await startTroupe({ model: ECHO, store: { path: await tempFolder() } });
    const session = await troupe.session("s");
    for (const input of ["one", "two", "three"]) await session.turn(input);
    const before = (await troupe.stats()).store.records;
    const child = await session.fork({ id: "child", at: "s@2.1" });
    expect((await troupe.stats()).store.records - before).toBe(1);
    expect(await said(child)).toEqual(["one", "one", "two", "two"]);
    expect((await child.info()).turns).toBe(2);
    expect(await child.turn("else")).toMatchObject({ turnIndex: 3, turnId: "t3" });
    expect(await said(session)).toEqual(["one", "one", "two", "two", "three", "three"]);
  });

  test("in the middle of a turn counts that turn, so that no message has the id of another", async () => {
    const troupe = await startTroupe({ model: ECHO });
    const session = await troupe.session("s");
    for (const input of ["one", "two"]) await session.turn(input);
    const child = await session.fork({ at: "s@2.0" });
    await child.turn("else");
    expect(await said(child)).toEqual(["one", "one", "two", "else", "else"]);
    const ids = (await child.messages()).map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
  });

  test("of another branch that began here, and of messages that no turn added", async () => {
    const troupe = await startTroupe({ model: ECHO });
    const session = await troupe.session("s");
    await session.append({ nodes: [{ kind: "message", message: { role: "user", text: "before all turns" } }] });
    await session.turn("one");
    const child = await session.fork({ id: "child" });
    await child.turn("other");
    const ofChild = await session.fork({ at: await nodeOf(session, "other") });
    expect(await said(ofChild)).toEqual(["before all turns", "one", "one", "other"]);
    const first = await session.fork({ at: await nodeOf(session, "before all turns") });
    expect((await first.info()).turns).toBe(0);
    expect((await first.turn("hi")).turnIndex).toBe(1);
  });

  test("takes the plugins' state of now along, or none", async () => {
    const troupe = await startTroupe({
      plugins: [{ module: plugin("counter"), ...PATIENT }],
      model: oneToolCall("count"),
    });
    const session = await troupe.session("s");
    for (const input of ["one", "two"]) await session.turn(input);
    const at = (await session.tree()).filter(({ role }) => role === "user")[1]?.parent as string;
    expect(firstToolValue(await (await session.fork({ at })).turn("hi"))).toBe(3);
    expect(firstToolValue(await (await session.fork({ at, pluginState: "fresh" })).turn("hi"))).toBe(1);
  });

  test("is refused at a node nobody knows, of a stranger, and between a tool call and its result", async () => {
    const troupe = await startTroupe({
      plugins: [{ module: plugin("counter"), ...PATIENT }],
      model: oneToolCall("count"),
    });
    const [session, stranger] = [await troupe.session("s"), await troupe.session("stranger")];
    await session.turn("one");
    await stranger.turn("one");
    for (const at of ["s@1.99", "s@7.0", "", "s@1.01", "stranger@1.0"]) {
      expect([at, (await refusalOf(session.fork({ at }))).code]).toEqual([at, "node_unknown"]);
    }
    expect((await refusalOf(session.fork({ at: "s@1.1" }))).code).toBe("node_unanswered");
    expect((await refusalOf((await troupe.session("new")).fork({ at: "s@1.0" }))).code).toBe("node_unknown");
  });
});

describe("children of one place", () => {
  test("can all be asked, each going its own way", async () => {
    const troupe = await startTroupe({ model: ECHO });
    const session = await troupe.session("s");
    await session.turn("one");
    const children = await session.fork(3, { id: "s/idea" });
    expect(children.map(({ id }) => id)).toEqual(["s/idea/1", "s/idea/2", "s/idea/3"]);
    const results = await all(children, "go");
    expect(results.map(({ sessionId, turnIndex }) => [sessionId, turnIndex])).toEqual([
      ["s/idea/1", 2],
      ["s/idea/2", 2],
      ["s/idea/3", 2],
    ]);
  });

  test("can race: the first that finishes wins, and the others are cancelled", async () => {
    const slow = scriptedModel({ turns: [[{ text: "slow", delayMs: 60_000 }]] });
    const troupe = await startTroupe({ model: ECHO, models: { slow } });
    const children = await (await troupe.session("s")).fork(3);
    for (const child of children.slice(1)) await child.configure({ model: "slow" });
    const { winner, result } = await race(children, "go");
    expect([winner.id, result.text]).toEqual([children[0]?.id, "go"]);
    // Cancelled turns are over: their sessions take the next one.
    for (const child of children.slice(1)) {
      await child.configure({ model: null });
      expect((await child.turn("still here")).text).toBe("still here");
    }
  });

  test("are all or none: what was made beside one that cannot be is closed again", async () => {
    const troupe = await startTroupe({ model: ECHO });
    const session = await troupe.session("s");
    await session.turn("one");
    await session.fork({ id: "c/2" });
    expect((await refusalOf(session.fork(3, { id: "c" }))).code).toBe("session_exists");
    expect((await refusalOf(troupe.move("c/1", 0))).code).toBe("session_unknown");
  });

  test.each([0, -1, 1.5, Number.NaN])("are at least one: %d is refused", async (count) => {
    const troupe = await startTroupe({ model: ECHO });
    const session = await troupe.session("s");
    expect((await refusalOf(session.fork(count))).code).toBe("invalid_options");
  });

  test("race without a winner says how each ended", async () => {
    const broken = scriptedModel({
      turns: [[{ text: "x", fail: { code: "model_refused", message: "no", status: 400 } }]],
    });
    const troupe = await startTroupe({ model: broken });
    const children = await (await troupe.session("s")).fork(2, { id: "c" });
    const refusal = await refusalOf(race(children, "go"));
    expect([refusal.code, refusal.details]).toEqual([
      "race_without_winner",
      { ends: ["c/1: stopped", "c/2: stopped"] },
    ]);
    expect((await refusalOf(race([], "go"))).code).toBe("race_without_winner");
  });
});
