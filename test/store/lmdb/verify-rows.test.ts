import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { expect, onTestFinished, test } from "vitest";
import { orderKey, type RowChange, rowKey } from "../../../src/kernel/index.js";
import { type BackendAtOnce, openLmdb, readHistory, repairStore, verifyStore } from "../../../src/store/index.js";
import { childKey, placeOfSession } from "../../../src/store/records/index.js";
import { contentHash, encode } from "../../../src/wire/index.js";
import { commit, damage, dataFile, temporaryFolder, textsOf, thrownBy, turn, UNCLAIMED, write } from "../commits.js";
import { raw } from "./old-store.js";

const NAMED = encode("only a row names it");

const ROWS: readonly RowChange[] = [
  { session: "a", table: "tasks", key: "one", value: encode("row one of a"), order: { at: 5, owner: "acme" } },
  { session: "a", table: "tasks", key: "two", value: encode(["row two of a", contentHash(NAMED)]) },
  { session: "gone by then", table: "tasks", key: "early", value: encode("row of a session to come") },
  { table: "schedules", key: "nightly", value: encode("row of nobody"), order: { at: 9 } },
];

/** `a` of a tenant, with rows and an unfinished turn; `b`, a fork of it; rows of nobody, and of a session to come. */
function makeStore(): string {
  const path = temporaryFolder();
  const backend = openLmdb(path, { clock: { wallNow: () => 77_123 } });
  const [a, b] = [turn("a", 1, [{ hash: contentHash(NAMED), bytes: NAMED }]), turn("b", 1)];
  commit(
    backend,
    { ...a, head: { ...a.head, tenant: "acme", operation: "head of a" } },
    { ...b, head: { ...b.head, parent: { sessionId: "a", leaf: "a@1.0" }, operation: "head of b" } },
  );
  const entry = { sessionId: "a", turnId: "t", key: "k", hash: "h", bytes: encode(1), expectedRevision: 1 };
  write(backend, { kind: "rows", changes: ROWS }, { kind: "record", entry: { ...entry, epoch: UNCLAIMED } });
  // The state before the last transaction is in the file too; it is to be the same.
  for (let i = 0; i < 2; i++)
    write(backend, { kind: "rows", changes: [{ table: "other", key: "x", value: encode(i) }] });
  backend.close();
  return path;
}

const PLACES = {
  a: placeOfSession("a", { at: 77_000, owner: "acme" }),
  b: placeOfSession("b", { at: 77_000 }),
  one: orderKey(ROWS[0] as RowChange, { at: 5, owner: "acme" }),
  child: childKey("a", "b"),
};

function opened(path: string): BackendAtOnce {
  const backend = openLmdb(path);
  onTestFinished(() => backend.close());
  return backend;
}

function checkWhole(backend: BackendAtOnce, without: readonly string[] = []): void {
  const keys = ROWS.map(rowKey).filter((key) => !without.includes(key));
  expect(backend.keys("rows", undefined, 9)).toEqual([...keys, rowKey({ table: "other", key: "x" })].sort());
  expect(backend.sessionsInOrder({ tenant: "acme", limit: 9 })).toEqual([{ sessionId: "a", at: 77_000 }]);
  expect(backend.sessionsInOrder({ limit: 9 })).toEqual([{ sessionId: "b", at: 77_000 }]);
  expect(backend.children("a")).toEqual(["b"]);
  expect(backend.rowsInOrder({ table: "schedules", limit: 9 }).map(({ key }) => key)).toEqual(["nightly"]);
  expect(backend.component(contentHash(NAMED))).toEqual(NAMED);
  expect(backend.head("a")).toMatchObject({ revision: 1, operation: "head of a" });
  expect(backend.journal("a")).toHaveLength(1);
}

test("a store with rows and lists that are whole is found so", () => {
  const path = makeStore();
  expect(verifyStore(path)).toMatchObject({ ok: true, others: [], sessions: [{ ok: true }, { ok: true }] });
  expect(repairStore(path)).toMatchObject({ changed: false, others: [] });
});

test("a row of a session that was changed is found and left out by a repair; the session keeps its turn and the rest", () => {
  const path = makeStore();
  damage(path, "row one of a");
  const lost = { where: "row tasks one", code: "snapshot_damaged" };
  expect(verifyStore(path)).toMatchObject({
    ok: false,
    file: [],
    others: [],
    sessions: [{ sessionId: "a", findings: [lost] }, { ok: true }],
  });
  expect(repairStore(path)).toMatchObject({
    changed: true,
    sessions: [{ sessionId: "a", outcome: "changed", leaf: "a@1.0", leafBefore: "a@1.0", lost: [lost] }],
  });
  expect(verifyStore(path).ok).toBe(true);
  const backend = opened(path);
  checkWhole(backend, [rowKey(ROWS[0] as RowChange)]);
  expect(backend.rowsInOrder({ table: "tasks", owner: "acme", limit: 9 })).toEqual([]);
});

test.each([
  ["of nobody", "row of nobody", "row schedules nightly"],
  ["of a session that is not stored yet", "row of a session to come", "row tasks early"],
])("a row %s that was changed is found among the others and left out by a repair", (_, text, where) => {
  const path = makeStore();
  damage(path, text);
  const found = { ok: false, others: [{ where, code: "snapshot_damaged" }], sessions: [{ ok: true }, { ok: true }] };
  expect(verifyStore(path)).toMatchObject(found);
  expect(repairStore(path)).toMatchObject({ changed: true, sessions: [], others: [{ where }] });
  expect(verifyStore(path).ok).toBe(true);
  expect(opened(path).keys("rows", undefined, 9)).toHaveLength(4);
});

const NO_VALUE = new Uint8Array();
type Change = (table: Parameters<Parameters<typeof raw>[1]>[0]) => unknown;
const LISTS: Readonly<Record<string, readonly [change: Change, says: RegExp]>> = {
  "a session without its place": [(table) => table("order").removeSync(PLACES.a), /^session a is missing in its list/],
  "a row without its place": [
    (table) => table("order").removeSync(PLACES.one),
    /^row tasks one is missing in its list/,
  ],
  "a child without its entry": [(table) => table("children").removeSync(PLACES.child), /^Session b is missing among/],
  "a place without a session": [
    (table) => table("order").putSync(placeOfSession("nobody", { at: 1 }), NO_VALUE),
    /^A list leads to session nobody, which is not there/,
  ],
  "a second place of a session": [
    (table) => table("order").putSync(placeOfSession("b", { at: 78_000 }), NO_VALUE),
    /^A list leads to session b, which is not there/,
  ],
  "a place without a row": [
    (table) => table("order").putSync(orderKey({ table: "tasks", key: "none" }, { at: 1 }), NO_VALUE),
    /^A list leads to row tasks none, which is not there/,
  ],
  "an entry of a child that is not there": [
    (table) => table("children").putSync(childKey("a", "nobody"), NO_VALUE),
    /^A list of children leads to session nobody/,
  ],
};
test.each(Object.keys(LISTS))("%s is found, and a repair makes the lists anew", async (what) => {
  const [change, says] = LISTS[what] as (typeof LISTS)[string];
  const path = makeStore();
  await raw(path, change);
  const report = verifyStore(path);
  expect(report).toMatchObject({ ok: false, file: [], sessions: [{ ok: true }, { ok: true }] });
  expect(report.others).toEqual([{ where: "list", code: "store_damaged", message: expect.stringMatching(says) }]);
  expect(repairStore(path)).toMatchObject({ changed: true, sessions: [], others: [{ where: "list" }] });
  expect(verifyStore(path).ok).toBe(true);
  checkWhole(opened(path));
});

test("a row that is listed and missing is found in its list, and not listed after a repair", async () => {
  const path = makeStore();
  await raw(path, (table) => table("rows").removeSync(rowKey(ROWS[0] as RowChange)));
  expect(verifyStore(path).others).toMatchObject([{ where: "list", message: expect.stringMatching(/row tasks one/) }]);
  const before = openLmdb(path);
  expect(thrownBy(() => before.rowsInOrder({ table: "tasks", owner: "acme", limit: 9 }))).toMatchObject({
    code: "snapshot_damaged",
  });
  before.close();
  repairStore(path);
  expect(opened(path).rowsInOrder({ table: "tasks", owner: "acme", limit: 9 })).toEqual([]);
});

test("a session whose head is lost takes its rows along, and its places in lists are gone", () => {
  const path = makeStore();
  damage(path, "head of a");
  // That its places lead nowhere is no finding of its own.
  expect(verifyStore(path)).toMatchObject({ others: [], sessions: [{ findings: [{ where: "head" }] }, { ok: true }] });
  expect(repairStore(path).sessions).toMatchObject([{ sessionId: "a", outcome: "dropped" }]);
  expect(verifyStore(path).ok).toBe(true);
  const backend = opened(path);
  expect(backend.rows({ table: "tasks", session: "a", limit: 9 })).toEqual([]);
  expect(backend.rowsInOrder({ table: "tasks", owner: "acme", limit: 9 })).toEqual([]);
  expect(backend.sessionsInOrder({ tenant: "acme", limit: 9 })).toEqual([]);
  // Whose child it was stays known, as that of a session that was deleted.
  expect(backend.children("a")).toEqual(["b"]);
});

test("a row under a wrong key is refused when the store is opened, and put back under its own by a repair", () => {
  const path = makeStore();
  const bytes = readFileSync(dataFile(path));
  const [from, to] = ["\u007fschedules\u007fnightly", "\u007fschedules\u007fnightlz"].map((text) => Buffer.from(text));
  let changed = 0;
  for (let at = bytes.indexOf(from as Buffer); at !== -1; at = bytes.indexOf(from as Buffer, at + 1), changed++)
    (to as Buffer).copy(bytes, at);
  expect(changed).toBeGreaterThan(0);
  writeFileSync(dataFile(path), bytes);
  expect(thrownBy(() => openLmdb(path))).toMatchObject({ code: "store_damaged" });
  expect(repairStore(path)).toMatchObject({ changed: true, sessions: [] });
  expect(verifyStore(path).ok).toBe(true);
  checkWhole(opened(path));
});

test("a free page whose number no file has is found before LMDB would follow it", () => {
  const path = makeStore();
  const whole = readFileSync(dataFile(path));
  const copy = temporaryFolder();
  cpSync(dataFile(path), dataFile(copy));
  // Of the meta page in force, the root of the tree of free pages; its first list stands at the end of the page.
  const meta = whole.readUInt32LE(152) > whole.readUInt32LE(4_096 + 152) ? 0 : 4_096;
  const end = 4_096 * (whole.readUInt32LE(meta + 88) + 1);
  whole[end - 1] = 1;
  writeFileSync(dataFile(copy), whole);
  expect(thrownBy(() => openLmdb(copy))).toMatchObject({ code: "store_damaged" });
  expect(repairStore(copy).changed).toBe(true);
  const backend = opened(copy);
  expect(textsOf(readHistory(backend, "a@1.0"))).toEqual(["message 1"]);
});
