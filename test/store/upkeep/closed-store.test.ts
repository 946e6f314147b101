import { readdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import {
  acquireStoreLock,
  exportSession,
  importSession,
  listSessions,
  openLmdb,
  pruneStore,
  readHistory,
  verifyStore,
} from "../../../src/store/index.js";
import { commit, component, temporaryFolder, textsOf, turn } from "../commits.js";

function makeStore(): string {
  const path = temporaryFolder();
  const backend = openLmdb(path);
  commit(backend, turn("a", 1, [component(1)]), turn("a", 2), turn("b", 1));
  backend.close();
  return path;
}

test("a session goes from one store nobody has open to another, as bytes and as a file", async () => {
  const [from, to] = [makeStore(), join(temporaryFolder(), "new")];
  const file = join(temporaryFolder(), "a.json");
  const bytes = await exportSession(from, "a");
  expect(await exportSession(from, "a", { file, format: "json" })).toBeUndefined();
  expect(await importSession(to, bytes)).toEqual({ sessionId: "a", revision: 2 });
  expect(await importSession(to, file, { id: "copy" })).toEqual({ sessionId: "copy", revision: 2 });
  await expect(importSession(to, file)).rejects.toMatchObject({ code: "session_exists" });
  expect((await listSessions(to)).sessions.map(({ id }) => id)).toEqual(["a", "copy"]);
  expect(verifyStore(to).ok).toBe(true);
  const backend = openLmdb(to);
  expect(textsOf(readHistory(backend, backend.head("copy")?.leaf ?? null))).toEqual(["message 1", "message 2"]);
  backend.close();
});

test("a store nobody has open is pruned at once", async () => {
  const path = makeStore();
  const removed = { kept: 0, removed: 1, waiting: 0 };
  expect(await pruneStore(path, { dryRun: true })).toMatchObject({ components: removed });
  expect(await pruneStore(path)).toMatchObject({ components: removed });
  expect(await pruneStore(path)).toMatchObject({ components: { removed: 0 } });
  expect((await listSessions(path, { limit: 1 })).next).toBe("a");
});

test("a store that somebody has open, and one that is not there, are left alone", async () => {
  const path = makeStore();
  const lock = acquireStoreLock(path, systemClock);
  for (const use of [
    listSessions(path),
    exportSession(path, "a"),
    pruneStore(path),
    importSession(path, Buffer.from("{}")),
  ])
    await expect(use).rejects.toMatchObject({ code: "store_held" });
  lock.release();
  const empty = temporaryFolder();
  for (const use of [listSessions(empty), exportSession(empty, "a"), pruneStore(empty)])
    await expect(use).rejects.toMatchObject({ code: "store_open_failed" });
  expect(readdirSync(empty)).toEqual([]);
});
