import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { open } from "lmdb";
import { test } from "vitest";
import { openLmdb, openMemory } from "../../src/store/index.js";
import { TABLE } from "../../src/store/lmdb/file/layout.js";
import { TABLE_NAMES } from "../../src/store/records/contract.js";
import { type OwnershipStore, storeOwnership } from "../../src/testing/index.js";
import { openLater } from "../support/later-store.js";

async function memoryStore(): Promise<OwnershipStore> {
  const backend = openMemory();
  return { first: backend, second: backend, dispose: () => backend.close() };
}

async function lmdbStore(): Promise<OwnershipStore> {
  const path = mkdtempSync(join(tmpdir(), "troupe-store-"));
  let current = openLmdb(path);
  return {
    first: current,
    second: current,
    dump: async () => recordsOf(path),
    async reopen() {
      current.close();
      current = openLmdb(path);
      return current;
    },
    dispose() {
      current.close();
      rmSync(path, { recursive: true });
    },
  };
}

/** Two handles with waits of their own over one store; each case with other ones. */
let seed = 1;
async function laterStore(): Promise<OwnershipStore> {
  const backend = openMemory();
  const [first, second] = [openLater({ seed: seed++, backend }), openLater({ seed: seed++, backend })];
  return { first, second, dispose: () => backend.close() };
}

/** Every record of every table, as it stands in the file, and what the tables' own table says of them. */
function recordsOf(path: string): unknown {
  const root = open<Uint8Array, string>({ ...TABLE, path, readOnly: true, noSubdir: false });
  try {
    const tables = TABLE_NAMES.map((name) => [name, root.openDB<Uint8Array, string>(name, TABLE)] as const);
    return Object.fromEntries(
      tables.map(([name, table]) => [
        name,
        [...table.getRange()].map(({ key, value }) => [key, Buffer.from(value).toString("base64")]),
      ]),
    );
  } finally {
    root.close();
  }
}

for (const { name, run } of storeOwnership("memory", memoryStore)) test(name, run);
for (const { name, run } of storeOwnership("LMDB", lmdbStore)) test(name, run);
for (const { name, run } of storeOwnership("a store that answers later", laterStore)) test(name, run);
