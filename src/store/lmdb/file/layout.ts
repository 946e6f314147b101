import type { Database, RootDatabase } from "lmdb";
import { fingerprint, type Head, type StoredHead, TroupeError } from "../../../kernel/index.js";
import { decode, encode } from "../../../wire/index.js";
import { seal, sealHead, TABLE_NAMES, type TableName } from "../../records/index.js";

/** The layout this release writes; docs/store-layout.md describes every version. */
export const LAYOUT_VERSION = 2;

export type Root = RootDatabase<Uint8Array, string>;
export type Table = Database<Uint8Array, string>;

export type Tables = Readonly<Record<TableName, Table>> & { readonly root: Root };

export const TABLE = { encoding: "binary", compression: false, cache: false } as const;

export function openTables(root: Root): Tables {
  const tables = Object.fromEntries(TABLE_NAMES.map((name) => [name, openTable(root, name)])) as Record<
    TableName,
    Table
  >;
  return { root, ...tables };
}

function openTable(root: Root, name: string): Table {
  const table: Table | undefined = root.openDB(name, TABLE);
  // In a read-only store a missing table comes back as undefined, against its declaration.
  if (table === undefined)
    throw new TroupeError("store_open_failed", `There is no store yet: table ${name} is missing.`);
  return table;
}

/** The bytes under a key, as a copy of their own. */
export function readBytes(table: Table, key: string): Uint8Array | undefined {
  // A copy LMDB gives away; as a plain byte array, because its own carries properties a reader must not depend on.
  const copy = table.getBinary(key);
  return copy === undefined ? undefined : new Uint8Array(copy.buffer, copy.byteOffset, copy.byteLength);
}

/**
 * The version of the layout a store has; undefined for a new one. One this release does not know is refused before any
 * of its tables is opened.
 */
export function readLayout(root: Root): number | undefined {
  // An option lmdb has and does not declare.
  const unlessMissing = { ...TABLE, create: false };
  const meta: Table | undefined = root.openDB("meta", unlessMissing);
  const bytes = meta === undefined ? undefined : readBytes(meta, "layout");
  return bytes === undefined ? undefined : checkLayout(bytes);
}

/** Reads the layout record, whose form never changes: every release must be able to say that it is too old. */
export function checkLayout(bytes: Uint8Array): number {
  const { version, check } = decode<{ readonly version: number; readonly check?: number }>(bytes);
  // Version 1 had no check. With it, a flipped bit cannot pass a new store off as an old one, to be migrated again.
  const isOurs = version === 1 ? check === undefined : version === LAYOUT_VERSION && check === checkOf(version);
  if (isOurs) return version;
  throw new TroupeError(
    "store_version_unknown",
    `This store has layout version ${version}; this release knows versions 1 to ${LAYOUT_VERSION}. Use the release that wrote it.`,
    { details: { found: version, known: LAYOUT_VERSION } },
  );
}

function checkOf(version: number): number {
  return fingerprint(`troupe layout ${version}`);
}

function recordLayout(meta: Table, version: number): void {
  meta.putSync("layout", encode({ version, check: checkOf(version) }));
}

/** The number of this opening of the store: larger than that of every one before. */
export function nextOpening(root: Root): number {
  const meta: Table = root.openDB("meta", TABLE);
  return root.transactionSync(() => {
    const bytes = readBytes(meta, "opening");
    const opening = (bytes === undefined ? 0 : decode<number>(bytes)) + 1;
    meta.putSync("opening", encode(opening));
    return opening;
  });
}

/**
 * Brings a store to this release's layout: one transaction for all steps, so a store is never between two versions.
 * `found`: what `readLayout` said.
 */
export function bringUpToDate(tables: Tables, found: number | undefined): void {
  if (found === LAYOUT_VERSION) return;
  const meta: Table = tables.root.openDB("meta", TABLE);
  tables.root.transactionSync(() => {
    for (let version = found ?? LAYOUT_VERSION; version < LAYOUT_VERSION; version++) STEPS[version]?.(tables);
    recordLayout(meta, LAYOUT_VERSION);
  });
}

/** From each version to the next. A record that cannot be read stays what it is: unreadable, not the whole store. */
const STEPS: Readonly<Record<number, (tables: Tables) => void>> = {
  // Heads got receipts; heads and segments got seals; tables journal and deleted are new.
  1: ({ heads, segments }) => {
    for (const key of [...heads.getKeys()]) rewrite(heads, key, sealFirstHead);
    for (const key of [...segments.getKeys()]) rewrite(segments, key, (bytes) => seal(bytes));
  },
};

function rewrite(table: Table, key: string, change: (bytes: Uint8Array) => Uint8Array): void {
  const bytes = readBytes(table, key);
  if (bytes !== undefined) table.putSync(key, change(bytes));
}

function sealFirstHead(bytes: Uint8Array): Uint8Array {
  let head: Head;
  try {
    head = decode<Head>(bytes);
  } catch {
    return bytes;
  }
  const stored: StoredHead = { head, at: 0, receipts: [fingerprint(head.operation), 0] };
  return sealHead(stored);
}
