import { createHash } from "node:crypto";
import { cpSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import {
  type BackendAtOnce,
  openLmdb,
  openLmdbReader,
  readHistory,
  repairStore,
  sealEnvelope,
  verifyStore,
} from "../../../src/store/index.js";
import { openRoot } from "../../../src/store/lmdb/file/root.js";
import { decode, encode } from "../../../src/wire/index.js";
import { commit, temporaryFolder, textsOf, thrownBy, turn, UNCLAIMED } from "../commits.js";
import { raw, recordsIn } from "./old-store.js";

const golden = (version: number) => fileURLToPath(new URL(`../fixtures/golden-v${version}`, import.meta.url));

/** A copy of a golden store, so that opening it changes nothing here. */
function copyOf(version: number): string {
  const path = temporaryFolder();
  cpSync(golden(version), path, { recursive: true });
  return path;
}

function opened(path: string): BackendAtOnce {
  const backend = openLmdb(path);
  onTestFinished(() => backend.close());
  return backend;
}

const digest = (path: string) =>
  createHash("sha256")
    .update(readFileSync(join(path, "data.mdb")))
    .digest("hex");

const usage = (inputTokens: number) => ({
  inputTokens,
  outputTokens: 7,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
  reasoningTokens: 0,
});

for (const version of [1, 2, 3]) {
  test(`everything in a store of layout version ${version} is there after opening it`, () => {
    const backend = opened(copyOf(version));
    const since3 = version >= 3 ? ["of a tenant"] : [];
    expect([...backend.sessionIds()]).toEqual(["chat-42", "chat-42/research", "empty", ...since3, "日本 😀"]);
    const head = backend.head("chat-42");
    expect(head).toEqual({
      sessionId: "chat-42",
      revision: 3,
      leaf: "chat-42@3.0",
      turnIndex: 2,
      usage: usage(300),
      components: { "plugin:acme.budget": expect.any(String) },
      operation: "frame:compaction",
      frameId: "compaction",
      frames: [{ frameId: "main", reason: "compaction", leaf: "chat-42@2.1" }],
      ledger: { compaction: usage(30) },
    });
    const state = backend.component(head?.components["plugin:acme.budget"] ?? "");
    expect(decode(state ?? new Uint8Array())).toEqual({ version: "1.0.0", state: { calls: 3 } });
    expect(textsOf(readHistory(backend, "chat-42@3.0"))).toEqual(["So far: rain in Oslo."]);
    const left = readHistory(backend, "chat-42@2.1");
    expect(left.map(({ id }) => id)).toEqual(["m1", "m2", "m3", "m4", "m5", "m6"]);
    const picture = left[4]?.parts[1];
    const source = picture?.type === "attachment" ? picture.source : undefined;
    const blob = backend.component(source?.kind === "stored" ? source.hash : "");
    expect([blob?.length, blob?.[0], blob?.[250], blob?.[251]]).toEqual([9_000, 0, 250, 0]);
    expect(backend.head("chat-42/research")).toMatchObject({
      leaf: "chat-42@1.0",
      parent: { sessionId: "chat-42", leaf: "chat-42@1.0" },
    });
    expect(textsOf(readHistory(backend, backend.head("日本 😀")?.leaf ?? null))).toEqual(["こんにちは"]);
    expect(backend.head("empty")).toMatchObject({ revision: 1, leaf: null });
  });

  test(`sessions of a store of layout version ${version} are gone on with, and repeated operations recognised`, () => {
    const path = copyOf(version);
    const backend = opened(path);
    const last = backend.head("日本 😀");
    if (last === undefined) throw new Error("there should be a session");
    const again = { head: last, expectedRevision: 0, epoch: UNCLAIMED, components: [] };
    expect(commit(backend, again, turn("日本 😀", 2))).toMatchObject([
      { revision: 1, replayed: true },
      { revision: 2, replayed: false },
    ]);
    const reader = openLmdbReader(path);
    onTestFinished(() => reader.close());
    expect(reader.head("日本 😀")?.revision).toBe(2);
  });
}

test.each([2, 3])(
  "a store of layout version %i has its journals, its receipts and the ids that are not used again",
  (version) => {
    const backend = opened(copyOf(version));
    expect(backend.journal("chat-42").map(({ bytes, ...row }) => ({ ...row, outcome: decode(bytes) }))).toEqual(
      ["model:1", "tool:c2:attempt:1"].map((key, sequence) => ({
        sequence,
        turnId: "t3",
        key,
        ...sealEnvelope({ kind: key.split(":")[0] ?? "", key }),
        at: 1_700_000_000_000,
        outcome: { outcome: `of ${key}` },
      })),
    );
    const second = { ...turn("chat-42", 2), head: { ...turn("chat-42", 2).head, operation: "turn:t2" } };
    expect(commit(backend, second, turn("gone", 1), turn("gone", 2))).toMatchObject([
      { revision: 2, replayed: true },
      { code: "session_deleted" },
      { code: "session_deleted" },
    ]);
  },
);

test.each([1, 2])(
  "a store of layout version %i is of this one once it was opened, and is not changed again",
  async (version) => {
    const path = copyOf(version);
    openLmdb(path).close();
    const migrated = await recordsIn(path);
    expect(migrated.order?.map(([key]) => key)).toHaveLength(4);
    expect(migrated.children?.map(([key]) => key)).toEqual(["chat-42\u007fchat-42/research"]);
    openLmdb(path).close();
    expect(await recordsIn(path)).toEqual(migrated);
  },
);

test("each opening of a store has a number of its own, larger than those before", () => {
  const path = copyOf(2);
  const epochs = [1, 2, 3].map(() => {
    const backend = openLmdb(path);
    const epoch = backend.claim("chat-42", { owner: "me", take: "always" });
    backend.close();
    return epoch;
  });
  expect(epochs).toEqual([2 ** 32 + 1, 2 * 2 ** 32 + 1, 3 * 2 ** 32 + 1]);
});

test("a store whose number of openings was changed is refused, and counts on after a repair", async () => {
  const path = copyOf(2);
  for (let i = 0; i < 3; i++) openLmdb(path).close();
  const epochAfter = () => {
    const backend = openLmdb(path);
    const epoch = backend.claim("a", { owner: "me", take: "always" });
    backend.close();
    return epoch;
  };
  // With one state of the file damaged, the other still says it.
  const change = () =>
    raw(path, (table) => {
      const bytes = Buffer.from(table("meta").getBinary("opening") ?? []);
      bytes[bytes.length - 1] = 1;
      table("meta").putSync("opening", bytes);
    });
  await change();
  expect(thrownBy(() => openLmdb(path))).toMatchObject({ code: "store_damaged" });
  expect(verifyStore(path)).toMatchObject({ ok: false, file: [{ code: "store_damaged" }] });
  expect(repairStore(path)).toMatchObject({ changed: true });
  expect(epochAfter()).toBe(4 * 2 ** 32 + 1);
  for (let i = 0; i < 2; i++) await change();
  repairStore(path);
  expect(epochAfter()).toBe((2 ** 20 + 1) * 2 ** 32 + 1);
});

test("a record that could not be read before is not the end of its store: the others are migrated", async () => {
  const path = copyOf(1);
  await raw(path, (table) => {
    table("heads").putSync("empty", new Uint8Array([1, 2, 3]));
    table("segments").putSync("日本 😀@1", new Uint8Array([4, 5, 6]));
  });
  const backend = opened(path);
  expect(thrownBy(() => backend.head("empty"))).toMatchObject({ code: "snapshot_damaged" });
  expect(thrownBy(() => readHistory(backend, "日本 😀@1.0"))).toMatchObject({ code: "history_damaged" });
  expect(backend.head("chat-42")?.revision).toBe(3);
});

test("a store of an older layout that nobody has opened for writing yet cannot be read", () => {
  expect(thrownBy(() => openLmdbReader(copyOf(1)))).toMatchObject({ code: "store_open_failed" });
});

const unknownLayouts: Readonly<Record<string, unknown>> = {
  "newer than known": { version: 4 },
  "newer by far": { version: 2 ** 31, tables: ["more"] },
  "2 without its check": { version: 2 },
  "3 without its check": { version: 3 },
  "1 with the check of another": { version: 1, check: 12_345 },
  "no number": { version: "2" },
};
for (const [what, layout] of Object.entries(unknownLayouts)) {
  test(`a store whose layout version is ${what} is refused and not one byte of it is changed`, async () => {
    const path = temporaryFolder();
    const backend = openLmdb(path);
    commit(backend, turn("a", 1));
    backend.close();
    await raw(path, (table) => table("meta").putSync("layout", encode(layout)));
    const before = digest(path);
    const { version } = layout as { version: unknown };
    expect(thrownBy(() => openLmdb(path))).toMatchObject({
      code: "store_version_unknown",
      details: { found: version, known: 3 },
    });
    expect(digest(path)).toBe(before);
  });
}

test("a new store is made in one transaction, so that opening it waits for the disk once", () => {
  const path = temporaryFolder();
  openLmdb(path).close();
  const root = openRoot(path, { readOnly: true });
  onTestFinished(() => root.close());
  expect(root.getStats()).toMatchObject({ lastTxnId: 1 });
});
