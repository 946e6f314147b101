import { scriptedModel, type TroupeError } from "troupe";
import { describe, expect, test } from "vitest";
import { collect, openSessions, plugin, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

/** What happens when a session is opened, closed, forked and used at the same time. */
describe("a session that is closing", () => {
  test("is opened again by whoever asks for it meanwhile", async () => {
    const troupe = await startTroupe({ model: scriptedModel({ turns: [[{ text: "{input}", delayMs: 50 }]] }) });
    const session = await troupe.session("s");
    const first = session.turn("one");
    const closed = session.close();
    const again = await troupe.session("s");
    expect((await again.turn("two")).turnIndex).toBe(2);
    expect((await first).text).toBe("one");
    await closed;
  });

  test("refuses turns with session_closed until it is closed, and finishes those asked for before", async () => {
    const troupe = await startTroupe({ model: scriptedModel({ turns: [[{ text: "{input}", delayMs: 50 }]] }) });
    const session = await troupe.session("s");
    const before = session.turn("before");
    const closed = session.close();
    const meanwhile = await refusalOf(session.turn("meanwhile"));
    expect({ code: meanwhile.code, retryable: meanwhile.retryable }).toEqual({
      code: "session_closed",
      retryable: true,
    });
    await closed;
    expect((await before).text).toBe("before");
    expect((await session.turn("after")).turnIndex).toBe(2);
    expect((await troupe.stats()).turns).toEqual({ asked: 3, finished: 2, refused: 1 });
  });

  test("is never on two workers at once, so that no acknowledged turn is lost", async () => {
    const troupe = await startTroupe({ sessionWorkers: 2 });
    const parent = await troupe.session("parent");
    for (let i = 0; i < 20; i++) {
      // A fork may live on another worker than its id alone would give it; closed and opened, it moves.
      const child = await parent.fork({ id: `child-${i}` });
      const turns = [child.turn("one"), child.turn("two")];
      const closed = child.close();
      const again = troupe.session(`child-${i}`).then((opened) => opened.turn("three"));
      await closed;
      const results = await Promise.all([...turns, again, child.turn("four")]);
      expect(results.map(({ revision }) => revision).sort()).toEqual([2, 3, 4, 5]);
      expect((await child.info()).turns).toBe(4);
    }
    expect(await openSessions(troupe)).toBe(21);
  });

  test("may be closed twice and forked: the fork sees what was stored", async () => {
    const troupe = await startTroupe();
    const session = await troupe.session("s");
    await session.turn("one");
    const [, , child] = await Promise.all([session.close(), session.close(), session.fork({ id: "child" })]);
    expect((await child.turn("two")).turnIndex).toBe(2);
  });
});

describe("an id", () => {
  test("that is being forked to is opened as the fork", async () => {
    const troupe = await startTroupe({ sessionWorkers: 2 });
    const parent = await troupe.session("parent");
    await parent.turn("one");
    const forked = parent.fork({ id: "child" });
    const [child, opened] = await Promise.all([forked, troupe.session("child")]);
    expect(opened).toBe(child);
    expect(await opened.info()).toMatchObject({ parent: "parent", turns: 1 });
  });

  // §15.12
  test("whose session could not be opened is free for a fork", async () => {
    const troupe = await startTroupe({
      plugins: [{ module: plugin("scriptable"), options: { sessionRestored: "throwOnce" } }],
    });
    for (const id of ["child", "parent"]) {
      expect((await refusalOf(troupe.session(id))).code).toBe("session_restore_failed");
    }
    const parent = await troupe.session("parent");
    expect((await parent.fork({ id: "child" })).id).toBe("child");
  });
});

describe("closing the runtime", () => {
  test("finishes every turn asked for before, however little before", async () => {
    const troupe = await startTroupe({ drainMs: 20_000 });
    const sessions = await Promise.all(Array.from({ length: 40 }, (_, i) => troupe.session(`s${i}`)));
    const turns = sessions.flatMap((session) => [session.turn("one"), session.turn("two")]);
    const closed = troupe.close();
    const results = await Promise.all(turns);
    await closed;
    expect(results.filter(({ outcome }) => outcome.type === "finished")).toHaveLength(80);
  });

  test("finishes a turn that waits for a session worker to be replaced", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, drainMs: 20_000 });
    const session = await troupe.session("s");
    await troupe.kill({ sessionWorker: 0 });
    const turn = session.turn("hello");
    const closed = troupe.close();
    expect((await turn).outcome.type).toBe("finished");
    await closed;
  });
});

describe("a session worker that is being replaced", () => {
  test("streams a turn also to somebody who began to listen meanwhile", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1 });
    const session = await troupe.session("s");
    await troupe.kill({ sessionWorker: 0 });
    const turn = session.turn("hello");
    await new Promise(setImmediate);
    const types = (await collect(turn)).map(({ type }) => type);
    expect(types.at(0)).toBe("turn_started");
    expect(types.at(-1)).toBe("turn_finished");
  });

  test("is told of a plugin that was given up before", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [
        { module: plugin("loads-once"), permissions: "all", options: { marker: `${await tempFolder()}/loaded` } },
      ],
    });
    const session = await troupe.session("s");
    await troupe.kill({ plugin: "test.loads-once" });
    const causeOf = async () => ((await refusalOf(session.turn("hello"))).cause as TroupeError).code;
    await until("the plugin was given up", async () => (await causeOf()) === "plugin_unavailable");
    await troupe.kill({ sessionWorker: 0 });
    expect(await causeOf()).toBe("plugin_unavailable");
  });
});
