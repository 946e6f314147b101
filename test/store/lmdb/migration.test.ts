import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import {
  migrateStore,
  openLmdb,
  openLmdbReader,
  pruneStore,
  readHistory,
  repairStore,
  type StoreProgress,
  verifyStore,
} from "../../../src/store/index.js";
import { decode } from "../../../src/wire/index.js";
import { temporaryFolder, textsOf, thrownBy } from "../commits.js";
import { makeOldStore, nth, raw, recordsIn } from "./old-store.js";

const COUNT = 2_600;
/** Transactions of 1,000 records: those of the heads, of the segments, and of the heads once more; or only these. */
const STEPS = { 1: 9, 2: 3 } as const;

describe.each([1, 2] as const)("a store of layout version %i with some thousand sessions", (version) => {
  const total = version === 1 ? 3 * COUNT : COUNT;
  let old: string;
  let migrated: Awaited<ReturnType<typeof recordsIn>>;

  // Not with `temporaryFolder`, which ends with a test.
  beforeAll(async () => {
    old = mkdtempSync(join(tmpdir(), "troupe-old-"));
    await makeOldStore(old, version, COUNT);
    const copy = join(old, "in one go");
    cpSync(join(old, "data.mdb"), join(copy, "data.mdb"));
    openLmdb(copy).close();
    migrated = await recordsIn(copy);
    return () => rmSync(old, { recursive: true, force: true });
  });

  function copyOfOld(): string {
    const path = temporaryFolder();
    cpSync(`${old}/data.mdb`, `${path}/data.mdb`);
    return path;
  }

  /** Migrates until so many steps are done, and is stopped there. */
  async function interrupt(path: string, steps: number): Promise<void> {
    const stop = new AbortController();
    let seen = 0;
    const onProgress = () => void (seen++ === steps && stop.abort());
    await expect(migrateStore(path, { signal: stop.signal, onProgress })).rejects.toMatchObject({ code: "aborted" });
  }

  test("has everything it had, and its lists, once it was opened", () => {
    expect(migrated.heads).toHaveLength(COUNT);
    expect(migrated.order).toHaveLength(COUNT);
    expect(migrated.children).toHaveLength(Math.ceil(COUNT / 3) - 1);
    const path = copyOfOld();
    const backend = openLmdb(path);
    onTestFinished(() => backend.close());
    expect(backend.sessionCount()).toBe(COUNT);
    expect(backend.children(nth(0))).toContain(nth(9));
    expect(backend.storedHead(nth(7))).toMatchObject({ at: 0, head: { sessionId: nth(7), operation: "turn 7" } });
    expect(textsOf(readHistory(backend, backend.head(nth(2_599))?.leaf ?? null))).toEqual(["message of 2599"]);
    const first = backend.sessionsInOrder({ limit: 2 });
    expect(first).toEqual([nth(0), nth(1)].map((sessionId) => ({ sessionId, at: 0 })));
  });

  test("is migrated in steps that are told, and once it is, there is nothing to do", async () => {
    const path = copyOfOld();
    const seen: StoreProgress[] = [];
    expect(await migrateStore(path, { onProgress: (progress) => seen.push(progress) })).toEqual({ records: total });
    expect(seen).toHaveLength(STEPS[version]);
    expect(seen.map(({ done }) => done).slice(0, 3)).toEqual([0, 1_000, 2_000]);
    expect(seen.every((each) => each.step === "migrate" && each.total === total)).toBe(true);
    expect(await recordsIn(path)).toEqual(migrated);
    expect(await migrateStore(path)).toEqual({ records: 0 });
  });

  test.each(Array.from({ length: STEPS[version] }, (_, steps) => steps))(
    "that was stopped after %i steps goes on there, and is what it is in one go",
    async (steps) => {
      const path = copyOfOld();
      await interrupt(path, steps);
      const report = verifyStore(path);
      expect([report.ok, report.sessions.length]).toEqual([true, COUNT]);
      expect(thrownBy(() => openLmdbReader(path))).toMatchObject({ code: "store_open_failed" });
      const seen: number[] = [];
      await migrateStore(path, { onProgress: ({ done }) => seen.push(done) });
      // The step that was done before the stop is not done again.
      expect(seen).toHaveLength(STEPS[version] - steps);
      expect(await recordsIn(path)).toEqual(migrated);
    },
  );

  test("that was stopped in the middle is migrated by being opened, and by any other work on it", async () => {
    const path = copyOfOld();
    await interrupt(path, 2);
    await pruneStore(path);
    expect(await recordsIn(path)).toEqual(migrated);
  });

  test("that was stopped in the middle, and damaged there, is repaired to a store of this layout", async () => {
    const path = copyOfOld();
    await interrupt(path, version === 1 ? 2 : 1);
    const victims = [nth(3), nth(2_500)];
    // Twice: a file has the state before the last transaction too.
    for (const id of [...victims, ...victims])
      await raw(path, (table) => table("heads").putSync(id, new Uint8Array([1, 2, 3])));
    expect(
      verifyStore(path)
        .sessions.filter(({ ok }) => !ok)
        .map(({ sessionId }) => sessionId),
    ).toEqual(victims);
    expect(repairStore(path).sessions.map(({ sessionId }) => sessionId)).toEqual(victims);
    const records = await recordsIn(path);
    expect(verifyStore(path)).toMatchObject({ ok: true });
    expect([records.heads?.length, records.order?.length]).toEqual([COUNT - 2, COUNT - 2]);
    const layout = records.meta?.find(([key]) => key === "layout")?.[1] ?? "";
    expect(decode(Buffer.from(layout, "base64"))).toEqual({ version: 3, check: expect.any(Number) });
  });

  test("that is on its way says version 3 to releases that know 2, in the record all of them read", async () => {
    const path = copyOfOld();
    await interrupt(path, 0);
    const bytes = await raw(path, (table) => Uint8Array.from(table("meta").getBinary("layout") ?? []));
    const mark = { from: version, table: "heads", key: null, done: 0, total };
    expect(decode(bytes)).toEqual({ version: 3, check: expect.any(Number), migration: mark });
  });

  test("whose mark was changed is refused, and not migrated from a wrong place", async () => {
    const path = copyOfOld();
    await interrupt(path, 1);
    await raw(path, (table) => {
      const bytes = Buffer.from(table("meta").getBinary("layout") ?? []);
      const at = bytes.indexOf("session 0");
      bytes[at + 8] = "9".charCodeAt(0);
      table("meta").putSync("layout", bytes);
    });
    expect(thrownBy(() => openLmdb(path))).toMatchObject({ code: "store_version_unknown" });
  });

  test("whose process is killed while it is migrated, at any moment, is migrated by the next", async () => {
    const program = fileURLToPath(new URL("../fixtures/migrate-store.mjs", import.meta.url));
    for (let steps = 1; steps <= STEPS[version]; steps += 2) {
      const path = copyOfOld();
      const child = spawn(process.execPath, [program, path], { stdio: ["ignore", "pipe", "inherit"] });
      const gone = once(child, "exit");
      let lines = 0;
      // Not waited for: what it is at by then is cut off.
      createInterface({ input: child.stdout }).on("line", () => ++lines === steps && child.kill("SIGKILL"));
      await gone;
      expect(verifyStore(path).ok).toBe(true);
      openLmdb(path).close();
      expect(await recordsIn(path)).toEqual(migrated);
    }
  });
});

test("a store that is not there is not migrated, and none is made", async () => {
  await expect(migrateStore(temporaryFolder())).rejects.toMatchObject({ code: "store_open_failed" });
});
