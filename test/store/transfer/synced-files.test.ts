import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { openLmdb, openMemory, StoreServer } from "../../../src/store/index.js";
import { commit, component, dataFile, temporaryFolder, turn } from "../commits.js";
import { canBeSeen, unsyncedBytes } from "../unsynced.js";

const UNSEEN = "This file system does not say what it has not written yet, as one in memory does not.";

for (const format of ["msgpack", "json"] as const) {
  test(`when a session was exported as ${format}, nothing of the file is in memory only`, async ({ skip }) => {
    const folder = temporaryFolder();
    skip(!canBeSeen(folder), UNSEEN);
    const backend = openMemory();
    const state = component(...Array.from({ length: 40_000 }, (_, n) => n % 251));
    const one = turn("a", 1, [state]);
    commit(backend, { ...one, head: { ...one.head, components: { state: state.hash } } });
    const server = new StoreServer(backend, systemClock);
    onTestFinished(() => server.close());
    const file = join(folder, "a.session");
    await server.maintenance.exportSession({ sessionId: "a", file, format });
    expect(unsyncedBytes(file)).toBe(0);
  });
}

test("when a store was backed up, nothing of the copy is in memory only", async ({ skip }) => {
  const folder = temporaryFolder();
  skip(!canBeSeen(folder), UNSEEN);
  const backend = openLmdb(join(folder, "store"));
  const server = new StoreServer(backend, systemClock);
  onTestFinished(() => server.close());
  commit(backend, turn("a", 1, [component(...Array.from({ length: 40_000 }, (_, n) => n % 251))]));
  const copy = join(folder, "copy");
  await server.maintenance.backup({ folder: copy });
  expect(unsyncedBytes(dataFile(copy))).toBe(0);
});
