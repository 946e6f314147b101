import { open } from "lmdb";
import { expect, onTestFinished, test } from "vitest";
import { type BackendAtOnce, openLmdb, sealEnvelope } from "../../../src/store/index.js";
import { TABLE } from "../../../src/store/lmdb/file/layout.js";
import { journalKey } from "../../../src/store/records/records.js";
import { encode } from "../../../src/wire/index.js";
import { commit, serving, temporaryFolder, thrownBy, turn, UNCLAIMED, write } from "../commits.js";

const ROWS = 41;

const outcome = (sessionId: string, n: number, bytes: Uint8Array = encode({ nth: n })) => ({
  kind: "record" as const,
  entry: {
    sessionId,
    turnId: "t2",
    key: `tool:${n}`,
    ...sealEnvelope({ nth: n }),
    bytes,
    expectedRevision: 1,
    epoch: UNCLAIMED,
  },
});

type RawTable = ReturnType<typeof rawJournal>["journal"];

/** The table itself, opened as a store opens it. */
function rawJournal(path: string, { readOnly = false } = {}) {
  const root = open<Uint8Array, string>({ ...TABLE, path, readOnly, noSubdir: false, overlappingSync: false });
  return { root, journal: root.openDB<Uint8Array, string>("journal", TABLE) };
}

/** A store whose session `a` has a long journal and `b` a short one, after something happened to the rows of `a`. */
function damagedStore(change: (journal: RawTable) => void): { path: string; backend: BackendAtOnce } {
  const path = temporaryFolder();
  const before = openLmdb(path);
  commit(before, turn("a", 1), turn("b", 1));
  write(before, ...Array.from({ length: ROWS }, (_, n) => outcome("a", n)));
  write(before, outcome("b", 0));
  before.close();
  const { root, journal } = rawJournal(path);
  change(journal);
  root.close();
  const backend = openLmdb(path);
  onTestFinished(() => backend.close());
  return { path, backend };
}

function changeByte(journal: RawTable, sequence: number, at: number): void {
  const key = journalKey("a", sequence);
  const bytes = Uint8Array.from(journal.get(key) as Uint8Array);
  bytes[at < 0 ? bytes.length + at : at] = (bytes[at < 0 ? bytes.length + at : at] ?? 0) ^ 0x40;
  journal.putSync(key, bytes);
}

const damages: Readonly<Record<string, { change: (journal: RawTable) => void; error: object }>> = {
  ...Object.fromEntries(
    [0, 9, 15, 16, 17, 32, 39].map((n) => [
      `whose row ${n} is missing`,
      {
        change: (journal: RawTable) => journal.removeSync(journalKey("a", n)),
        error: { code: "journal_damaged", details: { sessionId: "a", sequence: n } },
      },
    ]),
  ),
  "whose rows 16 to 30 are missing": {
    change(journal) {
      for (let n = 16; n <= 30; n++) journal.removeSync(journalKey("a", n));
    },
    error: { code: "journal_damaged", details: { sessionId: "a", sequence: 16 } },
  },
  "with a changed byte in the outcome of row 20": {
    change: (journal) => changeByte(journal, 20, -3),
    error: { code: "snapshot_damaged" },
  },
  "with a changed byte in the seal of row 40, the last": {
    change: (journal) => changeByte(journal, ROWS - 1, 0),
    error: { code: "snapshot_damaged" },
  },
  "with a row that was cut off": {
    change(journal) {
      const key = journalKey("a", 17);
      journal.putSync(key, (journal.get(key) as Uint8Array).slice(0, 3));
    },
    error: { code: "snapshot_damaged" },
  },
};

for (const [what, { change, error }] of Object.entries(damages)) {
  test(`a journal ${what} is not read, gone on with or cleared, and other sessions are as they were`, async () => {
    const { path, backend } = damagedStore(change);
    expect(thrownBy(() => backend.journal("a"))).toMatchObject(error);
    const rows = () => {
      const { root, journal } = rawJournal(path, { readOnly: true });
      const all = [...journal.getRange()].map(({ key, value }) => [key, Buffer.from(value).toString("hex")]);
      root.close();
      return all;
    };
    const [head, before] = [backend.head("a"), rows()];
    const refused = write(
      backend,
      outcome("a", ROWS),
      outcome("a", 0),
      { kind: "commit", commit: { ...turn("a", 2), clearsJournal: true } },
      { kind: "clear", sessionId: "a", expectedRevision: 1, epoch: UNCLAIMED },
      outcome("b", 1),
    );
    expect(refused.slice(0, 4)).toMatchObject(Array.from({ length: 4 }, () => ({ ok: false, error })));
    expect(refused[4]).toMatchObject({ ok: true });
    expect(backend.head("a")).toEqual(head);
    expect(rows().filter(([key]) => !key?.startsWith("b"))).toEqual(before.filter(([key]) => !key?.startsWith("b")));
    expect(backend.journal("b").map(({ key }) => key)).toEqual(["tool:0", "tool:1"]);
  });

  test(`opening a session with a journal ${what} says so, and leaves the session free`, async () => {
    const { backend } = damagedStore(change);
    const { client } = serving(backend);
    await expect(client.open("a", { take: "always", journal: true })).rejects.toMatchObject(error);
    expect(backend.isOwned("a")).toBe(false);
    const { journal } = await client.open("b", { take: "always", journal: true });
    expect(journal.map(({ key }) => key)).toEqual(["tool:0"]);
    // Who does not go on with a turn, as a store that is only read does not, needs no journal.
    expect((await client.open("a", { take: "always", journal: false })).head?.revision).toBe(1);
  });
}

test("a journal that lost its last rows is a shorter journal: nothing tells that there were more", () => {
  const { backend } = damagedStore((journal) => journal.removeSync(journalKey("a", ROWS - 1)));
  expect(backend.journal("a").map(({ sequence }) => sequence)).toEqual(Array.from({ length: ROWS - 1 }, (_, n) => n));
  expect(write(backend, outcome("a", ROWS - 1))).toMatchObject([{ ok: true, receipt: { replayed: false } }]);
});

test("the rows of a long journal are opened in order by whoever takes the session up", async () => {
  const { backend } = damagedStore(() => undefined);
  const { client } = serving(backend);
  const { journal, epoch } = await client.open("a", { take: "free", journal: true });
  expect(journal.map(({ sequence, key }) => [sequence, key])).toEqual(
    Array.from({ length: ROWS }, (_, n) => [n, `tool:${n}`]),
  );
  for (const n of [0, 15, 16, 17, ROWS - 1]) {
    const { entry } = outcome("a", n, encode("another run"));
    expect(await client.record({ ...entry, epoch })).toMatchObject({ replayed: true, bytes: encode({ nth: n }) });
  }
});

test("a journal row that stands in the place of another is found when the store is opened", () => {
  const misplace = (journal: RawTable) =>
    journal.putSync(journalKey("a", 17), journal.get(journalKey("a", 18)) as Uint8Array);
  expect(thrownBy(() => damagedStore(misplace))).toMatchObject({ code: "store_damaged" });
});
