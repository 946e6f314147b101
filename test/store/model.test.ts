import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { openLmdb, openMemory } from "../../src/store/index.js";
import { temporaryFolder } from "./commits.js";
import { type DrivenStore, KINDS, Run, type Step } from "./model.js";

const step: fc.Arbitrary<Step> = fc.record({
  // Most of the others need something to act on.
  kind: fc.oneof(
    { weight: 1, arbitrary: fc.constant("commit" as const) },
    { weight: 4, arbitrary: fc.constantFrom(...KINDS) },
  ),
  session: fc.nat(3),
  pick: fc.nat(1_000),
});

const stores: Readonly<Record<string, () => DrivenStore & { close(): void }>> = {
  memory() {
    const backend = openMemory();
    return { backend, reopen: () => backend, close: () => backend.close() };
  },
  LMDB() {
    const path = temporaryFolder();
    let backend = openLmdb(path);
    return {
      backend,
      reopen() {
        backend.close();
        backend = openLmdb(path);
        return backend;
      },
      close: () => backend.close(),
    };
  },
};

// quality §3.4: runtime persistence and session graph against a model, after every step; every kind of step is hit
describe.each(Object.keys(stores))("a store in %s", (kind) => {
  test("does what a simple model of it does, whatever is done to it", async () => {
    const counts = new Map<string, number>();
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 60, maxLength: 160 }), async (steps) => {
        const store = (stores[kind] as () => DrivenStore & { close(): void })();
        try {
          const run = new Run(store, counts);
          for (const each of steps) await run.take(each);
        } finally {
          store.close();
        }
      }),
      { numRuns: kind === "LMDB" ? 25 : 60, seed: 20_261_116 },
    );
    for (const each of KINDS) expect([each, (counts.get(each) ?? 0) > 3]).toEqual([each, true]);
  });
});
