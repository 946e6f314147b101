import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "vitest";
import { openLmdb, openMemory } from "../../src/store/index.js";
import { type ConformanceStore, storeConformance } from "../../src/testing/index.js";

async function memoryStore(): Promise<ConformanceStore> {
  const backend = openMemory();
  return { backend, dispose: () => backend.close() };
}

async function lmdbStore(): Promise<ConformanceStore> {
  const path = mkdtempSync(join(tmpdir(), "troupe-store-"));
  let current = openLmdb(path);
  return {
    backend: current,
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

for (const { name, run } of storeConformance("memory", memoryStore)) test(name, run);
for (const { name, run } of storeConformance("LMDB", lmdbStore)) test(name, run);
