import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type BackendAtOnce, openLmdb, openMemory, type StoreProgress, verifyStore } from "../../../src/store/index.js";
import { OwningClient } from "../../support/owning-client.js";
import { commit, component, serving, temporaryFolder, turn, UNCLAIMED, write } from "../commits.js";

/** A session with so many components of 100 KB. */
function fill(backend: BackendAtOnce, sessionId: string, count: number): void {
  const large = Array.from({ length: count }, (_, i) => component(...new Uint8Array(100_000).fill(i)));
  const one = turn(sessionId, 1, large);
  const components = Object.fromEntries(large.map(({ hash }, i) => [`blob ${i}`, hash]));
  commit(backend, { ...one, head: { ...one.head, components } });
}

type Options = { readonly clock?: { readonly wallNow: () => number } };
const kinds: Readonly<Record<string, (options?: Options) => BackendAtOnce>> = {
  memory: openMemory,
  LMDB: (options) => openLmdb(temporaryFolder(), options),
};

describe.each(Object.keys(kinds))("a store in %s", (kind) => {
  const open = kinds[kind] as (options?: Options) => BackendAtOnce;

  test("exports a session as bytes while commits go on, and tells how far it is", async () => {
    const backend = open();
    fill(backend, "large", 5);
    const { client, maintenance } = serving(backend);
    const seen: StoreProgress[] = [];
    const order: string[] = [];
    const exported = maintenance
      .exportSession({ sessionId: "large" }, { onProgress: (progress) => seen.push(progress) })
      .then((bytes) => {
        order.push("exported");
        return bytes as Uint8Array;
      });
    await new OwningClient(client).commit(turn("other", 1)).then(() => order.push("committed"));
    const bytes = await exported;
    expect(order).toEqual(["committed", "exported"]);
    expect(seen.map(({ step }) => step)).toEqual(["write", "write", "write", "write", "write"]);
    expect(seen.map(({ done }) => Math.floor(done / 100_000))).toEqual([1, 2, 3, 4, 5]);
    expect(await maintenance.importSession({ bytes, sessionId: "copy" })).toEqual({ sessionId: "copy", revision: 1 });
    expect(backend.head("copy")?.components).toEqual(backend.head("large")?.components);
  });

  test("stops what is aborted at its next step, and keeps nothing of it", async () => {
    const backend = open();
    fill(backend, "large", 5);
    const { maintenance } = serving(backend);
    const file = join(temporaryFolder(), "large");
    const abortAt = (count: number) => {
      const stop = new AbortController();
      let seen = 0;
      return { signal: stop.signal, onProgress: () => void (++seen === count && stop.abort()) };
    };
    await expect(maintenance.exportSession({ sessionId: "large", file }, abortAt(2))).rejects.toMatchObject({
      code: "aborted",
    });
    expect(readdirSync(join(file, ".."))).toEqual([]);
    const bytes = (await maintenance.exportSession({ sessionId: "large" })) as Uint8Array;
    await expect(maintenance.importSession({ bytes, sessionId: "copy" }, abortAt(2))).rejects.toMatchObject({
      code: "aborted",
    });
    expect(backend.head("copy")).toBeUndefined();
    const stopped = new AbortController();
    stopped.abort();
    await expect(maintenance.prune({ graceMs: 0 }, { signal: stopped.signal })).rejects.toMatchObject({
      code: "aborted",
    });
    await maintenance.importSession({ bytes, sessionId: "copy" });
  });

  test("says what a pruning would remove, and removes nothing", async () => {
    let wallNow = () => 1;
    const backend = open({ clock: { wallNow: () => wallNow() } });
    const states = [component(1), component(2), component(3)];
    commit(backend, turn("a", 1, states), turn("gone", 1));
    write(
      backend,
      { kind: "delete", sessionId: "gone", epoch: UNCLAIMED },
      {
        kind: "record",
        entry: {
          sessionId: "b",
          turnId: "t1",
          key: "k",
          hash: "h",
          bytes: new Uint8Array(),
          expectedRevision: 0,
          epoch: UNCLAIMED,
        },
      },
    );
    wallNow = Date.now;
    const { maintenance } = serving(backend);
    const policy = { graceMs: 0, journalsOlderThanMs: 1 };
    const report = {
      segments: { kept: 1, removed: 1, waiting: 0 },
      components: { kept: 0, removed: 3, waiting: 0 },
      journals: { kept: 0, removed: 1, waiting: 0 },
    };
    expect(await maintenance.prune({ ...policy, dryRun: true })).toEqual(report);
    expect(backend.keys("components", undefined, 9)).toHaveLength(3);
    expect(backend.journal("b")).toHaveLength(1);
    // Nor does it count as having been seen: the grace begins with a pruning.
    expect(await maintenance.prune({ dryRun: true })).toMatchObject({ components: { removed: 0, waiting: 3 } });
    for (const wrong of [{ graceMs: -1 }, { journalsOlderThanMs: Number.NaN }])
      await expect(maintenance.prune(wrong)).rejects.toMatchObject({ code: "invalid_options" });
    expect(await maintenance.prune(policy)).toEqual(report);
    expect(await maintenance.prune(policy)).toMatchObject({ components: { removed: 0 }, journals: { removed: 0 } });
  });

  test("imports nothing of a file that is cut off, changed or newer", async () => {
    const backend = open();
    commit(backend, turn("a", 1, [component(1)]));
    const { maintenance } = serving(backend);
    for (const format of ["msgpack", "json"] as const) {
      const whole = (await maintenance.exportSession({ sessionId: "a", format })) as Uint8Array;
      const { records } = backend.writes;
      const newer = Buffer.from(
        Buffer.from(whole).toString("latin1").replace('"version": 1', '"version": 3'),
        "latin1",
      );
      const version = newer.indexOf(Buffer.from([0xa7, ...Buffer.from("version"), 1]));
      if (version !== -1) newer[version + 8] = 3;
      const changed = Uint8Array.from(whole, (byte, i) => (i === 60 ? byte ^ 1 : byte));
      const codes = await Promise.all(
        [whole.subarray(0, -9), changed, newer].map((bytes) =>
          maintenance.importSession({ bytes, sessionId: "b" }).then(
            () => "imported",
            ({ code }) => code,
          ),
        ),
      );
      expect(codes).toEqual(["export_damaged", "export_damaged", "export_version_unknown"]);
      expect(backend.writes.records).toBe(records);
    }
  });
});

test("an id whose first turn is unfinished is taken", () => {
  const backend = openMemory();
  const entry = {
    sessionId: "a",
    turnId: "t1",
    key: "k",
    hash: "h",
    bytes: new Uint8Array(),
    expectedRevision: 0,
    epoch: UNCLAIMED,
  };
  write(backend, { kind: "record", entry });
  const [result] = backend.write([
    { kind: "import", sessionId: "a", segments: [], components: [], head: turn("a", 1).head },
  ]);
  expect(result).toMatchObject({ ok: false, error: { code: "session_exists" } });
});

describe("a backup", () => {
  test("of a store that is written to is a store of one moment, whole and without gaps", async () => {
    const folder = temporaryFolder();
    const { client, maintenance } = serving(openLmdb(temporaryFolder()));
    const owner = new OwningClient(client);
    let revision = 0;
    let going = true;
    const committing = (async () => {
      while (going) for (const id of ["a", "b"]) await owner.commit(turn(id, id === "a" ? ++revision : revision));
    })();
    for (let n = 1; n <= 3; n++) {
      const before = revision;
      await maintenance.backup({ folder: join(folder, `${n}`) });
      const path = join(folder, `${n}`);
      expect(readdirSync(path)).toEqual(["data.mdb"]);
      expect(verifyStore(path)).toMatchObject({ ok: true });
      const backup = openLmdb(path);
      const heads = ["a", "b"].map((id) => backup.head(id)?.revision ?? 0);
      backup.close();
      expect(heads[0]).toBeGreaterThanOrEqual(before - 1);
      expect([0, 1]).toContain((heads[0] ?? 0) - (heads[1] ?? 0));
    }
    going = false;
    await committing;
  });

  test("goes into a folder of its own, whole or not at all", async () => {
    const { maintenance } = serving(openLmdb(temporaryFolder()));
    const folder = temporaryFolder();
    writeFileSync(join(folder, "mine"), "");
    await expect(maintenance.backup({ folder })).rejects.toMatchObject({ code: "backup_exists", details: { folder } });
    expect(readdirSync(folder)).toEqual(["mine"]);
    await expect(maintenance.backup({ folder: join(folder, "mine", "no") })).rejects.toMatchObject({
      code: "backup_failed",
    });
    // What a crash left of another one is no backup.
    const cut = join(folder, "cut");
    mkdirSync(join(cut, ".part"), { recursive: true });
    writeFileSync(join(cut, ".part", "data.mdb"), "half");
    await maintenance.backup({ folder: cut });
    expect([readdirSync(cut), existsSync(join(cut, ".part"))]).toEqual([["data.mdb"], false]);
    await expect(maintenance.backup({ folder: cut })).rejects.toMatchObject({ code: "backup_exists" });
  });

  test("of a store in memory there is none", async () => {
    const { maintenance } = serving(openMemory());
    await expect(maintenance.backup({ folder: temporaryFolder() })).rejects.toMatchObject({
      code: "store_not_on_disk",
    });
  });
});
