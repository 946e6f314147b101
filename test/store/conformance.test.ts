import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "vitest";
import { openLmdb, openMemory } from "../../src/store/index.js";
import { type ConformanceStore, storeConformance } from "../../src/testing/index.js";
import { openLater } from "../support/later-store.js";

/** A clock that only a test moves. */
class SetClock {
  #now = 1_700_000_000_000;

  wallNow(): number {
    return this.#now;
  }

  pass(ms: number): void {
    this.#now += ms;
  }
}

async function memoryStore(): Promise<ConformanceStore> {
  const clock = new SetClock();
  const backend = openMemory({ clock });
  return { backend, pass: (ms) => clock.pass(ms), dispose: () => backend.close() };
}

async function lmdbStore(): Promise<ConformanceStore> {
  const path = mkdtempSync(join(tmpdir(), "troupe-store-"));
  const clock = new SetClock();
  let current = openLmdb(path, { clock });
  return {
    backend: current,
    pass: (ms) => clock.pass(ms),
    async reopen() {
      current.close();
      current = openLmdb(path, { clock });
      return current;
    },
    dispose() {
      current.close();
      rmSync(path, { recursive: true });
    },
  };
}

/** A store that answers later and in another order, as one on another machine would; each case with other waits. */
let seed = 1;
async function laterStore(): Promise<ConformanceStore> {
  const clock = new SetClock();
  const backend = openLater({ seed: seed++, backend: openMemory({ clock }) });
  return { backend, pass: (ms) => clock.pass(ms), dispose: () => backend.close() };
}

for (const { name, run } of storeConformance("memory", memoryStore)) test(name, run);
for (const { name, run } of storeConformance("a store that answers later", laterStore)) test(name, run);
for (const { name, run } of storeConformance("LMDB", lmdbStore)) test(name, run);
