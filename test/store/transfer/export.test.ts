import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { type Commit, type Head, type RowChange, rowKey } from "../../../src/kernel/index.js";
import {
  type BackendAtOnce,
  openLmdb,
  openMemory,
  readHistory,
  readWhole,
  type StoreBackend,
  StoreServer,
} from "../../../src/store/index.js";
import { importing, readSession, sessionFile, sessionJson } from "../../../src/store/transfer/index.js";
import { contentHash, encode } from "../../../src/wire/index.js";
import { openLater } from "../../support/later-store.js";
import {
  commit,
  segmentBytes,
  serving,
  temporaryFolder,
  textsOf,
  thrownBy,
  turn,
  UNCLAIMED,
  write,
} from "../commits.js";
import { gathered, readExport } from "./read-export.js";

const stateOf = (value: unknown) => {
  const bytes = value instanceof Uint8Array ? value : encode(value);
  return { hash: contentHash(bytes), bytes };
};
const STATE = stateOf({ calls: 3, since: new Date(0) });
const PICTURE = stateOf(new Uint8Array(5_000).fill(9));

/** A session forked from another one, with two frames, plugin state, and an attachment in its first frame. */
function makeFork(backend: BackendAtOnce): void {
  const attachment = { kind: "stored", hash: PICTURE.hash, bytes: 5_000 } as const;
  const pictured = encode({
    id: "fork@1",
    parent: "parent@1.0",
    messages: [{ id: "m", role: "user", parts: [{ type: "attachment", mediaType: "image/png", source: attachment }] }],
  });
  const parent = { sessionId: "parent", leaf: "parent@1.0" };
  const frames = [{ frameId: "main", reason: "compaction", leaf: "fork@1.0" }];
  const one = turn("fork", 1, [PICTURE]);
  const two = turn("fork", 2, [STATE]);
  const commits: Commit[] = [
    {
      ...turn("parent", 1),
      segment: { id: "parent@1", bytes: segmentBytes("parent@1", null, ["one", "two"]) },
      head: { ...turn("parent", 1).head, leaf: "parent@1.1" },
    },
    { ...one, head: { ...one.head, parent }, segment: { id: "fork@1", bytes: pictured } },
    {
      ...two,
      head: { ...two.head, parent, frameId: "second", frames, components: { "plugin:p": STATE.hash } },
      segment: { id: "fork@2", bytes: segmentBytes("fork@2", null, ["summary"]) },
    },
  ];
  for (const answer of commit(backend, ...commits)) expect(answer).toMatchObject({ replayed: false });
}

function source(): BackendAtOnce {
  const backend = openMemory();
  makeFork(backend);
  return backend;
}

const fileOf = async (backend: StoreBackend, id = "fork") =>
  gathered(sessionFile(backend, await readSession(backend, id)));
const jsonOf = async (backend: StoreBackend, id = "fork") =>
  gathered(sessionJson(backend, await readSession(backend, id)));
const forms = { msgpack: fileOf, json: jsonOf };

function importInto(backend: BackendAtOnce, bytes: Uint8Array, sessionId?: string) {
  const writes = [...importing(readExport(bytes), sessionId === undefined ? {} : { sessionId })];
  return write(backend, ...writes).map((result) => (result.ok ? result.receipt : result.error));
}

function checkImported(backend: BackendAtOnce, sessionId: string): void {
  const head = backend.head(sessionId) as Head;
  expect(head).toMatchObject({
    sessionId,
    leaf: `${sessionId}@2.0`,
    revision: 3,
    frameId: "second",
    frames: [{ frameId: "main", reason: "compaction", leaf: `${sessionId}@1.0` }],
    parent: { sessionId: "parent", leaf: `${sessionId}@3.0` },
    components: { "plugin:p": STATE.hash },
  });
  expect(textsOf(readHistory(backend, head.leaf))).toEqual(["summary"]);
  const left = readHistory(backend, `${sessionId}@1.0`);
  expect(textsOf(left.slice(0, 1))).toEqual(["one"]);
  expect(left[1]?.parts[0]).toMatchObject({ type: "attachment", source: { hash: PICTURE.hash } });
  expect(backend.component(STATE.hash)).toEqual(STATE.bytes);
  expect(backend.component(PICTURE.hash)).toEqual(PICTURE.bytes);
}

describe.each(["msgpack", "json"] as const)("a session exported as %s", (form) => {
  const bytesOf = forms[form];

  test("is the same session in another store: history, frames, state, attachments", async () => {
    const backend = openLmdb(temporaryFolder());
    onTestFinished(() => backend.close());
    importInto(backend, await bytesOf(source()));
    checkImported(backend, "fork");
    expect([...backend.sessionIds()]).toEqual(["fork"]);
  });

  test("can be imported under another id beside the one it came from, and both go on", async () => {
    const backend = source();
    importInto(backend, await bytesOf(backend), "copy");
    checkImported(backend, "copy");
    const next = (id: string, revision: number): Commit => {
      const one = turn(id, revision);
      const bytes = segmentBytes(`${id}@${revision}`, `${id}@2.0`, [`next of ${id}`]);
      return { ...one, head: { ...one.head, frameId: "second" }, segment: { id: `${id}@${revision}`, bytes } };
    };
    expect(commit(backend, next("copy", 4), next("fork", 3))).toMatchObject([{ revision: 4 }, { revision: 3 }]);
    expect(textsOf(readHistory(backend, "copy@4.0"))).toEqual(["summary", "next of copy"]);
    expect(textsOf(readHistory(backend, "fork@3.0"))).toEqual(["summary", "next of fork"]);
    expect(textsOf(readHistory(backend, "parent@1.1"))).toEqual(["one", "two"]);
  });

  test("is refused where its id is taken or was deleted", async () => {
    const backend = source();
    const bytes = await bytesOf(backend);
    expect(importInto(backend, bytes)).toMatchObject([{ code: "session_exists" }]);
    write(backend, { kind: "delete", sessionId: "fork", epoch: UNCLAIMED });
    expect(importInto(backend, bytes)).toMatchObject([{ code: "session_deleted" }]);
  });

  test("exported and imported once more, it is what it was after the first time", async () => {
    const [second, third] = [openMemory(), openMemory()];
    importInto(second, await bytesOf(source()));
    importInto(third, await bytesOf(second));
    const { operation: _, ...head } = second.head("fork") as Head;
    expect(third.head("fork")).toMatchObject(head);
    checkImported(third, "fork");
  });

  test("cut anywhere is export_damaged", async () => {
    const whole = await bytesOf(source());
    for (let length = 0; length < whole.length - 2; length += Math.ceil(whole.length / 200)) {
      expect(thrownBy(() => readExport(whole.subarray(0, length)))).toMatchObject({ code: "export_damaged" });
    }
  });

  test("of a newer version is refused with both versions", async () => {
    const whole = await bytesOf(source());
    const newer = form === "json" ? replaced(whole, '"version": 1', '"version": 3') : newerFile(whole);
    expect(thrownBy(() => readExport(newer))).toMatchObject({
      code: "export_version_unknown",
      details: { found: 3, known: 2 },
    });
  });
});

function replaced(bytes: Buffer, from: string, to: string): Buffer {
  const text = bytes.toString("utf8");
  expect(text).toContain(from);
  return Buffer.from(text.replace(from, to));
}

/** msgpack's `version` and the number after it. */
function newerFile(bytes: Buffer): Buffer {
  const newer = Buffer.from(bytes);
  const at = newer.indexOf(Buffer.from([0xa7, ...Buffer.from("version"), 1]));
  newer[at + 8] = 3;
  return newer;
}

test("a file with any one bit changed is refused", async () => {
  const whole = await fileOf(source());
  for (let at = 0; at < whole.length; at += 7) {
    const changed = Buffer.from(whole);
    changed[at] = (changed[at] ?? 0) ^ (1 << (at % 8));
    expect(thrownBy(() => readExport(changed))).toMatchObject({
      code: expect.stringMatching(/^export_(damaged|version_unknown)$/),
    });
  }
});

test("a file with something behind its end, and one with nothing of a session in it, are refused", async () => {
  const whole = await fileOf(source());
  for (const bytes of [
    Buffer.concat([whole, Buffer.from([0])]),
    Buffer.from("{}"),
    Buffer.from("null"),
    Buffer.alloc(99),
  ]) {
    expect(thrownBy(() => readExport(bytes))).toMatchObject({ code: "export_damaged" });
  }
});

const edited: Readonly<Record<string, readonly [from: string, to: string]>> = {
  "a component that is not what its hash says": [STATE.bytes.length > 0 ? '"base64": "' : "", '"base64": "AAAA'],
  "a segment whose parent is missing": ['"parent": "parent@1.0"', '"parent": "parent@9.0"'],
  "a segment that is its own ancestor": ['"parent": "parent@1.0"', '"parent": "fork@1.0"'],
  "a message without parts": ['"parts"', '"part"'],
  "another format": ['"troupe-session"', '"something"'],
  "a head without a session": ['"sessionId": "fork"', '"sessionId": 5'],
};
for (const [what, [from, to]] of Object.entries(edited)) {
  test(`readable JSON with ${what} is export_damaged`, async () => {
    const document = replaced(await jsonOf(source()), from, to);
    expect(thrownBy(() => readExport(document))).toMatchObject({ code: "export_damaged" });
  });
}

test("readable JSON says what the components say", async () => {
  const document = JSON.parse((await jsonOf(source())).toString("utf8")) as {
    components: { names: string[]; value: unknown }[];
  };
  expect(document.components).toEqual([
    expect.objectContaining({ names: ["plugin:p"], value: { calls: 3, since: "1970-01-01T00:00:00.000Z" } }),
    expect.objectContaining({ names: [], hash: PICTURE.hash }),
  ]);
});

test("a session that is not there, or not whole, is not exported", async () => {
  const backend = source();
  await expect(fileOf(backend, "nobody")).rejects.toMatchObject({ code: "session_unknown" });
  const sweep = { kind: "sweep", segments: [], journals: [], quietForMs: 0 } as const;
  backend.write([{ ...sweep, components: [STATE.hash] }]);
  await expect(fileOf(backend)).rejects.toMatchObject({ code: "component_missing" });
  backend.write([{ ...sweep, components: [], segments: ["parent@1"] }]);
  await expect(fileOf(backend)).rejects.toMatchObject({ code: "history_damaged" });
});

test("a store writes a session to a file whole or not at all, and reads it back", async () => {
  const folder = temporaryFolder();
  const backend = source();
  const server = new StoreServer(backend, systemClock);
  onTestFinished(() => server.close());
  const { maintenance } = server;
  for (const format of ["msgpack", "json"] as const) {
    const file = join(folder, format);
    await maintenance.exportSession({ sessionId: "fork", file, format });
    const imported = await maintenance.importSession({ bytes: await readWhole(file), sessionId: `from ${format}` });
    expect(imported).toEqual({ sessionId: `from ${format}`, revision: 3 });
    checkImported(backend, `from ${format}`);
  }
  const file = join(folder, "nobody");
  await expect(maintenance.exportSession({ sessionId: "nobody", file })).rejects.toMatchObject({
    code: "session_unknown",
  });
  expect(existsSync(file)).toBe(false);
  expect(readdirSync(folder).sort()).toEqual(["json", "msgpack"]);
  const missing = join(folder, "no", "such");
  await expect(maintenance.exportSession({ sessionId: "fork", file: missing })).rejects.toMatchObject({
    code: "export_file_failed",
  });
  await expect(readWhole(missing)).rejects.toMatchObject({ code: "export_file_failed", details: { file: missing } });
  const whole = await readWhole(join(folder, "msgpack"));
  await expect(maintenance.importSession({ bytes: whole.subarray(0, 100), sessionId: "half" })).rejects.toMatchObject({
    code: "export_damaged",
  });
  await expect(maintenance.importSession({ bytes: whole, sessionId: "" })).rejects.toMatchObject({
    code: "invalid_session_id",
  });
  expect([...backend.sessionIds()]).toEqual(["fork", "from json", "from msgpack", "parent"]);
});

test("a large session is imported in parts, which commits can come between", async () => {
  const folder = temporaryFolder();
  const backend = openMemory();
  const large = Array.from({ length: 3 }, (_, i) => stateOf(new Uint8Array(3_000_000).fill(i)));
  const components = Object.fromEntries(large.map(({ hash }, i) => [`blob ${i}`, hash]));
  const one = turn("a", 1, large);
  commit(backend, { ...one, head: { ...one.head, components } });
  expect(
    [...importing(readExport(await fileOf(backend, "a")))].map(({ components: part, head }) => [
      part.length,
      head !== undefined,
    ]),
  ).toEqual([
    [2, false],
    [1, true],
  ]);
  const server = new StoreServer(backend, systemClock);
  onTestFinished(() => server.close());
  await server.maintenance.exportSession({ sessionId: "a", file: join(folder, "a") });
  await server.maintenance.importSession({ bytes: await readWhole(join(folder, "a")), sessionId: "b" });
  expect(backend.head("b")?.components).toEqual(components);
});

/** Rows of the session "fork", in two tables; one names an attachment that nothing else does. */
function addRows(backend: BackendAtOnce): void {
  const named = stateOf("only a row names it");
  commit(backend, turn("other", 1, [named]));
  const rows: RowChange[] = [
    { session: "fork", table: "tasks", key: "one", value: encode({ attachment: named.hash }) },
    { session: "fork", table: "tasks", key: "two", value: encode(new Date(0)), order: { at: 7, owner: "acme" } },
    { session: "fork", table: "answers", key: "日本", value: new Uint8Array([1, 2, 3]), order: { at: 0 } },
    { session: "forks", table: "tasks", key: "not mine", value: encode(1) },
    { table: "tasks", key: "nobody's", value: encode(2) },
  ];
  for (const changes of [rows, rows.slice(0, 1)]) write(backend, { kind: "rows", changes });
}

const rowsOf = (backend: BackendAtOnce, session: string) =>
  ["answers", "tasks"].flatMap((table) => backend.rows({ table, session, limit: 10 }));

describe.each(["msgpack", "json"] as const)("a session with rows exported as %s", (form) => {
  const bytesOf = forms[form];

  test("has them in another store under its new id, at their versions and in their order", async () => {
    const origin = source();
    addRows(origin);
    const backend = openLmdb(temporaryFolder());
    onTestFinished(() => backend.close());
    expect(importInto(backend, await bytesOf(origin), "copy")).toMatchObject([{ changed: expect.any(Number) }]);
    expect(rowsOf(backend, "copy")).toEqual([
      {
        session: "copy",
        table: "answers",
        key: "日本",
        version: 1,
        value: new Uint8Array([1, 2, 3]),
        order: { at: 0 },
      },
      { session: "copy", table: "tasks", key: "one", version: 2, value: rowsOf(origin, "fork")[1]?.value },
      {
        session: "copy",
        table: "tasks",
        key: "two",
        version: 1,
        value: encode(new Date(0)),
        order: { at: 7, owner: "acme" },
      },
    ]);
    expect(backend.rowsInOrder({ table: "tasks", owner: "acme", limit: 9 }).map(({ session }) => session)).toEqual([
      "copy",
    ]);
    expect(backend.component(stateOf("only a row names it").hash)).toBeDefined();
    expect(backend.keys("rows", undefined, 9)).toHaveLength(3);
    write(backend, { kind: "delete", sessionId: "copy", epoch: UNCLAIMED });
    expect(backend.keys("rows", undefined, 9)).toEqual([]);
  });

  test("is of version 2, and without rows of version 1, which older releases read", async () => {
    const origin = source();
    const versionOf = (bytes: Buffer) =>
      form === "json"
        ? (JSON.parse(bytes.toString("utf8")) as { version: number }).version
        : bytes[bytes.indexOf(Buffer.from([0xa7, ...Buffer.from("version")])) + 8];
    expect(versionOf(await bytesOf(origin))).toBe(1);
    addRows(origin);
    expect(versionOf(await bytesOf(origin))).toBe(2);
  });

  test("brings its tenant and metadata along, unless it gets another tenant", async () => {
    const origin = openMemory();
    const one = turn("a", 1);
    commit(origin, { ...one, head: { ...one.head, tenant: "acme", metadata: { colour: "red" } } });
    const bytes = await bytesOf(origin, "a");
    const backend = openMemory();
    const { maintenance } = serving(backend);
    await maintenance.importSession({ bytes, sessionId: "same" });
    await maintenance.importSession({ bytes, sessionId: "other", tenant: "else" });
    expect(backend.head("same")).toMatchObject({ tenant: "acme", metadata: { colour: "red" } });
    expect(backend.head("other")).toMatchObject({ tenant: "else", metadata: { colour: "red" } });
    expect(backend.sessionsInOrder({ tenant: "else", limit: 9 }).map(({ sessionId }) => sessionId)).toEqual(["other"]);
    await expect(maintenance.importSession({ bytes, sessionId: "b", tenant: "" })).rejects.toMatchObject({
      code: "invalid_options",
    });
    expect(backend.head("b")).toBeUndefined();
  });
});

const ROW = { table: "tasks", key: "k", version: 1, base64: "AQID" };
const wrongRows: Readonly<Record<string, unknown>> = {
  "that is no object": 5,
  "without a value": { ...ROW, base64: undefined },
  "whose version is 0": { ...ROW, version: 0 },
  "whose version is half a number": { ...ROW, version: 1.5 },
  "whose version is too large": { ...ROW, version: 2 ** 60 },
  "without a version": { ...ROW, version: undefined },
  "of a table that is the store's own": { ...ROW, table: "sessions" },
  "of a table with a bad name": { ...ROW, table: "Tasks\u007f" },
  "whose key would run into another's": { ...ROW, key: "a\u007fb" },
  "without a key": { ...ROW, key: undefined },
  "without a table": { ...ROW, table: undefined },
  "whose time is negative": { ...ROW, order: { at: -1 } },
  "whose order is null": { ...ROW, order: null },
  "whose order is a text": { ...ROW, order: "first" },
  "whose owner is a number": { ...ROW, order: { at: 1, owner: 5 } },
  "of another session": { ...ROW, session: "parent" },
};
test.each(Object.keys(wrongRows))("readable JSON with a row %s is export_damaged", async (what) => {
  const document = JSON.parse((await jsonOf(source())).toString("utf8")) as object;
  const read = (edit: object) => readExport(Buffer.from(JSON.stringify({ ...document, ...edit })));
  expect(read({ version: 2, rows: [ROW] }).rows).toHaveLength(1);
  expect(thrownBy(() => read({ version: 2, rows: [wrongRows[what]] }))).toMatchObject({ code: "export_damaged" });
});

test("a monitor stays where it is: an export has neither it nor its task, and what a stranger wrote into one is not imported", async () => {
  const origin = source();
  const rows = [
    {
      session: "fork",
      table: "monitors",
      key: "p/log",
      value: encode({ argv: ["rm"] }),
      order: { at: 1, owner: "on" },
    },
    { session: "fork", table: "tasks", key: "monitor:p/log", value: encode({ kind: "monitor" }) },
    { session: "fork", table: "tasks", key: "other", value: encode({ kind: "background" }) },
  ];
  write(origin, { kind: "rows", changes: rows });
  const bytes = await forms.json(origin);
  const document = JSON.parse(new TextDecoder().decode(bytes)) as { rows: { table: string; key: string }[] };
  expect(document.rows.map(({ table, key }) => [table, key])).toEqual([["tasks", "other"]]);
  const [row] = document.rows;
  document.rows.push({ ...row, table: "monitors", key: "p/log" }, { ...row, table: "tasks", key: "monitor:p/log" });
  const backend = openLmdb(temporaryFolder());
  onTestFinished(() => backend.close());
  importInto(backend, new TextEncoder().encode(JSON.stringify(document)), "copy");
  expect(backend.keys("rows", undefined, 9)).toEqual([rowKey({ session: "copy", table: "tasks", key: "other" })]);
});

test("readable JSON with rows that are none, twice the same, or of a version without rows is export_damaged", async () => {
  const document = JSON.parse((await jsonOf(source())).toString("utf8")) as object;
  for (const edit of [
    { version: 2, rows: {} },
    { version: 2, rows: [ROW, ROW] },
    { version: 1, rows: [ROW] },
  ]) {
    const bytes = Buffer.from(JSON.stringify({ ...document, ...edit }));
    expect(thrownBy(() => readExport(bytes))).toMatchObject({ code: "export_damaged" });
  }
});

test("readable JSON whose head has a tenant or metadata that no store could keep is export_damaged", async () => {
  const document = JSON.parse((await jsonOf(source())).toString("utf8")) as { head: object };
  for (const edit of [{ tenant: 5 }, { tenant: "a\u007fb" }, { metadata: { a: 1 } }, { metadata: "red" }]) {
    const bytes = Buffer.from(JSON.stringify({ ...document, head: { ...document.head, ...edit } }));
    expect(thrownBy(() => readExport(bytes))).toMatchObject({ code: "export_damaged" });
  }
});

const wrongHeads: readonly object[] = [
  { sessionId: "" },
  { revision: -1 },
  { leaf: 5 },
  { leaf: undefined },
  { turnIndex: "one" },
  { messageCount: 0.5 },
  { usage: undefined },
  { usage: { inputTokens: -1 } },
  { components: null },
  { components: [] },
  { components: { tools: 5 } },
  { operation: undefined },
  { lastCall: {} },
  { parent: null },
  { parent: { sessionId: "p" } },
  { frameId: 1 },
  { frames: {} },
  { frames: [null] },
  { frames: [{ frameId: "f" }] },
  { ledger: 5 },
  { ledger: { turn: 5 } },
  { ledger: [{ source: "turn" }] },
];
test.each(wrongHeads)("readable JSON whose head has %j is export_damaged, not a TypeError", async (edit) => {
  const document = JSON.parse((await jsonOf(source())).toString("utf8")) as { head: object };
  const read = (head: unknown) => readExport(Buffer.from(JSON.stringify({ ...document, head })));
  expect(read(document.head).head).toBeDefined();
  expect(thrownBy(() => read({ ...document.head, ...edit }))).toMatchObject({ code: "export_damaged" });
  expect(thrownBy(() => read([]))).toMatchObject({ code: "export_damaged" });
});

test("a session of a store that answers later is exported as one of a store that answers at once", async () => {
  const backend = source();
  addRows(backend);
  for (const form of [fileOf, jsonOf]) expect(await form(openLater({ seed: 1, backend }))).toEqual(await form(backend));
});
