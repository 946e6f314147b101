import { describe, expect, test } from "vitest";
import { type JournalRow, type Json, type JsonObject, NO_USAGE } from "../../../src/kernel/index.js";
import { NO_JOURNAL } from "../../../src/session/journal/no-journal.js";
import { StoredJournal } from "../../../src/session/journal/turn-journal.js";
import { unfinishedTurn } from "../../../src/session/journal/unfinished-turn.js";
import { UnwrittenUsage } from "../../../src/session/stored/components.js";
import { decode } from "../../../src/wire/index.js";
import { ManualClock } from "../../support/manual-clock.js";

const START = { call: "c", input: "hi", parts: [], extras: {}, blobs: [], inputIds: [] };
const spent = (source: string, inputTokens: number) => ({
  source,
  model: "m",
  usage: { ...NO_USAGE, inputTokens },
});

/** A turn's rows, and the lives of the turn that are begun over them. */
class Turn {
  readonly rows: JournalRow[] = [];

  /** `states`: what each plugin has to save. */
  live(states: Record<string, Uint8Array> = {}, clock = new ManualClock(), goesOn = false) {
    const restored: [string, Uint8Array][] = [];
    const usage = new UnwrittenUsage(() => []);
    const journal = new StoredJournal({
      sessionId: "s",
      turnId: "t1",
      clock,
      usage,
      unfinished: unfinishedTurn([...this.rows], "t1"),
      isStored: () => false,
      goesOn,
      onCaughtUp: () => undefined,
      hooks: {
        restoreState: (id, state) => restored.push([id, state]),
        unsavedState: async (ids) =>
          Object.fromEntries(Object.entries(states).filter(([id]) => ids?.includes(id) ?? true)),
        stateSoFar: async (ids) => Object.fromEntries(Object.entries(states).filter(([id]) => ids.includes(id))),
      },
      write: async (entry) => {
        const known = this.rows.find(({ key }) => key === entry.key);
        if (known !== undefined) return { replayed: true, bytes: known.bytes, at: known.at };
        this.rows.push({ ...entry, sequence: this.rows.length, at: 100 + this.rows.length });
        return { replayed: false };
      },
    });
    return { journal, restored, usage };
  }

  get keys(): string[] {
    return this.rows.map(({ key }) => key);
  }
}

/** A step that runs a tool, and runs for nothing: it was recorded. */
const step = (toolName: string, args: JsonObject) => ({
  key: "k",
  envelope: () => ({ toolName, args }),
  counts: (asked: Json | undefined) => (asked as JsonObject).toolName === toolName,
  run: (): { from: string } => {
    throw new Error("It ran.");
  },
});

describe("journal.once", () => {
  test("does something once: the turn's next life is given what was recorded, and when", async () => {
    const turn = new Turn();
    const { journal } = turn.live();
    await journal.begin(() => START);
    expect(await journal.once({ key: "k", envelope: () => "asked", run: () => ({ answer: 1 }) })).toEqual({
      answer: 1,
    });
    const again = turn.live().journal.once<object>({
      key: "k",
      envelope: () => "asked",
      run: () => ({ answer: 2 }),
      found: (recorded, at) => ({ recorded, at }),
    });
    expect(await again).toEqual({ recorded: { answer: 1 }, at: 101 });
    expect(turn.keys).toEqual(["start", "k"]);
  });

  test("takes what was recorded meanwhile for what came of it, whatever came of it here", async () => {
    const turn = new Turn();
    const [{ journal: one }, { journal: other }] = [turn.live(), turn.live()];
    const step = (answer: number) => ({ key: "k", envelope: () => "asked", run: () => ({ answer }) });
    expect(await one.once(step(1))).toEqual({ answer: 1 });
    expect(await other.once(step(2))).toEqual({ answer: 1 });
    expect(turn.keys).toEqual(["k"]);
  });

  test("refuses to go on when what it gave out and owed was recorded otherwise meanwhile", async () => {
    const turn = new Turn();
    const [{ journal: one }, { journal: other }] = [turn.live(), turn.live()];
    const owed = (answer: number) => ({ key: "k", envelope: () => "asked", run: () => ({ answer }), owes: () => true });
    await other.once({ ...owed(1), owes: () => false });
    expect(await one.once(owed(2))).toEqual({ answer: 2 });
    const next = one.once({ key: "next", envelope: () => null, run: () => ({}) });
    await expect(next).rejects.toMatchObject({ code: "replay_mismatch", details: { key: "k" } });
    expect(turn.keys).toEqual(["k"]);
  });

  test("refuses with replay_mismatch what is asked for otherwise under the same key, and does nothing", async () => {
    const turn = new Turn();
    const first = turn.live().journal;
    await first.begin(() => START);
    await first.once({ key: "k", envelope: () => ({ city: "Oslo" }), run: () => ({}) });
    let ran = false;
    const run = () => {
      ran = true;
      return {};
    };
    await expect(turn.live().journal.once({ key: "k", envelope: () => ({ city: "Rome" }), run })).rejects.toMatchObject(
      {
        code: "replay_mismatch",
        details: { key: "k", paths: ["$.city"] },
      },
    );
    expect(ran).toBe(false);
  });

  test("takes what was recorded for another request where the turn goes on and it may count, and else what is to come of it", async () => {
    const turn = new Turn();
    const first = turn.live().journal;
    await first.begin(() => START);
    const recorded = { ...step("old", { city: "Oslo" }), run: () => ({ from: "then" }) };
    await first.once(recorded);
    const { journal } = turn.live({}, new ManualClock(), true);
    // The same tool: what it did counts, whatever it is asked for now.
    expect(await journal.once(step("old", { city: "Rome" }))).toEqual({ from: "then" });
    expect(await journal.once({ ...step("other", {}), otherwise: () => ({ from: "nothing" }) })).toEqual({
      from: "nothing",
    });
    await expect(journal.once(step("other", {}))).rejects.toMatchObject({ code: "replay_mismatch" });
    // Where the host has such turns stopped neither counts.
    const stops = turn.live().journal;
    for (const name of ["old", "other"]) {
      const asked = { ...step(name, {}), otherwise: () => ({ from: "nothing" }) };
      await expect(stops.once(asked)).rejects.toMatchObject({ code: "replay_mismatch" });
    }
    expect(turn.keys).toEqual(["start", "k"]);
  });

  test("records nothing of what is not to be kept, and does that again", async () => {
    const turn = new Turn();
    const { journal } = turn.live();
    await journal.begin(() => START);
    await journal.once({ key: "k", envelope: () => null, run: () => ({ answer: 1 }), keep: () => undefined });
    const second = turn.live().journal;
    expect(await second.once({ key: "k", envelope: () => null, run: () => ({ answer: 2 }) })).toEqual({ answer: 2 });
    expect(turn.keys).toEqual(["start", "k"]);
  });

  test("records what it owes before anything is done outside, and not for what stays inside", async () => {
    const turn = new Turn();
    const { journal } = turn.live();
    await journal.begin(() => START);
    await journal.once({ key: "owed", envelope: () => null, run: () => ({}), owes: () => true });
    const inside = { key: "inside", envelope: () => null, run: () => ({}), keep: () => undefined, inside: true };
    await journal.once(inside);
    expect(turn.keys).toEqual(["start"]);
    let before: string[] = [];
    const run = () => {
      before = turn.keys;
      return {};
    };
    await journal.once({ key: "outside", envelope: () => null, run });
    expect([before, turn.keys]).toEqual([
      ["start", "owed"],
      ["start", "owed", "outside"],
    ]);
  });

  test("gives plugins the state a row left them in, and of several rows the last one's", async () => {
    const turn = new Turn();
    const [early, late] = [Uint8Array.of(1), Uint8Array.of(2)];
    const first = turn.live({ a: early, b: early });
    await first.journal.begin(() => START);
    const step = (key: string, changes: readonly string[]) => ({
      key,
      envelope: () => null,
      run: () => ({ key }),
      changes: () => changes,
    });
    await first.journal.once(step("one", ["a", "b"]));
    const second = turn.live({ a: late, b: late });
    await second.journal.once(step("two", ["a"]));
    const { journal, restored } = turn.live();
    expect(await journal.once(step("two", []))).toEqual({ key: "two" });
    expect(await journal.once(step("one", []))).toEqual({ key: "one" });
    expect(restored).toEqual([
      ["a", late],
      ["b", early],
    ]);
  });

  test("keeps with a row what was spent beside the turn's calls since the row before, and counts it again", async () => {
    const turn = new Turn();
    const { journal, usage } = turn.live();
    await journal.begin(() => START);
    const step = (key: string, ...entries: readonly ReturnType<typeof spent>[]) => ({
      key,
      envelope: () => null,
      run: () => {
        for (const entry of entries) usage.hold(entry);
        return {};
      },
    });
    await journal.once(step("one", spent("title", 1)));
    await journal.once(step("two"));
    await journal.once(step("three", spent("title", 2), spent("tags", 4)));
    expect(turn.rows.slice(1).map(({ bytes }) => decode(bytes))).toEqual([
      { spent: [spent("title", 1)] },
      {},
      { spent: [spent("title", 2), spent("tags", 4)] },
    ]);
    const again = turn.live();
    for (const key of ["one", "two", "three"]) await again.journal.once(step(key));
    expect(again.usage.held).toEqual([spent("title", 3), spent("tags", 4)]);
  });
});

test("without a journal everything is done at once, and nothing is asked about it", () => {
  const never = () => {
    throw new Error("asked");
  };
  expect(NO_JOURNAL.begin(never)).toBeUndefined();
  expect(NO_JOURNAL.once({ key: "k", envelope: never, run: () => 1, keep: never, found: never })).toBe(1);
});

describe("a turn's beginning that is kept back", () => {
  const held = { held: true };

  test("is one row with what the turn was prepared with, which its next life finds", async () => {
    const turn = new Turn();
    const state = Uint8Array.of(1);
    const { journal, usage } = turn.live({ p: state });
    expect(journal.begin(() => START, held)).toBeUndefined();
    usage.hold(spent("title", 3));
    expect(turn.keys).toEqual([]);
    await journal.noteDone("prepared", { protocol: "standard" }, ["p"]);
    expect(turn.keys).toEqual(["start"]);
    const again = turn.live();
    again.journal.takeUp();
    expect(again.restored).toEqual([["p", state]]);
    expect(again.usage.held).toEqual([spent("title", 3)]);
    expect(unfinishedTurn(turn.rows, "t1")).toMatchObject({ start: { input: "hi" }, strikes: 0 });
  });

  test("is written before anything else of the turn, and what it was prepared with then has a row of its own", async () => {
    const turn = new Turn();
    const { journal } = turn.live();
    journal.begin(() => START, held);
    await journal.once({ key: "host:0", envelope: () => null, run: () => ({ answer: 1 }) });
    await journal.noteDone("prepared", { protocol: "standard" }, []);
    expect(turn.keys).toEqual(["start", "host:0", "prepared"]);
  });

  test("is written by itself when the preparation takes a second, and when the turn is left as it is", async () => {
    const clock = new ManualClock();
    const [slow, closed] = [new Turn(), new Turn()];
    slow.live({}, clock).journal.begin(() => START, held);
    await clock.advance(999);
    expect(slow.keys).toEqual([]);
    await clock.advance(1);
    expect(slow.keys).toEqual(["start"]);
    const { journal } = closed.live();
    journal.begin(() => START, held);
    await journal.left();
    expect(closed.keys).toEqual(["start"]);
  });

  test("is not written at all when the turn is stored or refused before its model was called, and leaves no timer", () => {
    for (const end of ["storing", "ended"] as const) {
      const clock = new ManualClock();
      const turn = new Turn();
      const { journal } = turn.live({}, clock);
      journal.begin(() => START, held);
      expect(clock.timers).toBe(1);
      journal[end]();
      expect([turn.keys, clock.timers]).toEqual([[], 0]);
    }
  });
});
