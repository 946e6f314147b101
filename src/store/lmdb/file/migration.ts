import { fingerprint, type Head, placeOf, type StoredHead } from "../../../kernel/index.js";
import { decode } from "../../../wire/index.js";
import { childKey, openHead, placeOfSession, seal, sealHead } from "../../records/index.js";
import {
  LAYOUT_VERSION,
  type Layout,
  type MigrationMark,
  openTables,
  type Root,
  readBytes,
  readLayout,
  recordLayout,
  type Table,
  type Tables,
} from "./layout.js";
import type { MigrationProgress } from "./layout-version.js";
import { unlessTold } from "./open-errors.js";
import { openRoot } from "./root.js";

/** Records looked at in one transaction, and the bytes after which it ends earlier. */
const STEP = 1_000;
const STEP_BYTES = 16 * 1024 * 1024;

/** What is done to every record of one table; one that cannot be read stays what it is: unreadable, not the whole store. */
interface Phase {
  readonly from: number;
  readonly table: MigrationMark["table"];
  readonly change: (tables: Tables, key: string, bytes: Uint8Array) => void;
}

/** In order, for a store of version 1. Later versions begin with the first phase of their own. */
const PHASES: readonly Phase[] = [
  // 1 to 2: heads got receipts; heads and segments got seals; tables journal and deleted are new.
  { from: 1, table: "heads", change: ({ heads }, key, bytes) => heads.putSync(key, sealFirstHead(bytes)) },
  { from: 1, table: "segments", change: ({ segments }, key, bytes) => segments.putSync(key, seal(bytes)) },
  // 2 to 3: sessions got places in lists; table rows is new.
  { from: 2, table: "heads", change: placeHead },
];

/**
 * Brings a store to this release's layout, one transaction at each step: the first one writes the new version and how far
 * it is, each other moves that mark with what it changes, and the last removes it. So it can end between any two steps,
 * and whoever opens the store next goes on there. `found`: what `readLayout` said.
 *
 * @example
 * for (const { done, total } of migrating(tables, readLayout(root))) console.log(done, total);
 */
export function* migrating(tables: Tables, found: Layout | undefined): Generator<MigrationProgress> {
  const { root } = tables;
  if (found !== undefined && found.version === LAYOUT_VERSION && found.migration === undefined) return;
  let mark = found?.migration;
  if (mark === undefined) {
    mark = found && firstMark(tables, found.version);
    root.transactionSync(() => record(root, mark));
  }
  while (mark !== undefined) {
    yield { done: mark.done, total: mark.total };
    const now: MigrationMark = mark;
    mark = root.transactionSync(() => takeStep(tables, now));
  }
}

/** The same for the store of a folder that nobody has open. */
export function* migratingFolder(path: string): Generator<MigrationProgress> {
  const root = openRoot(path, { readOnly: false });
  try {
    const found = readLayout(root);
    yield* migrating(openTables(root), found);
  } catch (error) {
    throw unlessTold(path, error, "It cannot be brought up to date. Nothing is lost; try again to go on.");
  } finally {
    root.close();
  }
}

function record(root: Root, migration: MigrationMark | undefined): void {
  recordLayout(root, { version: LAYOUT_VERSION, ...(migration !== undefined && { migration }) });
}

function firstMark(tables: Tables, version: number): MigrationMark | undefined {
  const phases = PHASES.filter(({ from }) => from >= version);
  const total = phases.reduce((sum, { table }) => sum + sizeOf(tables[table]), 0);
  const [first] = phases;
  return first && { from: first.from, table: first.table, key: null, done: 0, total };
}

/** Inside of a transaction: changes the next records, and says where that ended. */
function takeStep(tables: Tables, mark: MigrationMark): MigrationMark | undefined {
  const place = placeAmongPhases(mark);
  const { table: name, change } = PHASES[place] as Phase;
  const table = tables[name];
  // The range begins with the key itself, which is done already.
  const range = mark.key === null ? { limit: STEP } : { start: mark.key, limit: STEP + 1 };
  const keys = [...table.getKeys(range)].filter((key) => key !== mark.key).slice(0, STEP);
  let [last, done, size] = [mark.key, 0, 0];
  for (const key of keys) {
    const bytes = readBytes(table, key) as Uint8Array;
    change(tables, key, bytes);
    last = key;
    done++;
    size += bytes.length;
    if (size >= STEP_BYTES) break;
  }
  const moved = { ...mark, done: mark.done + done };
  const next = done < STEP && done === keys.length ? nextPhase(moved, PHASES[place + 1]) : { ...moved, key: last };
  record(tables.root, next);
  return next;
}

function nextPhase(mark: MigrationMark, phase: Phase | undefined): MigrationMark | undefined {
  return phase && { ...mark, from: phase.from, table: phase.table, key: null };
}

function placeAmongPhases(one: Pick<MigrationMark, "from" | "table">): number {
  return PHASES.findIndex(({ from, table }) => from === one.from && table === one.table);
}

function sizeOf(table: Table): number {
  // The declaration says `{}`.
  return (table.getStats() as { readonly entryCount: number }).entryCount;
}

function sealFirstHead(bytes: Uint8Array): Uint8Array {
  let head: Head;
  try {
    head = decode<Head>(bytes);
  } catch {
    return bytes;
  }
  return sealHead({ head, at: 0, receipts: [fingerprint(head.operation), 0] });
}

/** Releases before did not say when a head was written, so it stands at the time 0. */
function placeHead({ order, children }: Tables, sessionId: string, bytes: Uint8Array): void {
  let stored: StoredHead;
  try {
    stored = openHead(sessionId, bytes);
  } catch {
    return;
  }
  const place = placeOf(stored);
  order.putSync(placeOfSession(sessionId, place.order), NO_VALUE);
  if (place.parent !== undefined) children.putSync(childKey(place.parent, sessionId), NO_VALUE);
}

const NO_VALUE = new Uint8Array();

/** Has a record its seal, in a store that may be on its way from version 1? */
export function isSealed(layout: Layout, table: string, key: string): boolean {
  return (table !== "heads" && table !== "segments") || isBehind(layout, { from: 1, table }, key);
}

/** Has a session its places in lists, in a store that may be on its way from an older version? */
export function isPlaced(layout: Layout, sessionId: string): boolean {
  return isBehind(layout, { from: 2, table: "heads" }, sessionId);
}

/** Is a phase over for a record? */
function isBehind({ version, migration }: Layout, phase: Pick<MigrationMark, "from" | "table">, key: string): boolean {
  if (migration === undefined) return version > phase.from;
  const [now, asked] = [placeAmongPhases(migration), placeAmongPhases(phase)];
  if (now !== asked) return asked < now;
  return migration.key !== null && Buffer.compare(Buffer.from(key), Buffer.from(migration.key)) <= 0;
}
