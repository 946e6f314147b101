import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { open } from "lmdb";
import { expect, onTestFinished, test } from "vitest";
import { openLmdb, openLmdbReader, openMemory, readHistory } from "../../../src/store/index.js";
import { commit, component, temporaryFolder, textsOf, thrownBy, turn } from "../commits.js";

const RAW = { encoding: "binary", noSubdir: false, overlappingSync: false } as const;

/** Changes a stored record behind the store's back. */
async function tamper(path: string, table: string, key: string, bytes: Uint8Array): Promise<void> {
  const root = open<Uint8Array, string>({ ...RAW, path });
  root.openDB(table, { encoding: "binary" }).putSync(key, bytes);
  await root.close();
}

function storeWith(...sessions: readonly string[]): string {
  const path = temporaryFolder();
  const backend = openLmdb(path);
  commit(backend, ...sessions.map((id) => turn(id, 1)));
  backend.close();
  return path;
}

test("reopening keeps heads, segments and components", () => {
  const path = temporaryFolder();
  const first = openLmdb(path);
  const state = component(1, 2, 3);
  commit(first, turn("a", 1, [state]), turn("a", 2));
  first.close();
  const second = openLmdb(path);
  onTestFinished(() => second.close());
  expect(second.head("a")).toEqual(turn("a", 2).head);
  expect(textsOf(readHistory(second, "a@2.0"))).toEqual(["message 1", "message 2"]);
  expect(second.component(state.hash)).toEqual(new Uint8Array([1, 2, 3]));
});

test("a folder whose name has a dot is a folder", () => {
  const path = join(temporaryFolder(), "data.v1");
  const backend = openLmdb(path);
  onTestFinished(() => backend.close());
  commit(backend, turn("a", 1));
  expect(readFileSync(join(path, "data.mdb")).length).toBeGreaterThan(0);
});

test("a reader sees a commit that follows its last read in the same tick", () => {
  const path = temporaryFolder();
  const backend = openLmdb(path);
  const reader = openLmdbReader(path);
  onTestFinished(() => {
    reader.close();
    backend.close();
  });
  expect(reader.head("a")).toBeUndefined();
  expect(reader.segment("a@1")).toBeUndefined();
  const state = component(7);
  expect(reader.component(state.hash)).toBeUndefined();
  commit(backend, turn("a", 1, [state]));
  expect(reader.segment("a@1")).toEqual(turn("a", 1).segment?.bytes);
  expect(reader.component(state.hash)).toEqual(new Uint8Array([7]));
  expect(reader.head("a")?.revision).toBe(1);
  commit(backend, turn("a", 2), turn("b", 1));
  expect(reader.head("a")?.revision).toBe(2);
  expect([...reader.sessionIds()]).toEqual(["a", "b"]);
  expect(reader.sessionCount()).toBe(2);
});

test("a closed reader leaves the store of its process open", () => {
  const path = temporaryFolder();
  const backend = openLmdb(path);
  onTestFinished(() => backend.close());
  openLmdbReader(path).close();
  expect(commit(backend, turn("a", 1))).toEqual([{ revision: 1, replayed: false }]);
});

test("a reader of a folder without a store says so", () => {
  expect(thrownBy(() => openLmdbReader(temporaryFolder()))).toMatchObject({ code: "store_open_failed" });
});

test("a store whose creation was interrupted before its layout was recorded opens", async () => {
  const path = temporaryFolder();
  const root = open<Uint8Array, string>({ ...RAW, path });
  root.openDB("heads", { encoding: "binary" });
  root.openDB("meta", { encoding: "binary" });
  await root.close();
  const backend = openLmdb(path);
  onTestFinished(() => backend.close());
  expect(commit(backend, turn("a", 1))).toEqual([{ revision: 1, replayed: false }]);
});

const fileOf = (path: string) => readFileSync(join(path, "data.mdb"));
const damagedFiles: Readonly<Record<string, (whole: Buffer) => Buffer>> = {
  text: () => Buffer.alloc(16_384, "not a database "),
  "a few bytes": () => Buffer.from("short"),
  "cut off after its first page": (whole) => whole.subarray(0, 4_096),
  "of another file version": (whole) => {
    const other = Buffer.from(whole);
    other[28] = 9;
    return other;
  },
};
for (const [how, damage] of Object.entries(damagedFiles)) {
  test(`a database file that is ${how} is store_damaged and left as it was`, () => {
    const path = storeWith("a");
    const damaged = damage(fileOf(path));
    writeFileSync(join(path, "data.mdb"), damaged);
    expect(thrownBy(() => openLmdb(path))).toMatchObject({ code: "store_damaged", details: { path } });
    expect(thrownBy(() => openLmdbReader(path))).toMatchObject({ code: "store_damaged" });
    expect(fileOf(path).equals(damaged)).toBe(true);
  });
}

test("a database file that is still empty is a new store", () => {
  const path = temporaryFolder();
  writeFileSync(join(path, "data.mdb"), "");
  const backend = openLmdb(path);
  onTestFinished(() => backend.close());
  expect(commit(backend, turn("a", 1))).toEqual([{ revision: 1, replayed: false }]);
});

test("damaged segment bytes are history_damaged", async () => {
  const path = storeWith("a");
  await tamper(path, "segments", "a@1", new Uint8Array([0x54, 0x70, 1, 0xdb, 0xff, 0xff, 0xff, 0xff]));
  const backend = openLmdb(path);
  onTestFinished(() => backend.close());
  expect(thrownBy(() => readHistory(backend, "a@1.0"))).toMatchObject({
    code: "history_damaged",
    cause: { code: "snapshot_damaged" },
  });
});

test("a damaged head refuses its own session and lets the others commit", async () => {
  const path = storeWith("damaged", "whole");
  await tamper(path, "heads", "damaged", new Uint8Array([1, 2, 3]));
  const backend = openLmdb(path);
  onTestFinished(() => backend.close());
  expect(thrownBy(() => backend.head("damaged"))).toMatchObject({ code: "snapshot_damaged" });
  expect(commit(backend, turn("damaged", 2), turn("whole", 2))).toMatchObject([
    { code: "snapshot_damaged" },
    { revision: 2 },
  ]);
});

// state §3.5: a breach is a typed terminal error, nothing is written
test.each([
  ["memory", () => openMemory({ commitBudget: { bytes: 400, nodes: 1 } })],
  ["LMDB", () => openLmdb(temporaryFolder(), { commitBudget: { bytes: 400, nodes: 1 } })],
])("a store in %s refuses a commit over its budget and writes nothing of it", (_, open) => {
  const backend = open();
  onTestFinished(() => backend.close());
  const large = component(...new Uint8Array(400));
  expect(commit(backend, turn("a", 1), turn("a", 2, [large]), turn("b", 1))).toMatchObject([
    { revision: 1 },
    { code: "commit_too_large", retryable: false, details: { sessionId: "a", budget: { bytes: 400, nodes: 1 } } },
    { revision: 1 },
  ]);
  expect(backend.component(large.hash)).toBeUndefined();
  expect(backend.head("a")?.revision).toBe(1);
});

test("a write LMDB refuses in mid-transaction rolls back the whole batch", () => {
  const path = temporaryFolder();
  const backend = openLmdb(path);
  onTestFinished(() => backend.close());
  const tooLong = { hash: "h".repeat(5_000), bytes: new Uint8Array([1]) };
  expect(commit(backend, turn("a", 1), turn("b", 1, [tooLong]))).toMatchObject([
    { code: "store_write_failed", cause: expect.any(Error) },
    { code: "store_write_failed" },
  ]);
  expect([...backend.sessionIds()]).toEqual([]);
  expect(backend.segment("a@1")).toBeUndefined();
});

test.runIf(process.platform === "linux")(
  "a full disk fails commits and records, keeps what was there, and the store works on, also after pruning",
  () => {
    const path = temporaryFolder();
    const fixture = fileURLToPath(new URL("../fixtures/fill-disk.mjs", import.meta.url));
    const output = execFileSync("sh", ["-c", 'ulimit -f 8000; exec "$0" "$@"', process.execPath, fixture, path], {
      encoding: "utf8",
    });
    expect(JSON.parse(output)).toEqual({
      code: "store_write_failed",
      headIsTheLastAcknowledged: true,
      hasRefusedComponent: false,
      largeRecord: "store_write_failed",
      journalAfterIt: 0,
      smallRecordAfterwards: true,
      smallCommitAfterwards: true,
      sweep: true,
      largeCommitAfterSweep: true,
      afterReopening: { head: true, component: 200_000 },
    });
  },
);
