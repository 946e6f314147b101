import { scriptedModel } from "troupe";
import { describe, expect, test } from "vitest";
import {
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
const SLOW = scriptedModel({ turns: [[{ text: "{input}", delayMs: 5 }]] });

describe("a session that moves", () => {
  test("goes on on another thread as it was, plugin state and options included", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 2,
      plugins: [
        { module: plugin("counter"), ...PATIENT },
        { module: registers("test.registers"), ...PATIENT },
      ],
      model: oneToolCall("count"),
    });
    const session = await troupe.session("s", { pluginOptions: { "test.registers": { queries: ["mine"] } } });
    await session.turn("one");
    const [before, surface] = [await session.info(), await session.surface()];
    const [from, to] = before.threadId === (await troupe.stats()).workers[0]?.threadId ? [0, 1] : [1, 0];
    await troupe.move("s", to);
    expect((await session.info()).state).toBe("parked");
    const result = await session.turn("two");
    expect([result.turnIndex, firstToolValue(result)]).toEqual([2, 2]);
    expect((await session.info()).threadId).not.toBe(before.threadId);
    expect(await session.surface()).toEqual(surface);
    await troupe.move("s", from);
    expect(firstToolValue(await session.turn("three"))).toBe(3);
    expect((await session.info()).threadId).toBe(before.threadId);
  });

  test("is not counted as parked unless it was parked before", async () => {
    const troupe = await startTroupe({ ...RESIDENT, sessionWorkers: 2, model: ECHO });
    const session = await troupe.session("s");
    await session.turn("one");
    const counts = async () => (await troupe.stats()).sessions;
    const elsewhere = async () => {
      const { threadId } = await session.info();
      return (await troupe.stats()).workers[0]?.threadId === threadId ? 1 : 0;
    };
    await troupe.move("s", await elsewhere());
    expect(await counts()).toEqual({ resident: 0, parked: 0 });
    await session.turn("two");
    expect(await counts()).toEqual({ resident: 1, parked: 0 });
    await session.park();
    await troupe.move("s", await elsewhere());
    expect(await counts()).toEqual({ resident: 0, parked: 1 });
    expect((await session.turn("three")).turnIndex).toBe(3);
  });

  test("gets everything that is said meanwhile once and in order", async () => {
    const troupe = await startTroupe({ sessionWorkers: 2, model: SLOW });
    const session = await troupe.session("s");
    const sent: string[] = [];
    const answers: PromiseLike<string>[] = [];
    const revisions: number[] = [];
    const moves: Promise<void>[] = [];
    for (let wave = 0; wave < 20; wave++) {
      moves.push(troupe.move("s", wave % 2));
      for (let n = 0; n < 4; n++) {
        sent.push(`m${sent.length}`);
        answers.push(
          session.turn(sent.at(-1) as string).then(({ text, revision }) => {
            revisions.push(revision);
            return text;
          }),
        );
        // Asked between two turns, it is done between them.
        if (n === 1) answers.push(session.configure({ instructions: `${wave}` }).then(() => "configured"));
      }
      // A move waits for what was asked before; every third wave begins while it is under way.
      if (wave % 3 === 0) await Promise.all(answers);
      else await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all(moves);
    const expected = sent.flatMap((text, n) => (n % 4 === 1 ? [text, "configured"] : [text]));
    expect(await Promise.all(answers)).toEqual(expected);
    const inputs = (await session.messages()).filter(({ role }) => role === "user");
    expect(inputs.map(({ parts: [part] }) => part?.type === "text" && part.text)).toEqual(sent);
    // A turn is one revision and a change of settings another: 1 2 (3) 4 5, 6 7 (8) 9 10, …
    expect(revisions).toEqual(sent.map((_, n) => Math.floor(n / 4) * 5 + ([1, 2, 4, 5][n % 4] as number)));
    expect((await session.info()).turns).toBe(80);
  });

  test("takes a turn that was asked for while it moved, and who cancels or listens to that turn is heard", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 2,
      model: scriptedModel({ turns: [[{ text: "hello", delayMs: 60_000 }], [{ text: "quick" }]] }),
    });
    const session = await troupe.session("s");
    const moved = Promise.all([troupe.move("s", 0), troupe.move("s", 1)]);
    await new Promise((resolve) => setImmediate(resolve));
    const turn = session.turn("hi");
    await Promise.resolve();
    for await (const activity of turn) if (activity.type === "model_call_started") turn.cancel("enough");
    expect((await turn).outcome).toMatchObject({ reason: "cancelled", message: "enough" });
    await moved;
    expect((await session.turn("again")).text).toBe("quick");
  });

  test("is still watched: a gap says where it moved", async () => {
    const troupe = await startTroupe({ sessionWorkers: 2, model: ECHO });
    const session = await troupe.session("s");
    const seen: string[] = [];
    const watching = (async () => {
      for await (const { event } of session.observe()) {
        if (event.type === "gap") seen.push("gap");
        if (event.type === "committed") seen.push(`turn ${event.turnIndex}`);
        if (seen.includes("turn 2")) return;
      }
    })();
    await session.view();
    await session.turn("a");
    const { threadId } = await session.info();
    const { workers } = await troupe.stats();
    await troupe.move("s", workers[0]?.threadId === threadId ? 1 : 0);
    await until("the watcher was told", () => seen.includes("gap"));
    await session.turn("b");
    await watching;
    expect(seen).toEqual(["turn 1", "gap", "turn 2"]);
  });

  test("must be known, and so must the worker", async () => {
    const troupe = await startTroupe({ sessionWorkers: 2 });
    await troupe.session("s");
    expect((await refusalOf(troupe.move("stranger", 0))).code).toBe("session_unknown");
    expect((await refusalOf(troupe.move("s", 7))).code).toBe("worker_unknown");
  });
});

describe("rebalancing", () => {
  test("evens out what the workers have", async () => {
    const troupe = await startTroupe({ sessionWorkers: 2, parkAfterMs: 600_000, maxResident: 100, model: ECHO });
    const sessions = await Promise.all(Array.from({ length: 10 }, (_, n) => troupe.session(`s${n}`)));
    for (const session of sessions) {
      await session.turn("hi");
      await troupe.move(session.id, 0);
    }
    expect(await troupe.rebalance()).toBe(5);
    for (const session of sessions) expect((await session.turn("again")).turnIndex).toBe(2);
    expect((await troupe.stats()).workers.map(({ sessions }) => sessions)).toEqual([5, 5]);
    expect(await troupe.rebalance()).toBe(0);
  });
});

describe("a worker that is recycled", () => {
  test("is another thread afterwards; its sessions and what they were asked meanwhile are all there", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 2,
      plugins: [{ module: plugin("counter"), ...PATIENT }],
      model: oneToolCall("count"),
    });
    const sessions = await Promise.all(Array.from({ length: 6 }, (_, n) => troupe.session(`s${n}`)));
    await Promise.all(sessions.map((session) => session.turn("one")));
    const before = (await troupe.stats()).workers.map(({ threadId }) => threadId);
    const running = sessions.map((session) => session.turn("two"));
    const recycled = troupe.recycle(0);
    const meanwhile = sessions.map((session) => session.turn("three"));
    await recycled;
    const after = (await troupe.stats()).workers.map(({ threadId }) => threadId);
    expect([after[0] === before[0], after[1] === before[1]]).toEqual([false, true]);
    expect((await Promise.all(running)).map(firstToolValue)).toEqual([2, 2, 2, 2, 2, 2]);
    expect((await Promise.all(meanwhile)).map(firstToolValue)).toEqual([3, 3, 3, 3, 3, 3]);
  });
});
