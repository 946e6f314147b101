import fc from "fast-check";
import {
  createTroupe,
  type LedgerEntry,
  type Session,
  type SessionView,
  type Troupe,
  type UsageReport,
  usageReport,
} from "troupe";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Commit } from "../../../src/kernel/index.js";
import { openLmdb } from "../../../src/store/index.js";
import { turn as storedTurn } from "../../store/commits.js";
import { ask, askInTurn, asking, type Call, told, turnThatAsks, usage, valueIn } from "../../support/asking.js";
import { fixture, refusalOf, startTroupe, tempFolder } from "../../support/runtime.js";

const entry = (source: string, model: string, ...spent: [number, number]): LedgerEntry => ({
  source,
  model,
  usage: usage(...spent),
});
const reportOf = async (session: Session): Promise<UsageReport> => usageReport((await session.view()).ledger);
const direct = (source: string): Call => ["directCompletion", { messages: [{ role: "user", text: "?" }] }, source];

/** Every model call of the asking model costs 10 and 5 tokens, every direct completion 3 and 2. */
const COSTS = {
  turn: { own: 1 },
  direct_between: { titles: 1 },
  direct_in_turn: { own: 2, titles: 1 },
  child_between: { child: 1 },
  child_in_turn: { own: 2, child: 1 },
  busy_child: { own: 2, child: 2, childDirect: 1, grandchild: 1 },
} as const;
type Spending = keyof typeof COSTS;
type Counts = { readonly own?: number; readonly titles?: number; readonly child?: number } & {
  readonly childDirect?: number;
  readonly grandchild?: number;
};

/** Does it in a session with the child `<id>/child`, whose usage stands under `kids`. */
async function spend(session: Session, spending: Spending): Promise<void> {
  const childId = `${session.id}/child`;
  switch (spending) {
    case "turn":
      await session.turn(told({ say: "hi" }));
      return;
    case "direct_between":
      await ask(session, direct("titles"));
      return;
    case "direct_in_turn":
      await turnThatAsks(session, direct("titles"));
      return;
    case "child_between":
      await ask(session, ["startTurn", childId, told({ say: "hi" })]);
      return;
    case "child_in_turn":
      await turnThatAsks(session, ["startTurn", childId, told({ say: "hi" })]);
      return;
    case "busy_child": {
      const calls = [direct("notes"), ["startTurn", `${childId}/child`, told({ say: "deep" })]];
      await turnThatAsks(session, ["startTurn", childId, told({ call: "ask_host", args: { calls } }, { say: "done" })]);
      return;
    }
  }
}

const sumOf = (spendings: readonly Spending[], what: keyof Counts): number =>
  spendings.reduce((sum, spending) => sum + ((COSTS[spending] as Counts)[what] ?? 0), 0);

describe.each(["worker", "inline"] as const)("what sessions spend, with a plugin in the tier %s", (tier) => {
  let troupe: Troupe;
  let families = 0;
  beforeAll(async () => {
    troupe = await createTroupe(asking(tier));
  });
  afterAll(() => troupe.close());

  /** A session with a child and a grandchild that its plugins can run turns in. */
  async function family(): Promise<Session> {
    const id = `f${families++}`;
    const session = await troupe.session(id);
    await ask(session, ["createSession", { sessionId: `${id}/child`, usageSource: "kids" }]);
    await ask(await troupe.session(`${id}/child`), [
      "createSession",
      { sessionId: `${id}/child/child`, usageSource: "kids of kids" },
    ]);
    return session;
  }

  // state §14
  test("is counted once, by source and by model, however turns, direct completions and children interleave", async () => {
    const spendings = fc.array(fc.constantFrom(...(Object.keys(COSTS) as Spending[])), { maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(spendings, spendings, async (one, other) => {
        const work = async (done: readonly Spending[]) => {
          const session = await family();
          for (const spending of done) await spend(session, spending);
          return { done, session };
        };
        for (const { done, session } of await Promise.all([work(one), work(other)])) {
          const spent = (calls: number, directs = 0) => usage(10 * calls + 3 * directs, 5 * calls + 2 * directs);
          const [own, titles] = [sumOf(done, "own"), sumOf(done, "titles")];
          const kids = { calls: sumOf(done, "child") + sumOf(done, "grandchild"), directs: sumOf(done, "childDirect") };
          const { total, bySource, byModel, bySourceModel } = await reportOf(session);
          expect(bySource).toEqual({
            ...(own > 0 && { turn: spent(own) }),
            ...(titles > 0 && { titles: spent(0, titles) }),
            ...(kids.calls > 0 && { kids: spent(kids.calls, kids.directs) }),
          });
          expect(total).toEqual(spent(own + kids.calls, titles + kids.directs));
          expect(byModel).toEqual(done.length === 0 ? {} : { told: total });
          expect(bySourceModel.map(({ source }) => source).sort()).toEqual(Object.keys(bySource).sort());
          // The child's own ledger has what it spent and its child; nobody else's.
          const child = await reportOf(await troupe.session(`${session.id}/child`));
          expect(child.total).toEqual(spent(kids.calls, kids.directs));
        }
      }),
      { numRuns: 15 },
    );
  });

  test("is in the view while a turn runs, and the same when it is stored", async () => {
    const session = await family();
    const [, view] = await askInTurn(session, direct("titles"), ["snapshotCurrent"]);
    expect(usageReport(valueIn<SessionView>(view).ledger).bySource).toEqual({
      turn: usage(10, 5),
      titles: usage(3, 2),
    });
    expect((await reportOf(session)).bySource).toEqual({ turn: usage(20, 10), titles: usage(3, 2) });
  });
});

describe("a stored ledger", () => {
  test("keeps the models apart that a session was answered by", async () => {
    const path = await tempFolder();
    for (const [model, turns] of [
      ["large", 2],
      ["small", 1],
    ] as const) {
      const troupe = await startTroupe(
        asking("inline", { model: fixture(`models/told.mjs?id=${model}`), store: { path } }),
      );
      const session = await troupe.session("s");
      for (let n = 0; n < turns; n++) await session.turn(told({ say: "hi" }));
      await ask(session, direct("titles"));
      await troupe.close();
    }
    const troupe = await startTroupe(asking("inline", { store: { path } }));
    const { bySourceModel, byModel, total } = await reportOf(await troupe.session("s"));
    expect(bySourceModel).toEqual([
      entry("turn", "large", 20, 10),
      entry("titles", "large", 3, 2),
      entry("turn", "small", 10, 5),
      entry("titles", "small", 3, 2),
    ]);
    expect(byModel).toEqual({ large: usage(23, 12), small: usage(13, 7) });
    expect(total).toEqual(usage(36, 19));
  });

  /** A session whose head was stored with this in it. */
  async function stored(fields: object) {
    const path = await tempFolder();
    const backend = openLmdb(path);
    const { head, ...commit } = storedTurn("s", 1);
    const epoch = backend.claim("s", { owner: "a test", take: "always" });
    const changed = { ...commit, epoch, head: { ...head, ...fields } } as unknown as Commit;
    backend.write([{ kind: "commit", commit: changed }]);
    backend.close();
    const troupe = await startTroupe(asking("inline", { store: { path } }));
    return { troupe, session: await troupe.session("s") };
  }

  // turn §8.10
  test("that is full refuses what it could not count, before anything is written", async () => {
    const full = usage(Number.MAX_SAFE_INTEGER, 0);
    const ledger = ["turn", "titles"].map((source) => ({ source, model: "told", usage: full }));
    const { session } = await stored({ usage: full, ledger });
    expect(await ask(session, direct("titles"))).toEqual([{ error: "token_usage_overflow" }]);
    expect(await refusalOf(session.turn(told({ say: "hi" })))).toMatchObject({
      code: "token_usage_overflow",
      details: { counter: "inputTokens" },
    });
    expect(await session.view()).toMatchObject({ turnIndex: 1, messageCount: 1, usage: full, ledger });
    // There is room for others.
    expect(await ask(session, direct("notes"))).toMatchObject([{ value: { usage: usage(3, 2) } }]);
    expect((await session.view()).ledger).toEqual([...ledger, entry("notes", "told", 3, 2)]);
  });

  test("of an older version is read, and goes on", async () => {
    // As it was stored when there were only sources, and own calls stood in the head's usage alone.
    const { troupe, session } = await stored({ usage: usage(100, 50), ledger: { titles: usage(7, 3) } });
    const before = [entry("turn", "unknown", 100, 50), entry("titles", "unknown", 7, 3)];
    expect(await session.view()).toMatchObject({ usage: usage(100, 50), ledger: before });
    await session.turn(told({ say: "hi" }));
    const after = [...before, entry("turn", "told", 10, 5)];
    expect(await session.view()).toMatchObject({ usage: usage(110, 55), ledger: after });
    await session.close();
    expect((await (await troupe.session("s")).view()).ledger).toEqual(after);
  });
});
