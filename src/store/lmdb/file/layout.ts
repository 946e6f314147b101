import type { Database, RootDatabase } from "lmdb";
import { fingerprint, TroupeError } from "../../../kernel/index.js";
import { decode, encode } from "../../../wire/index.js";
import { seal, TABLE_NAMES, type TableName, unseal } from "../../records/index.js";
import type { Layout, MigrationMark } from "./layout-version.js";
import { damagedStore } from "./open-errors.js";

/** The layout this release writes; docs/store-layout.md describes every version. */
export const LAYOUT_VERSION = 3;
const KNOWN: readonly unknown[] = [1, 2, LAYOUT_VERSION];

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
  if (table === undefined) throw new Error(`table ${name} is missing`);
  return table;
}

/** The bytes under a key, as a copy of their own. */
export function readBytes(table: Table, key: string): Uint8Array | undefined {
  // A copy LMDB gives away; as a plain byte array, because its own carries properties a reader must not depend on.
  const copy = table.getBinary(key);
  return copy === undefined ? undefined : new Uint8Array(copy.buffer, copy.byteOffset, copy.byteLength);
}

export type { Layout, MigrationMark };

/**
 * The layout a store has; undefined for a new one. One this release does not know is refused before any of its tables is
 * opened.
 */
export function readLayout(root: Root): Layout | undefined {
  // An option lmdb has and does not declare.
  const unlessMissing = { ...TABLE, create: false };
  const meta: Table | undefined = root.openDB("meta", unlessMissing);
  const bytes = meta === undefined ? undefined : readBytes(meta, "layout");
  return bytes === undefined ? undefined : checkLayout(bytes);
}

/**
 * Reads the layout record. `version` and `check` stand in it for ever: every release must be able to say that it is too
 * old. A store that is being migrated says the version it will have, so that older releases leave it alone.
 */
export function checkLayout(bytes: Uint8Array): Layout {
  const { version, check, migration } = decode<Layout & { readonly check?: number }>(bytes);
  const layout: Layout = { version, ...(migration !== undefined && { migration }) };
  // Version 1 had no check. With it, a flipped bit cannot pass a new store off as an old one, to be migrated again.
  const isKnown = version === 1 ? check === undefined : KNOWN.includes(version) && check === checkOf(layout);
  if (isKnown) return layout;
  throw new TroupeError(
    "store_version_unknown",
    `This store has layout version ${version}; this release knows versions 1 to ${LAYOUT_VERSION}. Use the release that wrote it.`,
    { details: { found: version, known: LAYOUT_VERSION } },
  );
}

function checkOf({ version, migration }: Layout): number {
  if (migration === undefined) return fingerprint(`troupe layout ${version}`);
  const { from, table, key, done, total } = migration;
  return fingerprint(`troupe layout ${version} from ${JSON.stringify([from, table, key, done, total])}`);
}

export function recordLayout(root: Root, layout: Layout): void {
  const meta: Table = root.openDB("meta", TABLE);
  meta.putSync("layout", encode({ ...layout, check: checkOf(layout) }));
}

const OPENING = "opening";

/** Inside of a transaction: counts this opening of the store. Its number is larger than that of every one before. */
export function nextOpening(root: Root): number {
  const meta: Table = root.openDB("meta", TABLE);
  const bytes = readBytes(meta, OPENING);
  const opening = (bytes === undefined ? 0 : openOpening(bytes)) + 1;
  recordOpening(root, opening);
  return opening;
}

export function recordOpening(root: Root, opening: number): void {
  const meta: Table = root.openDB("meta", TABLE);
  meta.putSync(OPENING, seal(encode(opening), OPENING));
}

/** Sealed: with a smaller number, epochs that an earlier opening gave out would be given out again. */
export function openOpening(bytes: Uint8Array): number {
  try {
    return decode<number>(unseal(bytes, OPENING));
  } catch (cause) {
    throw damagedStore("How often this store was opened cannot be read", { cause });
  }
}
