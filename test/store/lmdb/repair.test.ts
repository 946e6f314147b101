import { createHash } from "node:crypto";
import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import type { Commit, Head } from "../../../src/kernel/index.js";
import {
  acquireStoreLock,
  type BackendAtOnce,
  openLmdb,
  readHistory,
  repairStore,
  sealEnvelope,
  verifyStore,
} from "../../../src/store/index.js";
import { contentHash, encode } from "../../../src/wire/index.js";
import {
  commit,
  damage,
  dataFile,
  segmentBytes,
  temporaryFolder,
  textsOf,
  thrownBy,
  turn,
  UNCLAIMED,
  write,
} from "../commits.js";

const digest = (path: string) =>
  createHash("sha256")
    .update(readFileSync(dataFile(path)))
    .digest("hex");

const stateOf = (value: unknown) => {
  const bytes = encode(value);
  return { hash: contentHash(bytes), bytes };
};

/** Sessions `a` and `b` of four turns each, with words of their own in every message; `fork` shares two turns of `a`. */
function makeStore(): string {
  const path = temporaryFolder();
  const backend = openLmdb(path);
  for (let revision = 1; revision <= 4; revision++) {
    for (const id of ["a", "b"]) {
      const state = stateOf(`state of ${id} at ${revision}`);
      const one = turn(id, revision, [state]);
      const parent = revision === 1 ? null : `${id}@${revision - 1}.0`;
      const segment = {
        id: `${id}@${revision}`,
        bytes: segmentBytes(`${id}@${revision}`, parent, [`${id} says ${revision}`]),
      };
      commit(backend, { ...one, head: { ...one.head, components: { "plugin:p": state.hash } }, segment });
    }
  }
  const fork: Commit = {
    head: { ...turn("fork", 1).head, leaf: "a@2.0", parent: { sessionId: "a", leaf: "a@2.0" } },
    expectedRevision: 0,
    epoch: UNCLAIMED,
    components: [],
  };
  commit(backend, fork);
  for (const key of ["model:1", "tool:1"]) {
    const entry = {
      sessionId: "b",
      turnId: "t5",
      key,
      ...sealEnvelope({ key }),
      expectedRevision: 4,
      epoch: UNCLAIMED,
    };
    write(backend, { kind: "record", entry: { ...entry, bytes: encode(`outcome of ${key}`) } });
  }
  backend.close();
  return path;
}

function opened(path: string): BackendAtOnce {
  const backend = openLmdb(path);
  onTestFinished(() => backend.close());
  return backend;
}

const textsIn = (backend: BackendAtOnce, id: string) => textsOf(readHistory(backend, backend.head(id)?.leaf ?? null));

describe("a store that is whole", () => {
  test("is found so, and repairing it touches nothing", () => {
    const path = makeStore();
    const before = digest(path);
    expect(verifyStore(path)).toEqual({
      path,
      ok: true,
      file: [],
      sessions: ["a", "b", "fork"].map((sessionId) => ({ sessionId, ok: true, findings: [] })),
      others: [],
    });
    expect(repairStore(path)).toEqual({
      path,
      changed: false,
      lastWrite: "kept",
      file: [],
      sessions: [],
      others: [],
      unnamedSessions: 0,
    });
    expect(digest(path)).toBe(before);
  });

  test("of an older layout is found so too", () => {
    const path = temporaryFolder();
    cpSync(fileURLToPath(new URL("../fixtures/golden-v1", import.meta.url)), path, { recursive: true });
    expect(verifyStore(path)).toMatchObject({ ok: true, sessions: { length: 4 } });
    expect(repairStore(path).changed).toBe(false);
  });

  test("is not looked at while somebody has it open", () => {
    const path = makeStore();
    const lock = acquireStoreLock(path, systemClock);
    expect(thrownBy(() => verifyStore(path))).toMatchObject({ code: "store_held" });
    expect(thrownBy(() => repairStore(path))).toMatchObject({ code: "store_held" });
    lock.release();
  });

  test("is not invented where there is none", () => {
    const path = temporaryFolder();
    expect(thrownBy(() => verifyStore(path))).toMatchObject({ code: "store_open_failed" });
    expect(thrownBy(() => repairStore(path))).toMatchObject({ code: "store_open_failed" });
    expect(readdirSync(path)).toEqual([]);
  });
});

test("a session whose history is damaged goes back to before the damage, and the others stay as they are", () => {
  const path = makeStore();
  damage(path, "a says 3");
  expect(verifyStore(path)).toMatchObject({
    ok: false,
    file: [],
    sessions: [{ sessionId: "a", ok: false, findings: [{ code: "history_damaged" }] }, { ok: true }, { ok: true }],
  });
  const damaged = digest(path);
  const report = repairStore(path);
  expect(report).toMatchObject({
    changed: true,
    damagedFile: `${dataFile(path)}.damaged-1`,
    sessions: [
      { sessionId: "a", outcome: "changed", leaf: "a@2.0", leafBefore: "a@4.0", lost: [{ code: "history_damaged" }] },
    ],
  });
  expect(
    createHash("sha256")
      .update(readFileSync(report.damagedFile ?? ""))
      .digest("hex"),
  ).toBe(damaged);
  expect(verifyStore(path).ok).toBe(true);
  const backend = opened(path);
  expect(textsIn(backend, "a")).toEqual(["a says 1", "a says 2"]);
  expect(textsIn(backend, "b")).toEqual(["b says 1", "b says 2", "b says 3", "b says 4"]);
  expect(textsIn(backend, "fork")).toEqual(["a says 1", "a says 2"]);
  expect(backend.journal("b").map(({ key }) => key)).toEqual(["model:1", "tool:1"]);
  expect(backend.head("a")).toMatchObject({ revision: 5, operation: "repair" });
  const next = turn("a", 6);
  const bytes = segmentBytes("a@6", "a@2.0", ["a goes on"]);
  expect(commit(backend, { ...next, segment: { id: "a@6", bytes } })).toMatchObject([{ revision: 6 }]);
  expect(textsIn(backend, "a")).toEqual(["a says 1", "a says 2", "a goes on"]);
});

test("a session whose first message is damaged begins anew, and so does a fork of it", () => {
  const path = makeStore();
  damage(path, "a says 1");
  expect(repairStore(path).sessions).toMatchObject([
    { sessionId: "a", leaf: null, leafBefore: "a@4.0" },
    { sessionId: "fork", leaf: null, leafBefore: "a@2.0" },
  ]);
  const backend = opened(path);
  expect(textsIn(backend, "a")).toEqual([]);
  expect(backend.head("fork")?.parent).toEqual({ sessionId: "a", leaf: null });
});

test("a component that is damaged is left out and named, and the history stays", () => {
  const path = makeStore();
  damage(path, "state of a at 4");
  const { hash } = stateOf("state of a at 4");
  expect(repairStore(path).sessions).toEqual([
    {
      sessionId: "a",
      outcome: "changed",
      leaf: "a@4.0",
      leafBefore: "a@4.0",
      lost: [{ where: "component plugin:p", code: "component_damaged", message: expect.stringContaining(hash) }],
    },
  ]);
  const backend = opened(path);
  expect(backend.head("a")?.components).toEqual({});
  expect(textsIn(backend, "a")).toHaveLength(4);
});

test("a journal that is damaged is dropped: its turn begins again", () => {
  const path = makeStore();
  damage(path, "outcome of model:1");
  expect(repairStore(path).sessions).toMatchObject([{ sessionId: "b", lost: [{ code: "snapshot_damaged" }] }]);
  const backend = opened(path);
  expect(backend.journal("b")).toEqual([]);
  expect(textsIn(backend, "b")).toHaveLength(4);
});

test("a session whose head is damaged everywhere is dropped by name, and its id is not used again", () => {
  const path = makeStore();
  damage(path, "b/4");
  expect(repairStore(path).sessions).toMatchObject([
    { sessionId: "b", outcome: "dropped", leaf: null, lost: [{ code: "snapshot_damaged" }] },
  ]);
  const backend = opened(path);
  expect([...backend.sessionIds()]).toEqual(["a", "fork"]);
  expect(commit(backend, turn("b", 1))).toMatchObject([{ code: "session_deleted" }]);
});

test("a record under a wrong key is put back under its own", () => {
  const path = makeStore();
  const bytes = readFileSync(dataFile(path));
  // The key of fork's head: the only `fork` that its record follows at once.
  const value = Buffer.from("547001de0003a468656164", "hex");
  let changed = 0;
  for (let at = bytes.indexOf("fork"); at !== -1; at = bytes.indexOf("fork", at + 1)) {
    if (bytes.subarray(at + 8, at + 8 + value.length).equals(value)) {
      bytes.write("forl", at);
      changed++;
    }
  }
  expect(changed).toBeGreaterThan(0);
  writeFileSync(dataFile(path), bytes);
  expect(thrownBy(() => openLmdb(path))).toMatchObject({ code: "store_damaged" });
  expect(repairStore(path)).toMatchObject({ changed: true, file: [{ code: "store_damaged" }], sessions: [] });
  expect(textsIn(opened(path), "fork")).toEqual(["a says 1", "a says 2"]);
});

test("when the newest state of the file cannot be read, the one before it is restored and the difference reported", () => {
  const path = makeStore();
  const backend = openLmdb(path);
  const last = turn("a", 5);
  commit(backend, { ...last, segment: { id: "a@5", bytes: segmentBytes("a@5", "a@4.0", ["a says 5"]) } });
  backend.close();
  const bytes = readFileSync(dataFile(path));
  const newest = bytes.readUInt32LE(152) > bytes.readUInt32LE(4_096 + 152) ? 0 : 4_096;
  bytes.fill(0, newest, newest + 512);
  writeFileSync(dataFile(path), bytes);
  expect(thrownBy(() => openLmdb(path))).toMatchObject({ code: "store_damaged" });
  expect(repairStore(path)).toMatchObject({
    changed: true,
    lastWrite: "may_be_lost",
    file: [{ code: "store_damaged" }],
  });
  expect(textsIn(opened(path), "a")).toHaveLength(4);
});

test("a file of which nothing is left is store_damaged and stays where it is", () => {
  const path = temporaryFolder();
  writeFileSync(dataFile(path), Buffer.alloc(50_000, "not a database "));
  const before = digest(path);
  expect(thrownBy(() => repairStore(path))).toMatchObject({ code: "store_damaged" });
  expect(verifyStore(path)).toMatchObject({ ok: false, file: [{ code: "store_damaged" }], sessions: [] });
  expect(digest(path)).toBe(before);
});

test("of three hundred damages each store is repaired or refused, and what is not reported is what it was", () => {
  const whole = makeStore();
  const original = readFileSync(dataFile(whole));
  const expected = contentsOf(whole);
  let state = 99;
  const random = (below: number) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
  const seen = { repaired: 0, refused: 0, untouched: 0 };
  const path = temporaryFolder();
  for (let i = 0; i < 300; i++) {
    const bytes = Buffer.from(original);
    // Pages are filled from both ends.
    const page = 4_096 * random(bytes.length / 4_096);
    const at = random(3) === 0 ? page + random(60) : page + 4_095 - random(800);
    if (i % 5 === 4) bytes.fill(0, at - (at % 512), at - (at % 512) + 512);
    else bytes[at] = (bytes[at] ?? 0) ^ (1 << random(8));
    writeFileSync(dataFile(path), i % 20 === 19 ? bytes.subarray(0, at) : bytes);
    const result = repaired(path);
    if (result === undefined) {
      seen.refused++;
      continue;
    }
    seen[result.changed ? "repaired" : "untouched"]++;
    expect([i, result, verifyStore(path)]).toMatchObject([i, result, { ok: true }]);
    const found = contentsOf(path);
    const reported = new Set(result.sessions.map(({ sessionId }) => sessionId));
    const journalsWhole = !result.file.some(({ message }) => /^(journal|main)/.test(message));
    const vanished = Object.keys(expected).filter((id) => found[id] === undefined && !reported.has(id));
    if (result.lastWrite === "kept") expect([i, vanished.length]).toEqual([i, result.unnamedSessions]);
    for (const id of Object.keys(expected)) {
      const [was, is] = [expected[id], found[id]];
      // What is left of a session is the beginning of what it was; what is not reported is all of it.
      const texts = is?.texts ?? [];
      expect([i, texts]).toEqual([i, was?.texts.slice(0, texts.length)]);
      if (reported.has(id) || vanished.includes(id) || result.lastWrite === "may_be_lost") continue;
      expect([i, is?.head, texts]).toEqual([i, was?.head, was?.texts]);
      if (journalsWhole) expect([i, is?.journal]).toEqual([i, was?.journal]);
    }
  }
  expect(seen.repaired).toBeGreaterThan(50);
  expect(seen.untouched).toBeGreaterThan(20);
});

test("a damaged count of sessions is told as the file's, and no session is missed for it", () => {
  const path = makeStore();
  const bytes = readFileSync(dataFile(path));
  // A table's description stands behind its name: how many entries it has is the number at byte 32.
  const name = Buffer.from("heads\0");
  for (let at = bytes.indexOf(name); at >= 0; at = bytes.indexOf(name, at + 1)) {
    const highByte = at + name.length + 32 + 5;
    bytes[highByte] = (bytes[highByte] ?? 0) ^ 0x80;
  }
  writeFileSync(dataFile(path), bytes);
  const result = repairStore(path);
  expect(result).toMatchObject({ changed: true, lastWrite: "kept", sessions: [], unnamedSessions: 0 });
  expect(result.file.map(({ message }) => message).join()).toContain("it counts 140737488355331 entries, not 3");
  expect(verifyStore(path)).toMatchObject({ ok: true });
});

function repaired(path: string): ReturnType<typeof repairStore> | undefined {
  try {
    return repairStore(path);
  } catch (error) {
    // Of a store that does not say which layout it has, nothing is guessed.
    expect(error).toMatchObject({ code: expect.stringMatching(/^store_(damaged|version_unknown)$/) });
    return undefined;
  }
}

function contentsOf(path: string): Record<string, { head: Head; texts: string[]; journal: number }> {
  const backend = openLmdb(path);
  try {
    const ids = [...backend.sessionIds()];
    return Object.fromEntries(
      ids.map((id) => {
        const head = backend.head(id) as Head;
        return [id, { head, texts: textsOf(readHistory(backend, head.leaf)), journal: backend.journal(id).length }];
      }),
    );
  } finally {
    backend.close();
  }
}

test("a second repair keeps the file of the first", () => {
  const path = makeStore();
  damage(path, "a says 4");
  repairStore(path);
  damage(path, "b says 4");
  expect(repairStore(path).damagedFile).toBe(`${dataFile(path)}.damaged-2`);
  expect(existsSync(`${dataFile(path)}.damaged-1`)).toBe(true);
  const backend = opened(path);
  expect(["a", "b"].map((id) => textsIn(backend, id).length)).toEqual([3, 3]);
});

test("a head that counts other messages than lead to its leaf is found, and counts none after a repair", () => {
  const path = temporaryFolder();
  const backend = openLmdb(path);
  for (const [id, messageCount] of [
    ["right", 1],
    ["wrong", 7],
  ] as const) {
    const one = turn(id, 1);
    const segment = { id: `${id}@1`, bytes: segmentBytes(`${id}@1`, null, ["hello"]) };
    commit(backend, { ...one, head: { ...one.head, messageCount }, segment });
  }
  backend.close();
  expect(verifyStore(path).sessions).toEqual([
    { sessionId: "right", ok: true, findings: [] },
    {
      sessionId: "wrong",
      ok: false,
      findings: [{ where: "history", code: "history_damaged", message: expect.stringContaining("and not 7") }],
    },
  ]);
  expect(repairStore(path).changed).toBe(true);
  const repairedStore = opened(path);
  expect(repairedStore.head("right")).toMatchObject({ messageCount: 1, revision: 1 });
  expect(repairedStore.head("wrong")).not.toHaveProperty("messageCount");
  expect(verifyStore(path).sessions.every(({ ok }) => ok)).toBe(true);
});
