import { createTroupe, pendingTool, scriptedModel, type Troupe, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import {
  EMPTY_OBJECT,
  firstToolValue,
  oneToolCall,
  PATIENT,
  plugin,
  RESIDENT,
  refusalOf,
  registers,
  startTroupe,
  until,
} from "../../support/runtime.js";

const ECHO = scriptedModel({ turns: [[{ text: "{input}" }]] });
/** Sessions are parked when a test says so, and at no other time. */
const start = (options: TroupeOptions = {}) => startTroupe({ ...RESIDENT, ...options });
const residents = async (troupe: Troupe) => (await troupe.stats()).sessions;

describe("a parked session", () => {
  test("can be brought back before anybody asks something of it", async () => {
    const troupe = await start({});
    const session = await troupe.session("s");
    await session.turn("one");
    await session.park();
    await session.resume();
    expect(await residents(troupe)).toEqual({ resident: 1, parked: 0 });
    await session.resume();
    expect((await session.turn("two")).turnIndex).toBe(2);
  });

  test.each(["worker", "inline"] as const)(
    "comes back with the next turn as it was, plugin state in the tier %s included",
    async (tier) => {
      const troupe = await start({
        plugins: [{ module: plugin("counter"), tier, ...PATIENT }],
        model: oneToolCall("count"),
      });
      const session = await troupe.session("s");
      await session.turn("one");
      await session.park();
      expect(await residents(troupe)).toEqual({ resident: 0, parked: 1 });
      const result = await session.turn("two");
      expect([result.turnIndex, result.revision, firstToolValue(result)]).toEqual([2, 2, 2]);
      expect(await residents(troupe)).toEqual({ resident: 1, parked: 0 });
    },
  );

  test("can be asked for its info without coming back", async () => {
    const troupe = await start();
    const session = await troupe.session("s");
    await session.turn("hi");
    const before = await session.info();
    await session.park();
    expect(await session.info()).toEqual({ ...before, state: "parked" });
    expect(await residents(troupe)).toEqual({ resident: 0, parked: 1 });
  });

  test("is woken by whatever is asked of it", async () => {
    const troupe = await start({ model: ECHO });
    const session = await troupe.session("s");
    await session.turn("hi");
    const asked: (() => Promise<unknown>)[] = [
      () => session.view(),
      () => session.messages(),
      () => session.spending(),
      () => session.surface(),
      () => session.inputs(),
      () => session.configure({ instructions: "Be brief." }),
      () => session.append({ nodes: [{ kind: "message", message: { role: "user", text: "by the way" } }] }),
      () => session.fork(),
      () => troupe.session("s"),
    ];
    for (const ask of asked) {
      await session.park();
      expect((await session.info()).state).toBe("parked");
      await ask();
      expect((await session.info()).state).toBe("idle");
    }
    await session.park();
    await session.enqueue("in a while");
    await until("the input was taken", async () => (await session.info()).turns === 2);
  });

  test("keeps the plugin options it was opened with", async () => {
    const troupe = await start({ plugins: [{ module: registers("test.registers"), ...PATIENT }] });
    const session = await troupe.session("s", {
      pluginOptions: { "test.registers": { queries: ["mine"] } },
    });
    const before = await session.surface();
    await session.turn("hi");
    await session.park();
    expect(await session.surface()).toEqual(before);
  });

  test("takes as many turns while it comes back as it would have taken in memory", async () => {
    const troupe = await start({ mailboxLimit: 2, model: ECHO });
    const session = await troupe.session("s");
    await session.turn("first");
    await session.park();
    const settled = await Promise.allSettled(["1", "2", "3", "4"].map((input) => session.turn(input)));
    expect(settled.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "fulfilled", "rejected"]);
  });

  test("is closed like any other, and then begins with nothing left over", async () => {
    const troupe = await start();
    const session = await troupe.session("s");
    await session.turn("hi");
    await session.park();
    await session.close();
    expect(await residents(troupe)).toEqual({ resident: 0, parked: 0 });
    expect((await (await troupe.session("s")).turn("again")).turnIndex).toBe(2);
  });

  test("that never had a turn is stored when a host parks it", async () => {
    const troupe = await start({
      plugins: [{ module: plugin("counter"), ...PATIENT }],
      model: oneToolCall("count"),
    });
    const session = await troupe.session("s");
    await session.park();
    expect((await session.info()).state).toBe("parked");
    expect(firstToolValue(await session.turn("one"))).toBe(1);
  });

  test("shows who watches it everything, without a gap", async () => {
    const troupe = await start({ model: ECHO });
    const session = await troupe.session("s");
    const seen: string[] = [];
    const watching = (async () => {
      for await (const { event } of session.observe()) {
        if (event.type === "gap") seen.push("gap");
        if (event.type === "committed") seen.push(`turn ${event.turnIndex}`);
        if (seen.length === 3) return;
      }
    })();
    await until("somebody watches", async () => (await residents(troupe)).resident === 1);
    for (const input of ["a", "b", "c"]) {
      await session.turn(input);
      await session.park();
    }
    await watching;
    expect(seen).toEqual(["turn 1", "turn 2", "turn 3"]);
  });
});

describe("parking", () => {
  test("waits for the turns that were asked for, and for what they wait for", async () => {
    let key = "";
    const troupe = await startTroupe({
      model: oneToolCall("ask"),
      tools: {
        ask: {
          description: "d",
          inputSchema: EMPTY_OBJECT,
          execute: (_, { completionKey }) => {
            key = completionKey;
            return pendingTool();
          },
        },
      },
    });
    const session = await troupe.session("s");
    const order: string[] = [];
    const turn = session.turn("hi").then(() => order.push("turn"));
    await until("the tool was called", () => key !== "");
    const parked = session.park().then(() => order.push("parked"));
    expect((await session.info()).state).toBe("running");
    await troupe.completeTool(key, { value: "yes" });
    await Promise.all([turn, parked]);
    expect(order).toEqual(["turn", "parked"]);
  });

  test("that fails leaves the session as it is, and says why to who asked", async () => {
    const troupe = await start({ plugins: [{ module: plugin("unsavable"), ...PATIENT }], model: ECHO });
    const session = await troupe.session("s");
    await session.turn("one");
    expect((await refusalOf(session.park())).code).toBe("unserialisable");
    expect((await session.info()).state).toBe("idle");
    expect((await session.turn("two")).turnIndex).toBe(2);
  });

  test("happens by itself after a while of idleness", async () => {
    const troupe = await startTroupe({ parkAfterMs: 30, model: ECHO });
    const session = await troupe.session("s");
    await session.turn("a");
    await until("it was parked", async () => (await residents(troupe)).parked === 1);
    expect((await session.turn("b")).turnIndex).toBe(2);
  });

  test("happens by itself to the longest idle above the resident limit", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, maxResident: 2, parkAfterMs: 600_000, model: ECHO });
    const sessions = await Promise.all(["a", "b", "c", "d"].map((id) => troupe.session(id)));
    for (const session of sessions) await session.turn("hi");
    await until("two were parked", async () => (await residents(troupe)).parked === 2);
    const states = await Promise.all(sessions.map(async (session) => (await session.info()).state));
    expect(states).toEqual(["parked", "parked", "idle", "idle"]);
  });

  test("happens by itself when the worker's heap is too full", async () => {
    const troupe = await startTroupe({ parkAtHeapShare: 1e-9, model: ECHO });
    await (await troupe.session("s")).turn("a");
    await until("it was parked", async () => (await residents(troupe)).parked === 1);
  });

  test("leaves sessions alone that have a turn running", async () => {
    const troupe = await startTroupe({
      parkAfterMs: 0,
      maxResident: 1,
      model: scriptedModel({ turns: [[{ text: "{input}", delayMs: 30 }]] }),
    });
    const sessions = await Promise.all(["a", "b", "c"].map((id) => troupe.session(id)));
    const results = await Promise.all(sessions.flatMap((session) => ["1", "2"].map((n) => session.turn(n))));
    expect(results.map(({ text, turnIndex }) => `${text}@${turnIndex}`)).toEqual([
      "1@1",
      "2@2",
      "1@1",
      "2@2",
      "1@1",
      "2@2",
    ]);
  });

  test.each([
    ["parkAfterMs", -1],
    ["maxResident", 0],
    ["parkAtHeapShare", 2],
  ])("refuses %s %s", async (option, value) => {
    expect((await refusalOf(createTroupe({ [option]: value }))).code).toBe("invalid_options");
  });
});
