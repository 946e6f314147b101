import { readFileSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { Commit, Part, StoreWrite } from "../../../src/kernel/index.js";
import {
  type BackendAtOnce,
  openLmdb,
  readHistory,
  repairStore,
  sealEnvelope,
  type VerifyReport,
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
  turn,
  UNCLAIMED,
  write as writeOwned,
} from "../commits.js";

const stateOf = (value: unknown) => {
  const bytes = encode(value);
  return { hash: contentHash(bytes), bytes };
};
const STATE = stateOf("state of a plugin");
const PICTURE = stateOf("a picture, attached");
const KEPT = stateOf("a picture of a turn that is not finished");

const record = (sessionId: string, key: string, expectedRevision: number, value: unknown): StoreWrite => ({
  kind: "record",
  entry: {
    sessionId,
    turnId: "t",
    key,
    ...sealEnvelope({ key }),
    expectedRevision,
    epoch: UNCLAIMED,
    bytes: encode(value),
  },
});

/**
 * `plain`: two turns and plugin state. `framed`: an attachment, and a frame it left. `busy`: a turn that is not finished.
 * `new`: the same, its first. `shares`: a fork of `plain`.
 */
function makeStore(change: (backend: BackendAtOnce) => void = () => {}): string {
  const path = temporaryFolder();
  const backend = openLmdb(path);
  const one = (id: string, revision: number, text: string, parent: string | null, parts?: Part[]): Commit => {
    const base = turn(id, revision);
    const segment = `${id}@${revision}`;
    const bytes =
      parts === undefined
        ? segmentBytes(segment, parent, [text])
        : encode({ id: segment, parent, messages: [{ id: "m", role: "user", parts }] });
    return { ...base, segment: { id: segment, bytes } };
  };
  const naming = (base: Commit, head: Partial<Commit["head"]>, components: Commit["components"] = []): Commit => ({
    ...base,
    head: { ...base.head, ...head },
    components,
  });
  const picture: Part = {
    type: "attachment",
    mediaType: "image/png",
    source: { kind: "stored", hash: PICTURE.hash, bytes: PICTURE.bytes.length },
  };
  const frames = [{ frameId: "first", reason: "test", leaf: "framed@1.0" }];
  const answers = commit(
    backend,
    one("plain", 1, "plain says one", null),
    naming(one("plain", 2, "plain says two", "plain@1.0"), { components: { "plugin:p": STATE.hash } }, [STATE]),
    one("framed", 1, "framed says one", null),
    naming(one("framed", 2, "", null, [picture]), { frameId: "second", frames }, [PICTURE]),
    naming(one("busy", 1, "busy says one", null), {}, [KEPT]),
    {
      head: { ...turn("shares", 1).head, leaf: "plain@1.0", parent: { sessionId: "plain", leaf: "plain@1.0" } },
      expectedRevision: 0,
      epoch: UNCLAIMED,
      components: [],
    },
  );
  for (const answer of answers) expect(answer).toMatchObject({ replayed: false });
  change(backend);
  // One after the other: a file has the state before the last transaction too, and repairing finds what is there.
  for (const write of [
    record("busy", "model:1", 1, "busy was answered"),
    record("busy", "tools:1", 1, { hash: KEPT.hash }),
    record("new", "model:1", 0, "new was answered"),
  ])
    writeOwned(backend, write);
  backend.close();
  return path;
}

const sweep = (what: Partial<Extract<StoreWrite, { kind: "sweep" }>>) => (backend: BackendAtOnce) => {
  backend.write([{ kind: "sweep", segments: [], components: [], journals: [], quietForMs: 0, ...what }]);
};

const findingsOf = ({ sessions }: VerifyReport) =>
  sessions.flatMap(({ sessionId, findings }) => findings.map(({ where, code }) => [sessionId, where, code]));

type Found = readonly (readonly [sessionId: string, where: string, code: string])[];

/** What is done to a store, and what is found: where and what, and a word of the message. */
const DAMAGES: Readonly<Record<string, readonly [make: () => string, found: Found, says: string]>> = {
  "a head that was changed": [
    () => damaged("plain/2"),
    [["plain", "head", "snapshot_damaged"]],
    "changed after it was written",
  ],
  "a message that was changed": [
    () => damaged("plain says two"),
    [["plain", "history", "history_damaged"]],
    "History segment plain@2",
  ],
  "a message two sessions share": [
    () => damaged("plain says one"),
    [
      ["plain", "history", "history_damaged"],
      ["shares", "history", "history_damaged"],
    ],
    "History segment plain@1",
  ],
  "a message of a frame that was left": [
    () => damaged("framed says one"),
    [["framed", "frame first", "history_damaged"]],
    "History segment framed@1",
  ],
  "a segment that is missing": [
    () => makeStore(sweep({ segments: ["plain@2"] })),
    [["plain", "history", "history_damaged"]],
    "plain@2 cannot be used: it is missing",
  ],
  "plugin state that was changed": [
    () => damaged("state of a plugin"),
    [["plain", "component plugin:p", "component_damaged"]],
    STATE.hash,
  ],
  "plugin state that is missing": [
    () => makeStore(sweep({ components: [STATE.hash] })),
    [["plain", "component plugin:p", "component_missing"]],
    STATE.hash,
  ],
  "an attachment that was changed": [
    () => damaged("a picture, attached"),
    [["framed", `attachment ${PICTURE.hash}`, "component_damaged"]],
    PICTURE.hash,
  ],
  "an attachment that is missing": [
    () => makeStore(sweep({ components: [PICTURE.hash] })),
    [["framed", `attachment ${PICTURE.hash}`, "component_missing"]],
    PICTURE.hash,
  ],
  "a row of a journal that was changed": [
    () => damaged("busy was answered"),
    [["busy", "journal", "snapshot_damaged"]],
    "changed after it was written",
  ],
  "a row of the journal of a first turn": [
    () => damaged("new was answered"),
    [["new", "journal", "snapshot_damaged"]],
    "changed after it was written",
  ],
};

function damaged(text: string): string {
  const path = makeStore();
  damage(path, text);
  return path;
}

const ALL = ["busy", "framed", "new", "plain", "shares"];

describe("verifying", () => {
  test("finds nothing in a store that is whole", () => {
    const path = makeStore();
    const sessions = ALL.map((sessionId) => ({ sessionId, ok: true, findings: [] }));
    expect(verifyStore(path)).toEqual({ path, ok: true, file: [], sessions, others: [] });
    expect(repairStore(path)).toMatchObject({ changed: false });
  });

  test.each(Object.entries(DAMAGES))("finds %s and says where; repairing leaves a store that is whole", (_, damage) => {
    const [make, found, says] = damage;
    const path = make();
    const report = verifyStore(path);
    expect([report.ok, report.file, findingsOf(report)]).toEqual([false, [], found]);
    expect(JSON.stringify(report)).toContain(says);
    const { sessions } = repairStore(path);
    expect(sessions.map(({ sessionId }) => sessionId)).toEqual(found.map(([sessionId]) => sessionId));
    expect(verifyStore(path).ok).toBe(true);
    checkOthers(path, new Set(found.map(([sessionId]) => sessionId)));
  });

  test("finds pages that are not what they should be, and a file that is cut off", () => {
    for (const change of [
      (bytes: Buffer) => bytes.fill(0, 4_096 * 3, 4_096 * 4),
      (bytes: Buffer) => bytes.subarray(0, bytes.length - 5_000),
      (bytes: Buffer) => bytes.fill(0, 0, 4_096),
    ]) {
      const path = makeStore();
      writeFileSync(dataFile(path), change(readFileSync(dataFile(path))));
      const { ok, file } = verifyStore(path);
      expect([ok, new Set(file.map(({ where, code }) => `${where} ${code}`))]).toEqual([
        false,
        new Set(["file store_damaged"]),
      ]);
    }
  });
});

/** What every session that was not damaged has, to the letter. */
function checkOthers(path: string, touched: ReadonlySet<string>): void {
  const backend = openLmdb(path);
  try {
    const whole: Record<string, () => void> = {
      plain: () => expect(saidBy(backend, "plain")).toEqual(["plain says one", "plain says two"]),
      shares: () => expect(saidBy(backend, "shares")).toEqual(["plain says one"]),
      framed: () => expect(textsOf(readHistory(backend, "framed@1.0"))).toEqual(["framed says one"]),
      busy: () => {
        expect(backend.journal("busy").map(({ key }) => key)).toEqual(["model:1", "tools:1"]);
        expect(backend.component(KEPT.hash)).toEqual(KEPT.bytes);
      },
      new: () => expect(backend.journal("new").map(({ key }) => key)).toEqual(["model:1"]),
    };
    for (const [id, check] of Object.entries(whole)) if (!touched.has(id)) check();
  } finally {
    backend.close();
  }
}

test("of an attachment that was lost, a word stays in the conversation", () => {
  const path = damaged("a picture, attached");
  repairStore(path);
  const backend = openLmdb(path);
  expect(saidBy(backend, "framed")).toEqual(["[lost attachment: image/png]"]);
  backend.close();
});

function saidBy(backend: BackendAtOnce, id: string): string[] {
  return textsOf(readHistory(backend, backend.head(id)?.leaf ?? null));
}
