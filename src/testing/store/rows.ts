import assert from "node:assert/strict";
import {
  type JournalClearing,
  numbersIn,
  type RowChange,
  type RowName,
  type RowWrite,
  type StoreWrite,
} from "../../kernel/index.js";
import { bytesOf, changedRows, largest, plainRow, rowOf, rowsOf, rowsWrite, versionOf } from "./sample-rows.js";
import {
  type Cases,
  commit,
  commitOf,
  committed,
  component,
  deleteOf,
  entry,
  fork,
  headOf,
  recorded,
  recordOf,
  refusal,
  stateOf,
  type TestedBackend,
  turn,
  UNCLAIMED,
  unreadable,
  whichAccepted,
  written,
} from "./samples.js";

const clearOf = (sessionId: string, rows?: JournalClearing["rows"]): StoreWrite => ({
  kind: "clear",
  sessionId,
  expectedRevision: 0,
  epoch: UNCLAIMED,
  ...(rows !== undefined && { rows }),
});

/** The four ways to change rows, each as one write of session `a`, which has a journal and no head yet. */
const WAYS: Readonly<Record<string, (rows: readonly RowWrite[]) => StoreWrite>> = {
  commit: (rows) => commitOf({ ...turn("a", 1, { clearsJournal: true }), rows }),
  record: (rows) => recordOf(entry("a", "tool:2", { rows })),
  clear: (rows) => clearOf("a", rows),
  rows: (rows) => rowsWrite(...rows),
};

/** Everything of session `a` and of some rows, to show that something changed nothing. */
async function everything(backend: TestedBackend, ...names: readonly RowName[]): Promise<unknown> {
  const rows = await Promise.all(names.map(async (name) => plainRow(await backend.row(name))));
  return { state: await stateOf(backend, "a"), rows };
}

/** Rows of named tables: how they are written, with what, and what refuses them. */
export const ROWS: Cases = {
  async "a store begins without rows"({ backend }) {
    assert.equal(await backend.row({ table: "tasks", key: "1" }), undefined);
    assert.deepEqual(await backend.rows({ table: "tasks", limit: 5 }), []);
    assert.deepEqual(await backend.rowsInOrder({ table: "tasks", limit: 5 }), []);
    assert.deepEqual(await backend.keys("rows", undefined, 5), []);
  },

  async "a row comes back with its value, version and order, and is one record"({ backend }) {
    assert.deepEqual(await changedRows(backend, rowOf("1", "one", { order: { at: 7, owner: "o" } })), [1]);
    assert.deepEqual(plainRow(await backend.row({ table: "tasks", key: "1" })), {
      table: "tasks",
      key: "1",
      value: "one",
      version: 1,
      order: { at: 7, owner: "o" },
    });
    assert.deepEqual(await changedRows(backend, rowOf("1", "two", { session: "a" })), [1]);
    assert.deepEqual(plainRow(await backend.row({ table: "tasks", key: "1", session: "a" })), {
      table: "tasks",
      key: "1",
      session: "a",
      value: "two",
      version: 1,
    });
    assert.deepEqual({ ...backend.writes }, { transactions: 2, records: 2 });
  },

  async "rows change with a commit, a record, the clearing of a journal, or on their own"({ backend }) {
    let version = 0;
    for (const way of ["rows", "record", "clear", "commit"]) {
      await recorded(backend, entry("a", "tool:1"));
      const before = { ...backend.writes };
      const rows = [rowOf("1", way, { expectedVersion: version++ }), rowOf(way, way, { session: "a" })];
      assert.deepEqual(whichAccepted(await written(backend, [(WAYS[way] as Way)(rows)])), [true], way);
      assert.deepEqual(plainRow(await backend.row({ table: "tasks", key: "1" })), {
        table: "tasks",
        key: "1",
        value: way,
        version,
      });
      assert.equal(await versionOf(backend, { table: "tasks", key: way, session: "a" }), 1);
      // The rows, and with them a journal row, or a head and a segment.
      const records = { rows: 2, record: 3, clear: 2, commit: 4 }[way] as number;
      assert.deepEqual(
        { ...backend.writes },
        { transactions: before.transactions + 1, records: before.records + records },
      );
    }
    assert.deepEqual(await backend.journal("a"), []);
    assert.equal((await backend.head("a"))?.revision, 1);
  },

  async "a row that is not as expected refuses its whole commit, record, clearing or change of rows"({ backend }) {
    await recorded(backend, entry("a", "tool:1"));
    await changedRows(backend, rowOf("1", "one"));
    const names = [rowOf("0", ""), rowOf("1", ""), rowOf("2", "")];
    const before = await everything(backend, ...names);
    for (const [name, way] of Object.entries(WAYS)) {
      for (const [expectedVersion, session] of [[0], [2], [1, "a"]] as const) {
        const wrong = rowOf("1", "wrong", { expectedVersion, ...(session !== undefined && { session }) });
        const [result] = await written(backend, [way([rowOf("0", "zero"), wrong, rowOf("2", "two")])]);
        const error = refusal(result);
        assert.equal(error.code, "row_conflict", name);
        assert.equal(error.retryable, true);
        assert.deepEqual(error.details, {
          table: "tasks",
          key: "1",
          expected: expectedVersion,
          actual: session === undefined ? 1 : 0,
          ...(session !== undefined && { sessionId: session }),
        });
      }
    }
    assert.deepEqual(await everything(backend, ...names), before);
  },

  async "a commit, record or clearing that is refused changes no row"({ backend }) {
    await committed(backend, turn("a", 1));
    await recorded(backend, entry("a", "tool:1", { expectedRevision: 1 }));
    const before = await everything(backend, rowOf("1", ""));
    const rows = [rowOf("1", "one")];
    const results = await written(backend, [
      commitOf({ ...turn("a", 3), rows }),
      recordOf(entry("a", "tool:2", { rows })),
      clearOf("a", rows),
    ]);
    for (const result of results) assert.equal(refusal(result).code, "head_conflict");
    assert.deepEqual(await everything(backend, rowOf("1", "")), before);
  },

  async "a commit or record that is answered from before changes no row again"({ backend }) {
    const one = { ...turn("a", 1), rows: [rowOf("1", "first")] };
    await committed(backend, one);
    const record = entry("a", "tool:1", { expectedRevision: 1, rows: [rowOf("2", "first")] });
    await recorded(backend, record);
    await changedRows(backend, rowOf("1", "later"), rowOf("2", "later"));
    const before = await everything(backend, rowOf("1", ""), rowOf("2", ""));
    assert.deepEqual(await committed(backend, one), { revision: 1, replayed: true });
    assert.equal((await recorded(backend, record)).replayed, true);
    // Also when the rows would be refused by now: they were changed when it was stored.
    const late = { ...record, rows: [rowOf("2", "late", { expectedVersion: 0 })] };
    assert.equal((await recorded(backend, late)).replayed, true);
    assert.deepEqual(await everything(backend, rowOf("1", ""), rowOf("2", "")), before);
  },

  async "a row's version grows by one, and a row that was removed begins anew"({ backend }) {
    for (let version = 1; version <= 5; version++) {
      assert.deepEqual(await changedRows(backend, rowOf("1", "v", { expectedVersion: version - 1 })), [version]);
    }
    assert.deepEqual(await changedRows(backend, rowOf("1", null, { expectedVersion: 5 })), [0]);
    assert.equal(await backend.row(rowOf("1", "")), undefined);
    assert.deepEqual(await changedRows(backend, rowOf("1", "v", { expectedVersion: 0 })), [1]);
    // Without a word on the version, over any and over none.
    assert.deepEqual(await changedRows(backend, rowOf("1", "v"), rowOf("2", "v"), rowOf("none", null)), [2, 1, 0]);
    assert.deepEqual(await changedRows(backend, rowOf("none", null, { expectedVersion: 0 })), [0]);
    const [removed] = await written(backend, [rowsWrite(rowOf("none", null, { expectedVersion: 1 }))]);
    assert.equal(refusal(removed).code, "row_conflict");
  },

  async "numbers that are added to a row are all counted, whoever adds them"({ backend, reopen }) {
    const order = { at: 7, owner: "acme" };
    const adds = (...add: number[]) => ({ table: "counts", key: "1", add, order });
    const batches = await Promise.all(
      [1, 2, 3].map((by) => written(backend, [rowsWrite(adds(by)), rowsWrite(adds(by, 0.5))])),
    );
    assert.deepEqual(batches.flatMap(whichAccepted), Array(6).fill(true));
    const once = { ...turn("a", 1), rows: [adds(100)] };
    await committed(backend, once);
    // What is answered from before is not counted again, nor what is refused.
    assert.equal((await committed(backend, once)).replayed, true);
    const [refused] = await written(backend, [commitOf({ ...turn("a", 3), rows: [adds(1_000)] })]);
    assert.equal(refusal(refused).code, "head_conflict");
    const record = entry("a", "tool:1", { expectedRevision: 1, rows: [adds(10, -1)] });
    await recorded(backend, record);
    assert.equal((await recorded(backend, record)).replayed, true);
    const again = reopen === undefined ? backend : await reopen();
    const [row, ...others] = await again.rowsInOrder({ table: "counts", owner: "acme", limit: 2 });
    assert.deepEqual(row && numbersIn(row), [122, 0.5]);
    assert.deepEqual([row?.version, row?.order, others], [8, order, []]);
  },

  async "only numbers are added, and only to a row of numbers"({ backend }) {
    await changedRows(backend, rowOf("1", "no numbers"));
    const adds = (add: unknown, key = "2") => ({ table: "tasks", key, add: add as number[] });
    const bad = [adds([]), adds(Array(17).fill(1)), adds([Number.NaN]), adds(["1"]), adds(1), adds([1], "1")];
    for (const change of bad) {
      const [result] = await written(backend, [rowsWrite(rowOf("3", "good"), change)]);
      assert.equal(refusal(result).code, "invalid_row", JSON.stringify(change));
    }
    assert.deepEqual(await rowsOf(backend, { table: "tasks" }), [["1", "no numbers", 1]]);
  },

  async "of several that create a row only the first does"({ backend }) {
    const create = (value: string) => rowsWrite(rowOf("1", value, { expectedVersion: 0 }));
    const batches = await Promise.all(["a", "b", "c", "d"].map((value) => written(backend, [create(value)])));
    assert.deepEqual(batches.flatMap(whichAccepted).filter(Boolean), [true]);
    assert.equal(await versionOf(backend, rowOf("1", "")), 1);
  },

  async "one write does not change a row twice"({ backend }) {
    const twice = [rowOf("1", "a"), rowOf("2", "b"), rowOf("1", null)];
    assert.equal(refusal((await written(backend, [rowsWrite(...twice)]))[0]).code, "invalid_row");
    assert.deepEqual(await rowsOf(backend, { table: "tasks" }), []);
    // The same key of another session, or of another table, is another row.
    const apart = [rowOf("1", "a"), rowOf("1", "b", { session: "a" }), rowOf("1", "c", { table: "other" })];
    assert.deepEqual(await changedRows(backend, ...apart), [1, 1, 1]);
  },

  async "a change of no rows is answered and writes nothing"({ backend }) {
    assert.deepEqual(await changedRows(backend), []);
    assert.deepEqual({ ...backend.writes }, { transactions: 0, records: 0 });
  },

  async "a row no store could keep is refused"({ backend }) {
    const order = (at: number, owner?: string) => ({ order: { at, ...(owner !== undefined && { owner }) } });
    const bad: readonly RowChange[] = [
      ...["", "Tasks", "1st", "two words", "ä", "t".repeat(65), "sessions"].map((table) => rowOf("1", "v", { table })),
      ...["line\nbreak", "\u0000", "a\u007fb", "\ud800", "k".repeat(401), "é".repeat(201)].map((key) =>
        rowOf(key, "v"),
      ),
      ...["line\nbreak", "a\u007fb", "\udc00", "o".repeat(257)].map((owner) => rowOf("1", "v", order(1, owner))),
      ...[-1, 1.5, Number.NaN, 2 ** 53].map((at) => rowOf("1", "v", order(at))),
      ...[-1, 0.5, Number.NaN].map((expectedVersion) => rowOf("1", "v", { expectedVersion })),
      ...["", "a\u007fb"].map((session) => rowOf("1", "v", { session })),
      { ...rowOf("1", "v"), value: "text" as unknown as Uint8Array },
    ];
    for (const each of bad) {
      const [alone, withCommit] = await written(backend, [
        rowsWrite(rowOf("2", "good"), each),
        commitOf({ ...turn("a", 1), rows: [each] }),
      ]);
      for (const result of [alone, withCommit]) assert.equal(refusal(result).code, "invalid_row", JSON.stringify(each));
    }
    assert.deepEqual({ ...backend.writes }, { transactions: 0, records: 0 });
  },

  async "the longest names and the latest time are kept"({ backend }) {
    const row = { ...largest(), value: bytesOf("v") };
    assert.deepEqual(await changedRows(backend, row), [1]);
    const { table, session, order } = row;
    assert.equal((await backend.rows({ table, session, limit: 2 }))[0]?.key, row.key);
    const [found, ...others] = await backend.rowsInOrder({ table, owner: order.owner, limit: 2 });
    assert.deepEqual([found?.session, found?.key, found?.order, others], [session, row.key, order, []]);
    await changedRows(backend, { ...row, value: null });
    assert.deepEqual(await backend.rowsInOrder({ table, owner: order.owner, limit: 2 }), []);
  },

  async "values come back as they went in, empty and large ones too"({ backend }) {
    for (const size of [0, 1, 511, 40_000, 3_000_000]) {
      const value = new Uint8Array(size).fill(size % 251);
      await changedRows(backend, { table: "tasks", key: `${size}`, value });
      assert.deepEqual(new Uint8Array((await backend.row(rowOf(`${size}`, "")))?.value ?? []), value);
    }
  },

  async "writes of one batch see each other's rows"({ backend }) {
    const results = await written(backend, [
      rowsWrite(rowOf("1", "first", { expectedVersion: 0 })),
      commitOf({ ...turn("a", 1), rows: [rowOf("1", "second", { expectedVersion: 1 })] }),
      rowsWrite(rowOf("1", "rival", { expectedVersion: 1 })),
      rowsWrite(rowOf("1", null, { expectedVersion: 2 })),
      rowsWrite(rowOf("1", "anew", { expectedVersion: 0, order: { at: 3 } })),
    ]);
    assert.deepEqual(whichAccepted(results), [true, true, false, true, true]);
    assert.deepEqual(await rowsOf(backend, { table: "tasks" }), [["1", "anew", 1]]);
    assert.equal((await backend.rowsInOrder({ table: "tasks", limit: 5 })).length, 1);
    assert.deepEqual({ ...backend.writes }, { transactions: 1, records: 5 });
  },

  async "a transaction that fails leaves no rows"({ backend }) {
    await changedRows(backend, rowOf("1", "one", { order: { at: 1 } }));
    const results = await written(backend, [
      rowsWrite(rowOf("1", "two", { order: { at: 2 } }), rowOf("2", "two", { order: { at: 2 } })),
      commitOf({ ...turn("a", 1, { components: [unreadable()] }), rows: [rowOf("3", "three")] }),
    ]);
    for (const result of results) assert.equal(refusal(result).code, "store_write_failed");
    assert.deepEqual(await rowsOf(backend, { table: "tasks" }), [["1", "one", 1]]);
    const ordered = await backend.rowsInOrder({ table: "tasks", limit: 5 });
    assert.deepEqual(
      ordered.map(({ order }) => order),
      [{ at: 1 }],
    );
    assert.deepEqual(await changedRows(backend, rowOf("1", "two", { expectedVersion: 1 })), [2]);
  },

  async "deleting a session removes its rows and their places, and no others"({ backend }) {
    const order = { at: 5 };
    const sessions = ["a", "a/b", "a\u00a0", "ab", "A"];
    for (const session of sessions) {
      await committed(backend, turn(session, 1));
      const rows = ["1", "2"].map((key) => rowOf(key, session, { session, order }));
      await changedRows(backend, ...rows, rowOf("1", session, { session, table: "other" }));
    }
    await changedRows(backend, rowOf("1", "nobody's", { order }));
    const before = { ...backend.writes };
    assert.deepEqual(whichAccepted(await written(backend, [deleteOf("a")])), [true]);
    assert.deepEqual({ ...backend.writes }, { ...before, transactions: before.transactions + 1 });
    for (const table of ["tasks", "other"]) assert.deepEqual(await backend.rows({ table, session: "a", limit: 9 }), []);
    for (const session of sessions.slice(1)) {
      assert.equal((await backend.rows({ table: "tasks", session, limit: 9 })).length, 2, session);
      assert.equal((await backend.rows({ table: "other", session, limit: 9 })).length, 1, session);
    }
    const ordered = await backend.rowsInOrder({ table: "tasks", limit: 20 });
    const left = ordered.map(({ session = "nobody" }) => session).sort();
    assert.deepEqual(left, ["A", "A", "a/b", "a/b", "ab", "ab", "a\u00a0", "a\u00a0", "nobody"].sort());
  },

  async "a deleted session gets no rows, from nobody"({ backend, reopen }) {
    await committed(backend, turn("a", 1));
    const row = rowOf("1", "one", { session: "a" });
    const results = await written(backend, [deleteOf("a"), rowsWrite(row)]);
    assert.equal(refusal(results[1]).code, "session_deleted");
    const again = reopen === undefined ? backend : await reopen();
    const late = await written(again, [
      rowsWrite(rowOf("2", "two"), row),
      commitOf({ ...turn("b", 1), rows: [row] }),
      recordOf(entry("c", "tool:1", { rows: [row] })),
    ]);
    for (const result of late) {
      assert.equal(refusal(result).code, "session_deleted");
      assert.deepEqual(refusal(result).details, { sessionId: "a" });
    }
    assert.deepEqual(await again.keys("rows", undefined, 5), []);
  },

  async "rows that a batch writes for a session it then deletes are gone"({ backend }) {
    await committed(backend, turn("a", 1));
    await changedRows(backend, rowOf("stored", "v", { session: "a" }), rowOf("removed", "v", { session: "a" }));
    const results = await written(backend, [
      rowsWrite(rowOf("new", "v", { session: "a", order: { at: 1 } }), rowOf("removed", null, { session: "a" })),
      deleteOf("a"),
    ]);
    assert.deepEqual(whichAccepted(results), [true, true]);
    assert.deepEqual(await backend.keys("rows", undefined, 5), []);
    assert.deepEqual(await backend.rowsInOrder({ table: "tasks", limit: 5 }), []);
  },

  async "a fork has none of its parent's rows"({ backend }) {
    await committed(backend, { ...turn("a", 1), rows: [rowOf("1", "one", { session: "a" })] });
    await committed(backend, fork("child", "a@1.1"));
    assert.deepEqual(await rowsOf(backend, { table: "tasks", session: "child" }), []);
    await written(backend, [deleteOf("child")]);
    assert.deepEqual(await rowsOf(backend, { table: "tasks", session: "a" }), [["1", "one", 1]]);
  },

  async "an imported session brings its rows with its head, and no rows of others"({ backend }) {
    const { segment } = turn("a", 1);
    const part = { kind: "import", sessionId: "a", components: [], head: headOf("a", 1) } as const;
    const segments = segment === undefined ? [] : [segment];
    const row = { table: "tasks", key: "1", session: "a", value: bytesOf("one"), version: 7, order: { at: 3 } };
    for (const stranger of [
      { ...row, session: "b" },
      { table: "tasks", key: "1", value: row.value, version: 1 },
    ]) {
      const [result] = await written(backend, [{ ...part, segments, rows: [row, stranger] }]);
      assert.equal(refusal(result).code, "import_incomplete");
    }
    assert.deepEqual(await backend.keys("rows", undefined, 5), []);
    assert.deepEqual(whichAccepted(await written(backend, [{ ...part, segments, rows: [row] }])), [true]);
    assert.deepEqual(plainRow((await backend.rowsInOrder({ table: "tasks", limit: 5 }))[0]), { ...row, value: "one" });
    assert.deepEqual(await changedRows(backend, { ...rowOf("1", "two", { session: "a", expectedVersion: 7 }) }), [8]);
  },

  async "rows are there after reopening, with their versions and places"({ backend, reopen }) {
    if (reopen === undefined) return;
    const state = component("state");
    await commit(backend, { ...turn("a", 1, { components: [state] }), rows: [rowOf("1", "one", { session: "a" })] });
    await changedRows(backend, rowOf("1", "one", { session: "a", order: { at: 9, owner: "o" } }), rowOf("2", "two"));
    const again = await reopen();
    assert.deepEqual(await rowsOf(again, { table: "tasks", session: "a" }), [["1", "one", 2]]);
    assert.deepEqual(await rowsOf(again, { table: "tasks" }), [["2", "two", 1]]);
    assert.equal((await again.rowsInOrder({ table: "tasks", owner: "o", limit: 5 })).length, 1);
    assert.deepEqual(await changedRows(again, rowOf("1", null, { session: "a", expectedVersion: 2 })), [0]);
    assert.deepEqual(await again.rowsInOrder({ table: "tasks", owner: "o", limit: 5 }), []);
  },
};

type Way = (rows: readonly RowWrite[]) => StoreWrite;
