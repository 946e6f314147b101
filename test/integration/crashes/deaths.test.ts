import { scriptedModel, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import {
  EMPTY_OBJECT,
  firstToolValue,
  fixture,
  oneToolCall,
  plugin,
  RESIDENT,
  refusalOf,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

/** A runtime whose plugin counts the turns of each session and whose model asks it. */
const startCounting = (sessionWorkers: number, options: TroupeOptions = {}) =>
  startTroupe({ sessionWorkers, plugins: [{ module: plugin("counter") }], model: oneToolCall("count"), ...options });

/**
 * A hook that was done and whose answer had not left when the next one ended the thread is lost with it. In memory the
 * sessions call in the order of their turns, so the one that ends it is the first; brought back from a store they may not.
 */
const IN_ORDER = RESIDENT;

/** Threads die at start, idle and in the middle of a turn; every pending call must settle with a typed error. */
describe("a session worker that dies", () => {
  test("in the middle of a turn, without a journal: the turn is refused, and the session goes on from the last commit", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      store: { path: await tempFolder() },
      journal: false,
      plugins: [{ module: plugin("counter") }],
      model: scriptedModel({ turns: [[{ text: "one" }], [{ text: "two", delayMs: 60_000 }], [{ text: "three" }]] }),
    });
    const session = await troupe.session("s");
    await session.turn("first");
    const turns = [session.turn("running"), session.turn("queued")];
    await until("a turn runs", async () => (await session.info()).state === "running");
    await troupe.kill({ sessionWorker: 0 });
    const errors = await Promise.all(turns.map((turn) => refusalOf(turn)));
    expect(errors.map(({ code, retryable }) => [code, retryable])).toEqual([
      ["worker_lost", true],
      ["worker_lost", true],
    ]);
    // The turn that died was never stored, so this is the second turn, and it waits for the worker to come back.
    const again = session.turn("after");
    again.cancel("do not wait for the slow script");
    expect((await again).turnIndex).toBe(2);
    const stats = await troupe.stats();
    expect(stats.workers[0]?.restarts).toBe(1);
    expect(stats.turns.asked).toBe(stats.turns.finished + stats.turns.refused);
  });

  test("idle: the next turn finds a new worker and everything that was stored", async () => {
    const troupe = await startCounting(1);
    const session = await troupe.session("s");
    await session.turn("one");
    const { threadId } = await session.info();
    await troupe.kill({ sessionWorker: 0 });
    const result = await session.turn("two");
    expect(result.toolCalls[0]?.output).toEqual({ status: "success", value: 2 });
    expect((await session.info()).threadId).not.toBe(threadId);
  });

  test("at start, again and again: calls made meanwhile settle, and the runtime still closes", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1 });
    const session = await troupe.session("s");
    for (let round = 0; round < 3; round++) {
      const turns = [session.turn("a"), session.turn("b")];
      await troupe.kill({ sessionWorker: 0 });
      const settled = await Promise.allSettled(turns);
      for (const result of settled)
        if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "worker_lost" });
    }
    expect((await session.turn("in the end")).outcome.type).toBe("finished");
  });

  test("takes only its own sessions' turns with it", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 2,
      model: scriptedModel({ turns: [[{ text: "done", delayMs: 200 }]] }),
    });
    const sessions = await Promise.all(Array.from({ length: 12 }, (_, i) => troupe.session(`s${i}`)));
    const infos = await Promise.all(sessions.map((session) => session.info()));
    const { workers } = await troupe.stats();
    const dying = workers[0]?.threadId;
    const turns = sessions.map((session) => session.turn("hi"));
    await troupe.kill({ sessionWorker: 0 });
    const settled = await Promise.allSettled(turns);
    settled.forEach((result, i) => {
      if (infos[i]?.threadId === dying)
        expect(result).toMatchObject({ status: "rejected", reason: { code: "worker_lost" } });
      else expect(result.status).toBe("fulfilled");
    });
  });
});

describe("a plugin worker that dies", () => {
  test("in the middle of a hook: the call fails under its policy, the worker is replaced, state comes from the last capture", async () => {
    const troupe = await startCounting(1);
    const session = await troupe.session("s");
    await session.turn("one");
    const error = await refusalOf(session.turn("crash the plugin"));
    expect(error.code).toBe("plugin_prepare_turn");
    expect(error.cause).toMatchObject({ code: "worker_lost" });
    expect((await session.turn("two")).toolCalls[0]?.output).toEqual({ status: "success", value: 2 });
    expect((await troupe.stats()).plugins[0]?.restarts).toBe(1);
  });

  test("idle: sessions of every worker restore their own state from the last capture", async () => {
    const troupe = await startCounting(2);
    const sessions = await Promise.all(Array.from({ length: 6 }, (_, i) => troupe.session(`s${i}`)));
    for (const [i, session] of sessions.entries()) for (let turn = 0; turn <= i; turn++) await session.turn("hi");
    await troupe.kill({ plugin: "test.counter" });
    const results = await Promise.all(sessions.map((session) => session.turn("more")));
    expect(results.map(firstToolValue)).toEqual([2, 3, 4, 5, 6, 7]);
  });

  test("with calls it had not begun: they go to the replacement, and only the one it was at is lost", async () => {
    const troupe = await startCounting(1, IN_ORDER);
    const sessions = await Promise.all(Array.from({ length: 20 }, (_, i) => troupe.session(`s${i}`)));
    await Promise.all(sessions.map((session) => session.turn("one")));
    const [first, ...others] = sessions;
    const fatal = (first as (typeof sessions)[number]).turn("crash the plugin");
    const settled = await Promise.all([refusalOf(fatal), ...others.map((session) => session.turn("two"))]);
    expect(settled[0].cause).toMatchObject({ code: "worker_lost" });
    expect(settled.slice(1).map((result) => firstToolValue(result as never))).toEqual(others.map(() => 2));
  });

  test("because it blocks: it is found long before the hook's deadline, and the calls behind it go on", async () => {
    const troupe = await startTroupe({
      ...IN_ORDER,
      sessionWorkers: 1,
      plugins: [{ module: plugin("blocks"), deadlineMs: 600_000, blockedMs: 500 }],
    });
    const sessions = await Promise.all(["blocks", "a", "b", "c"].map((id) => troupe.session(id)));
    const [blocked, ...others] = sessions.map((session) => session.turn("hi"));
    expect((await refusalOf(blocked as PromiseLike<unknown>)).cause).toMatchObject({ code: "plugin_blocked" });
    expect((await Promise.all(others)).map(({ outcome }) => outcome.type)).toEqual([
      "finished",
      "finished",
      "finished",
    ]);
    expect((await troupe.stats()).plugins[0]?.restarts).toBe(1);
  });

  test("not because one hook takes its time without blocking", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("says"), options: { word: "slow", delayMs: 1_500 }, blockedMs: 500 }],
    });
    expect((await (await troupe.session("s")).turn("hi")).outcome.type).toBe("finished");
    expect((await troupe.stats()).plugins[0]?.restarts).toBe(0);
  });

  test("together with its session worker, again and again: both come back and find each other", async () => {
    const troupe = await startCounting(2);
    const sessions = await Promise.all(Array.from({ length: 8 }, (_, i) => troupe.session(`s${i}`)));
    for (let round = 0; round < 4; round++) {
      await Promise.all([
        troupe.kill({ plugin: "test.counter" }),
        troupe.kill({ sessionWorker: round % 2 }),
        ...sessions.map((session) => session.turn("hi").catch(() => {})),
      ]);
    }
    await until("every session has its plugin again", async () => {
      const results = await Promise.allSettled(sessions.map((session) => session.turn("hi")));
      return results.every(({ status }) => status === "fulfilled");
    });
    const { turns } = await troupe.stats();
    expect(turns.asked).toBe(turns.finished + turns.refused);
  });

  test("at start: createTroupe is refused with the reason and leaves nothing behind", async () => {
    const error = await refusalOf(startTroupe({ plugins: [{ module: plugin("exits-at-load") }] }));
    expect(error.code).toBe("worker_lost");
    expect(error.message).toContain("exits-at-load");
  });

  test("while its replacement cannot load: the plugin is given up and its calls fail with a typed error", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [
        { module: plugin("loads-once"), permissions: "all", options: { marker: `${await tempFolder()}/loaded` } },
      ],
    });
    const session = await troupe.session("s");
    await session.turn("one");
    await troupe.kill({ plugin: "test.loads-once" });
    await until("the plugin was given up", async () => {
      const [result] = await Promise.allSettled([session.turn("two")]);
      return result.status === "rejected" && (result.reason.cause as { code?: string })?.code === "plugin_unavailable";
    });
  });
});

describe("a pool thread that dies", () => {
  test("in the middle of a task fails that call; idle or at start it is nobody's loss", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      tools: {
        exits: { module: fixture("tools/exits.mjs") },
        id: { module: fixture("tools/thread-id.mjs") },
        late: { module: fixture("tools/exits-later.mjs") },
      },
      model: scriptedModel({
        turns: [
          [
            {
              toolCalls: [
                { tool: "exits", args: {} },
                { tool: "id", args: {} },
              ],
            },
            { toolCalls: [{ tool: "late", args: {} }] },
            { toolCalls: [{ tool: "id", args: {} }] },
            { text: "done" },
          ],
        ],
      }),
    });
    const result = await (await troupe.session("s")).turn("hi");
    expect(
      result.toolCalls.map(({ output }) => (output.status === "failure" ? output.failure.code : output.status)),
    ).toEqual(["tool_worker_lost", "success", "success", "success"]);
  });
});

describe("the host", () => {
  test("a host tool that never answers does not keep the runtime from closing", async () => {
    const troupe = await startTroupe({
      drainMs: 50,
      model: oneToolCall("never"),
      tools: { never: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => new Promise(() => {}) } },
    });
    const session = await troupe.session("s");
    const turn = session.turn("hi");
    for await (const activity of turn) {
      if (activity.type !== "tool_call_started") continue;
      void troupe.close();
    }
    expect((await turn).outcome).toMatchObject({ reason: "cancelled" });
  });
});
