import { type Head, type JournalRow, type Row, type StoredHead, TroupeError } from "../../../kernel/index.js";
import { decode } from "../../../wire/index.js";
import {
  inOrder,
  journalRange,
  openComponent,
  openHead,
  openJournalRow,
  openRow,
  rightKey,
  sessionOfJournalKey,
  type TableName,
  unseal,
} from "../../records/index.js";
import { checkLayout, openOpening } from "../file/layout.js";
import type { Layout } from "../file/layout-version.js";
import { isPlaced, isSealed } from "../file/migration.js";
import { type Meta, type PageFile, PageProblem, type Tree } from "../file/pages.js";
import { FileWalk } from "../file/walk.js";

type Values = ReadonlyMap<string, () => Buffer>;

/**
 * A store read from its file without LMDB, as far as it can be read: for looking at stores that LMDB must not open. What
 * is damaged is left out and listed. Everything else is read as from an open store, seals and hashes included.
 */
export class RawStore {
  /** What is wrong with the file itself. */
  readonly problems: readonly string[];
  readonly layout: Layout;
  /** The number of the store's last opening; undefined when it cannot be read. 0: it had none. */
  readonly opening: number | undefined;
  /** How many sessions there should be. */
  readonly expectedSessions: number;
  /** The transaction that wrote this state. */
  readonly transaction: number;
  readonly #tables: ReadonlyMap<string, Values>;

  /** `state`: the one to read, of the two a file has. */
  constructor(file: PageFile, state: Meta) {
    this.transaction = state.transaction;
    const walk = new FileWalk(file, state, { tolerant: true });
    const trees = walk.tables();
    const meta = trees.get("meta");
    const own = meta && valuesOf(walk, "meta", meta, (key) => key).values;
    const layout = own?.get("layout");
    if (own === undefined || layout === undefined) throw new PageProblem("it does not say which layout it has");
    this.layout = checkLayout(layout());
    this.opening = openingIn(own);
    const tables = new Map<string, Values>();
    let expectedSessions = 0;
    for (const [name, tree] of trees) {
      if (name === "meta") continue;
      const place = (key: string, bytes: Uint8Array) =>
        isSealed(this.layout, name, key) ? rightKey(name, key, bytes) : key;
      const { values, expected } = valuesOf(walk, name, tree, place);
      tables.set(name, values);
      if (name === "heads") expectedSessions = expected;
    }
    walk.checkFreePages();
    this.expectedSessions = expectedSessions;
    this.problems = walk.problems;
    this.#tables = tables;
  }

  storedHead(sessionId: string): StoredHead | undefined {
    const bytes = this.#bytes("heads", sessionId);
    if (bytes === undefined) return undefined;
    if (isSealed(this.layout, "heads", sessionId)) return openHead(sessionId, bytes);
    return { head: decode<Head>(bytes), at: 0, receipts: [] };
  }

  head(sessionId: string): Head | undefined {
    return this.storedHead(sessionId)?.head;
  }

  segment(id: string): Uint8Array | undefined {
    const bytes = this.#bytes("segments", id);
    return bytes && (isSealed(this.layout, "segments", id) ? unseal(bytes) : bytes);
  }

  component(hash: string): Uint8Array | undefined {
    const bytes = this.#bytes("components", hash);
    return bytes && openComponent(hash, bytes);
  }

  journal(sessionId: string): readonly JournalRow[] {
    const { start } = journalRange(sessionId);
    const rows: JournalRow[] = [];
    for (const [key, value] of this.#tables.get("journal") ?? []) {
      if (key.startsWith(start)) rows.push(openJournalRow(key, value()));
    }
    return inOrder(sessionId, rows);
  }

  sessionIds(): string[] {
    return this.keys("heads");
  }

  /** Sessions that have a journal. */
  journalIds(): string[] {
    return [...new Set([...(this.#tables.get("journal")?.keys() ?? [])].map(sessionOfJournalKey))];
  }

  /** Should the session have its places in lists? */
  isPlaced(sessionId: string): boolean {
    return isPlaced(this.layout, sessionId);
  }

  /** The row under a key of table `rows`. */
  rowAt(key: string): Row {
    return openRow(key, this.#bytes("rows", key) as Uint8Array);
  }

  has(table: TableName, key: string): boolean {
    return this.#tables.get(table)?.has(key) ?? false;
  }

  keys(table: TableName): string[] {
    return [...(this.#tables.get(table)?.keys() ?? [])];
  }

  #bytes(table: string, key: string): Uint8Array | undefined {
    const bytes = this.#tables.get(table)?.get(key)?.();
    // A plain byte array: what is decoded from a Buffer has Buffers in it.
    return bytes && new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }
}

function openingIn(meta: Values): number | undefined {
  const bytes = meta.get("opening")?.();
  if (bytes === undefined) return 0;
  try {
    return openOpening(bytes);
  } catch {
    return undefined;
  }
}

/** `place`: the key a value belongs under. `expected`: how many values there should be. */
function valuesOf(
  walk: FileWalk,
  name: string,
  tree: Tree,
  place: (key: string, bytes: Uint8Array) => string,
): { readonly values: Values; readonly expected: number } {
  const values = new Map<string, () => Buffer>();
  const expected = walk.walk(name, tree, ({ key, value }) => values.set(place(key.toString("utf8"), value()), value));
  return { values, expected };
}

/** The states of a file that can be read at all, newest first. */
export function statesOf(file: PageFile): RawStore[] {
  const metas = file.metas().filter((meta) => !(meta instanceof PageProblem)) as Meta[];
  return metas
    .sort((a, b) => b.transaction - a.transaction)
    .flatMap((meta) => {
      try {
        return [new RawStore(file, meta)];
      } catch (error) {
        const isDamage = error instanceof TroupeError && error.code === "snapshot_damaged";
        if (error instanceof PageProblem || isDamage) return [];
        throw error;
      }
    });
}

/**
 * The states of a damaged store together. A file has its newest state and the one before it; what is lost in the one is
 * often whole in the other. Segments and components never change, so either will do; a head of the older state is an
 * earlier state of its session.
 */
export class Salvage {
  readonly #states: readonly RawStore[];

  constructor(states: readonly RawStore[]) {
    this.#states = states;
  }

  storedHead(sessionId: string): StoredHead | undefined {
    return this.#first((state) => state.storedHead(sessionId));
  }

  /** Is only an earlier state of the session left? */
  isOlder(sessionId: string): boolean {
    try {
      return this.#states[0]?.storedHead(sessionId) === undefined;
    } catch {
      return true;
    }
  }

  segment(id: string): Uint8Array | undefined {
    return this.#first((state) => state.segment(id));
  }

  component(hash: string): Uint8Array | undefined {
    return this.#first((state) => state.component(hash));
  }

  componentIfWhole(hash: string): Uint8Array | undefined {
    try {
      return this.component(hash);
    } catch {
      return undefined;
    }
  }

  /** Only the newest: an older one may lack what was done last, and it would be done again. */
  journal(sessionId: string): readonly JournalRow[] {
    return this.#states[0]?.journal(sessionId) ?? [];
  }

  /**
   * Sessions of the newest state, and those that vanished from it without having been deleted: they are in the older
   * one, or something of their history is there and nothing says that the heads are whole.
   */
  sessionIds(): string[] {
    const deleted = new Set(this.deletedIds());
    const ids = this.#states.flatMap((state) => state.sessionIds());
    const isDamaged = this.#states.some(({ problems }) => problems.length > 0);
    if (isDamaged) {
      for (const state of this.#states) for (const id of state.keys("segments")) ids.push(ownerOf(id));
    }
    return [...new Set(ids)].filter((id) => !deleted.has(id)).sort();
  }

  /** As for journals, only the newest. */
  journalIds(): string[] {
    return this.#states[0]?.journalIds() ?? [];
  }

  deletedIds(): string[] {
    return this.#states[0]?.keys("deleted") ?? [];
  }

  /** Only the newest, as for journals: an older one may still have what was done and taken away. */
  rowKeys(): string[] {
    return this.#states[0]?.keys("rows") ?? [];
  }

  /** A row, if it is whole. */
  rowAt(key: string): Row | undefined {
    try {
      return this.#states[0]?.rowAt(key);
    } catch {
      return undefined;
    }
  }

  /** Larger than at every opening there was, or the last one's own number. */
  opening(): number {
    const known = this.#states.flatMap(({ opening }) => opening ?? []);
    return known.length === 0 ? AFTER_ALL_OPENINGS : Math.max(...known);
  }

  /** The first answer; when none has one, the first error. */
  #first<T>(ask: (state: RawStore) => T | undefined): T | undefined {
    const errors: unknown[] = [];
    for (const state of this.#states) {
      try {
        const answer = ask(state);
        if (answer !== undefined) return answer;
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw errors[0];
    return undefined;
  }
}

/** More often than that no store was opened, and as many openings are left behind it. */
const AFTER_ALL_OPENINGS = 2 ** 20;

/** The session a segment is named after. */
export function ownerOf(segment: string): string {
  return segment.slice(0, segment.lastIndexOf("@"));
}
