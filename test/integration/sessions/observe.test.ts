import type { Observed, Session } from "troupe";
import { scriptedModel } from "troupe";
import { describe, expect, test } from "vitest";
import { plugin, refusalOf, startTroupe, until } from "../../support/runtime.js";

/** Reads until the session has stored this many turns since. */
async function read(session: Session, turns: number, cursor?: string): Promise<Observed[]> {
  const seen: Observed[] = [];
  let stored = 0;
  for await (const observed of session.observe(cursor === undefined ? {} : { cursor })) {
    seen.push(observed);
    if (observed.event.type === "committed" && ++stored === turns) break;
  }
  return seen;
}

const typesOf = (seen: readonly Observed[]) =>
  seen.map(({ event }) => (event.type === "activity" ? event.activity.type : event.type));
const textOf = (seen: readonly Observed[]) =>
  seen.reduce((text, { event }) => {
    const delta = event.type === "activity" && event.activity.type === "text_delta" ? event.activity.text : "";
    return text + delta;
  }, "");

const model = scriptedModel({ turns: [[{ chunks: ["one ", "two ", "three"] }]] });

/** The same numbers from 0 to 1 every time. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32;
    return state / 2 ** 32;
  };
}

describe("whoever observes a session", () => {
  test("sees the turns that others ask for, and when they are stored", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model });
    const session = await troupe.session("s");
    const reading = read(session, 1);
    // The reader is there when the worker has answered something asked behind it.
    await session.view();
    await session.turn("go");
    const seen = await reading;
    expect(typesOf(seen).filter((type) => type !== "text_delta")).toEqual([
      "turn_started",
      "model_call_started",
      "model_call_finished",
      "turn_finished",
      "committed",
    ]);
    expect(textOf(seen)).toBe("one two three");
    expect(seen.at(-1)?.event).toEqual({ type: "committed", revision: 1, turnIndex: 1 });
  });

  test("sees the turns that plugins ask for", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model, plugins: [{ module: plugin("ledger") }] });
    const session = await troupe.session("s");
    const reading = read(session, 2);
    await session.view();
    await session.command("ledger.queue");
    expect(typesOf(await reading).filter((type) => type === "turn_started")).toHaveLength(2);
  });

  test("comes back with a cursor and has missed nothing", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model });
    const session = await troupe.session("s");
    const first = read(session, 1);
    await session.view();
    await session.turn("go");
    const { cursor } = (await first).at(-1) as Observed;
    await session.turn("again");
    const missed = await read(session, 1, cursor);
    expect(typesOf(missed)[0]).toBe("turn_started");
    expect(textOf(missed)).toBe("one two three");
    expect(missed.at(-1)?.event).toEqual({ type: "committed", revision: 2, turnIndex: 2 });
  });

  // turn §8.91
  test("is told of a gap when the session's worker was replaced, and goes on behind it", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model });
    const session = await troupe.session("s");
    await session.turn("before");
    const events = session.observe();
    const first = events.next();
    await session.view();
    await troupe.kill({ sessionWorker: 0 });
    const { value: gap } = await first;
    expect(gap.event).toEqual({ type: "gap", reason: "unavailable" });
    const next = events.next();
    await session.turn("after");
    expect((await next).value.event).toMatchObject({ type: "activity", activity: { type: "turn_started" } });
    await events.return?.();
  });

  // turn §8.93
  test("never ends or slows a turn by leaving or by not reading", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model });
    const session = await troupe.session("s");
    const idle = session.observe();
    void idle.next();
    await session.view();
    for (let n = 1; n <= 5; n++) {
      const reading = (async () => {
        for await (const { event } of session.observe()) if (event.type === "activity") break;
      })();
      await session.view();
      expect((await session.turn(`turn ${n}`)).turnIndex).toBe(n);
      await reading;
    }
    await idle.return?.();
  });

  // turn §8.91
  test("cannot use the cursor of another session, or something that is none", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model });
    const [one, two] = [await troupe.session("one"), await troupe.session("two")];
    const reading = read(one, 1);
    await one.view();
    await one.turn("go");
    const { cursor } = (await reading).at(-1) as Observed;
    for (const wrong of [cursor, "nonsense"]) {
      expect((await refusalOf(two.observe({ cursor: wrong }).next())).code).toBe("cursor_invalid");
    }
  });

  // turn §8.92
  test("is told that a turn is stored only when it can be seen", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model });
    const session = await troupe.session("s");
    const revisions: [told: number, seen: number][] = [];
    const reading = (async () => {
      for await (const { event } of session.observe()) {
        if (event.type !== "committed") continue;
        revisions.push([event.revision, (await session.view()).revision]);
        if (revisions.length === 5) return;
      }
    })();
    await session.view();
    for (let n = 1; n <= 5; n++) await session.turn(`turn ${n}`);
    await reading;
    for (const [told, seen] of revisions) expect(seen).toBeGreaterThanOrEqual(told);
    expect(revisions.map(([told]) => told)).toEqual([1, 2, 3, 4, 5]);
  });

  // turn §8.92
  test("and leaves a thousand times at random, in the middle of what is streamed, misses nothing and sees nothing twice", async () => {
    const CHUNKS = Array.from({ length: 40 }, (_, n) => `${n} `);
    const LEAVINGS = 1_000;
    const troupe = await startTroupe({
      sessionWorkers: 1,
      // One turn in a burst, the next in its own time.
      model: scriptedModel({ turns: [[{ chunks: CHUNKS }], [{ chunks: CHUNKS, chunkDelayMs: 1 }]] }),
    });
    const session = await troupe.session("s");
    const random = seeded(7);
    const texts: string[] = [];
    let cursor: string | undefined;
    let leavings = 0;
    let turns = 0;

    /** Reads a few events from where it was, then leaves: true when it saw a turn stored after which nothing comes. */
    const readSome = async (last: number): Promise<boolean> => {
      let left = 1 + Math.floor(random() * 4);
      for await (const observed of session.observe(cursor === undefined ? {} : { cursor })) {
        cursor = observed.cursor;
        const { event } = observed;
        if (event.type === "gap") throw new Error(`A gap, though the reader kept up: ${event.reason}`);
        if (event.type === "committed") {
          if (event.turnIndex === last) return true;
        } else if (event.type !== "activity") throw new Error(event.message);
        else if (event.activity.type === "turn_started") texts.push("");
        else if (event.activity.type === "text_delta") texts[texts.length - 1] += event.activity.text;
        if (--left === 0) break;
      }
      return false;
    };
    const reading = (async () => {
      for (; leavings < LEAVINGS; leavings++) await readSome(Number.NaN);
    })();
    await session.view();
    while (leavings < LEAVINGS) {
      turns++;
      await session.turn(`turn ${turns}`);
      // Further behind than what is kept there would be a gap, and rightly so.
      await until("the reader keeps up", () => turns - texts.length < 10 || leavings >= LEAVINGS);
    }
    await reading;
    // What is left of the last turns, unless it was all read.
    await session.turn("the last one");
    while (!(await readSome(turns + 1)));
    expect(texts).toEqual(Array.from({ length: turns + 1 }, () => CHUNKS.join("")));
  });

  test("is let go when the runtime closes", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model });
    const session = await troupe.session("s");
    const waiting = session.observe().next();
    await session.view();
    await troupe.close();
    expect(await waiting).toEqual({ done: true, value: undefined });
  });
});
