import assert from "node:assert/strict";
import type { Row } from "../../kernel/index.js";
import { bytesOf, changedRows, plainRow, rowOf, rowsOf, rowsWrite } from "./sample-rows.js";
import { type Cases, committed, deleteOf, type TestedBackend, turn, whichAccepted, written } from "./samples.js";

type RowRange = Parameters<TestedBackend["rows"]>[0];
type OrderRange = Parameters<TestedBackend["rowsInOrder"]>[0];

const byBytes = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b));
const keysOf = (rows: readonly Row[]) => rows.map(({ key }) => key);

/** All of a range, read in pages of a size. */
async function inPages(backend: TestedBackend, range: Omit<RowRange, "limit">, limit: number): Promise<string[]> {
  const keys: string[] = [];
  for (let after = range.after; ; after = keys.at(-1)) {
    const page = await backend.rows({ ...range, ...(after !== undefined && { after }), limit });
    assert.ok(page.length <= limit, "a page has no more than was asked for");
    keys.push(...keysOf(page));
    if (page.length < limit) return keys;
  }
}

async function placesInPages(
  backend: TestedBackend,
  range: Omit<OrderRange, "limit">,
  limit: number,
): Promise<string[]> {
  const rows: Row[] = [];
  for (let after = range.after; ; after = rows.at(-1)) {
    const page = await backend.rowsInOrder({ ...range, ...(after !== undefined && { after }), limit });
    assert.ok(page.length <= limit, "a page has no more than was asked for");
    rows.push(...page);
    if (page.length < limit) return rows.map(placeOf);
  }
}

const placeOf = ({ session = "-", key, order }: Row) => `${order?.at} ${session} ${key}`;

const KEYS = [
  "",
  " ",
  "0",
  "A",
  "a",
  "a/1",
  "a/10",
  "a/2",
  "a:b",
  "aé",
  "b",
  "~",
  "é",
  "日本",
  "\uff5e",
  "😀",
  "😀/1",
  "\u{10FFFF}",
];

/** Rows read by range, in pages. */
export const ROW_PAGES: Cases = {
  async "rows come by key in the order of the keys' bytes, in pages of any size"({ backend }) {
    await changedRows(backend, ...[...KEYS].reverse().map((key) => rowOf(key, key)));
    const expected = [...KEYS].sort(byBytes);
    for (const limit of [1, 2, 3, KEYS.length, 100]) {
      assert.deepEqual(await inPages(backend, { table: "tasks" }, limit), expected);
    }
    assert.deepEqual(
      await rowsOf(backend, { table: "tasks" }),
      expected.map((key) => [key, key, 1]),
    );
  },

  async "a page begins behind any key, whether it is there or not"({ backend }) {
    await changedRows(backend, ...KEYS.map((key) => rowOf(key, key)));
    for (const after of [...KEYS, "!", "a/", "a/1x", "zz", "\uffff"]) {
      const expected = [...KEYS].sort(byBytes).filter((key) => byBytes(key, after) > 0);
      assert.deepEqual(keysOf(await backend.rows({ table: "tasks", after, limit: 100 })), expected, after);
      assert.deepEqual(keysOf(await backend.rows({ table: "tasks", after, limit: 1 })), expected.slice(0, 1), after);
    }
  },

  async "a prefix gives the keys that begin with it, from behind a key on"({ backend }) {
    await changedRows(backend, ...KEYS.map((key) => rowOf(key, key)));
    for (const prefix of ["", "a", "a/", "a/1", "é", "日", "\uff5e", "😀", "\u{10FFFF}", "none"]) {
      const expected = KEYS.filter((key) => key.startsWith(prefix)).sort(byBytes);
      for (const limit of [1, 2, 100])
        assert.deepEqual(await inPages(backend, { table: "tasks", prefix }, limit), expected);
      for (const after of KEYS) {
        const behind = expected.filter((key) => byBytes(key, after) > 0);
        const found = keysOf(await backend.rows({ table: "tasks", prefix, after, limit: 100 }));
        assert.deepEqual(found, behind, `${prefix} behind ${after}`);
      }
    }
  },

  async "a key that goes on with the last character there is belongs to its prefix"({ backend }) {
    const keys = ["p", "p\u{10FFFF}", `p${"\u{10FFFF}".repeat(99)}`];
    await changedRows(backend, ...keys.map((key) => rowOf(key, key)), rowOf("q", "q"));
    assert.deepEqual(keysOf(await backend.rows({ table: "tasks", prefix: "p", limit: 10 })), keys);
  },

  async "rows of sessions, of nobody and of other tables are kept apart"({ backend }) {
    const sessions = [undefined, "a", "a/b", "ab", "a\u00a0", "tasks", "日本", "a".repeat(256)];
    const tables = ["tasks", "tasks.2", "task", "tasks:x"];
    for (const table of tables) {
      for (const session of sessions) {
        const row = rowOf("1", `${session} ${table}`, { table, ...(session !== undefined && { session }) });
        await changedRows(backend, row);
      }
    }
    for (const table of tables) {
      for (const session of sessions) {
        const of = { table, ...(session !== undefined && { session }) };
        assert.deepEqual(await rowsOf(backend, of), [["1", `${session} ${table}`, 1]]);
      }
    }
    const keys = new Set<string>();
    for (let after: string | undefined; ; ) {
      const page = await backend.keys("rows", after, 5);
      for (const key of page) keys.add(key);
      after = page.at(-1);
      if (page.length < 5) break;
    }
    assert.equal(keys.size, sessions.length * tables.length);
  },

  async "rows with an order come by time, of all sessions, forwards and backwards, in pages of any size"({ backend }) {
    const times = [0, 1, 9, 10, 255, 256, 1_700_000_000_000, Number.MAX_SAFE_INTEGER];
    const order = (at: number) => ({ order: { at } });
    await changedRows(
      backend,
      ...times.flatMap((at) => [rowOf(`${at}`, "v", order(at)), rowOf(`${at}`, "v", { session: "a", ...order(at) })]),
      rowOf("no order", "v"),
      rowOf("1", "v", { table: "other", ...order(1) }),
    );
    const all = (await backend.rowsInOrder({ table: "tasks", limit: 100 })).map(placeOf);
    // Which of two rows of one time comes first is the store's own to say, as long as it says the same always.
    const found = await backend.rowsInOrder({ table: "tasks", limit: 100 });
    assert.deepEqual(
      found.map((row) => row.order?.at),
      times.flatMap((at) => [at, at]),
    );
    assert.equal(new Set(all).size, 2 * times.length);
    for (const limit of [1, 2, 3, 100]) {
      assert.deepEqual(await placesInPages(backend, { table: "tasks" }, limit), all);
      assert.deepEqual(await placesInPages(backend, { table: "tasks", reverse: true }, limit), [...all].reverse());
    }
  },

  async "rows in order are those of one owner, or of none"({ backend }) {
    const owners = [undefined, "o", "o2", "o ", "O", "ö"];
    const own = (owner: string | undefined, at: number) => ({ order: { at, ...(owner !== undefined && { owner }) } });
    for (const owner of owners) {
      for (const at of [3, 1, 2]) await changedRows(backend, rowOf(`${owner} ${at}`, "v", own(owner, at)));
    }
    for (const owner of owners) {
      const of = { table: "tasks", ...(owner !== undefined && { owner }), limit: 10 };
      assert.deepEqual(
        keysOf(await backend.rowsInOrder(of)),
        [1, 2, 3].map((at) => `${owner} ${at}`),
      );
      assert.deepEqual(keysOf(await backend.rowsInOrder({ ...of, reverse: true, limit: 2 })), [
        `${owner} 3`,
        `${owner} 2`,
      ]);
    }
  },

  async "rows in order come from one time on, and up to and not at another"({ backend }) {
    await changedRows(backend, ...[1, 2, 2, 3, 4, 5].map((at, i) => rowOf(`${i}`, "v", { order: { at } })));
    const at = async (range: Partial<OrderRange>) => {
      const rows = await backend.rowsInOrder({ table: "tasks", limit: 100, ...range });
      return rows.map(({ order }) => order?.at);
    };
    for (const [range, expected] of [
      [{ from: 2 }, [2, 2, 3, 4, 5]],
      [{ until: 4 }, [1, 2, 2, 3]],
      [{ from: 2, until: 4 }, [2, 2, 3]],
      [{ from: 0, until: 1 }, []],
      [{ from: 6 }, []],
      [{ from: 3, until: 3 }, []],
    ] as const) {
      assert.deepEqual(await at(range), expected);
      assert.deepEqual(await at({ ...range, reverse: true }), [...expected].reverse());
      for (const reverse of [false, true]) {
        const all = (await backend.rowsInOrder({ table: "tasks", ...range, reverse, limit: 100 })).map(placeOf);
        assert.deepEqual(await placesInPages(backend, { table: "tasks", ...range, reverse }, 1), all);
      }
    }
  },

  async "a row stands where its last change put it, or nowhere"({ backend }) {
    const places = async (owner?: string) =>
      (await backend.rowsInOrder({ table: "tasks", ...(owner !== undefined && { owner }), limit: 9 })).map(
        ({ key, order }) => `${key} ${order?.at}`,
      );
    await changedRows(backend, rowOf("1", "v", { order: { at: 1 } }), rowOf("2", "v", { order: { at: 2 } }));
    await changedRows(backend, rowOf("1", "v", { order: { at: 3 } }));
    assert.deepEqual(await places(), ["2 2", "1 3"]);
    await changedRows(backend, rowOf("1", "v", { order: { at: 3, owner: "o" } }));
    assert.deepEqual([await places(), await places("o")], [["2 2"], ["1 3"]]);
    await changedRows(backend, rowOf("1", "v"));
    assert.deepEqual([await places(), await places("o")], [["2 2"], []]);
    await changedRows(backend, rowOf("1", "v", { order: { at: 0 } }), rowOf("2", null));
    assert.deepEqual(await places(), ["1 0"]);
  },

  async "what is to go on is found over all sessions, until it has ended, its session is deleted or somebody has it"({
    backend,
    reopen,
  }) {
    const on = (session: string, at: number) =>
      rowOf("p/log", session, { table: "monitors", session, order: { at, owner: "on" } });
    await changedRows(backend, on("b", 2), on("a", 1), on("c", 1), on("d", 3));
    const [ended] = await changedRows(backend, { ...on("b", 2), order: { at: 2, owner: "ended" } });
    assert.equal(ended, 2);
    await committed(backend, turn("c", 1));
    await written(backend, [deleteOf("c")]);
    const again = reopen === undefined ? backend : await reopen();
    const found = await again.rowsInOrder({ table: "monitors", owner: "on", limit: 9 });
    assert.deepEqual(
      found.map(({ session }) => session),
      ["a", "d"],
    );
    // Of two that take what both rows have, one has it.
    const taken = (by: string) =>
      rowsWrite(...["a", "d"].map((session) => ({ ...on(session, 9), value: bytesOf(by), expectedVersion: 1 })));
    const results = await written(again, [taken("first"), taken("second")]);
    assert.deepEqual(whichAccepted(results), [true, false]);
    const values = (await again.rowsInOrder({ table: "monitors", owner: "on", limit: 9 })).map(plainRow);
    assert.deepEqual(values, [
      { ...on("a", 9), value: "first", version: 2 },
      { ...on("d", 9), value: "first", version: 2 },
    ]);
  },

  async "the next page is found although the last row of the page before is gone"({ backend }) {
    await changedRows(backend, ...[1, 2, 3].map((at) => rowOf(`${at}`, "v", { order: { at } })));
    const [first] = await backend.rowsInOrder({ table: "tasks", limit: 1 });
    assert.ok(first !== undefined);
    await changedRows(backend, rowOf("1", null));
    assert.deepEqual(keysOf(await backend.rowsInOrder({ table: "tasks", after: first, limit: 9 })), ["2", "3"]);
    assert.deepEqual(keysOf(await backend.rowsInOrder({ table: "tasks", after: first, reverse: true, limit: 9 })), []);
    assert.deepEqual(keysOf(await backend.rows({ table: "tasks", after: "1", limit: 9 })), ["2", "3"]);
  },
};
