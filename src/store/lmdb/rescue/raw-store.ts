import { type Head, type JournalRow, type StoredHead, TroupeError } from "../../../kernel/index.js";
import { decode } from "../../../wire/index.js";
import type { StoreReader } from "../../records/index.js";
import {
  inOrder,
  journalRange,
  openComponent,
  openHead,
  openJournalRow,
  rightKey,
  sessionOfJournalKey,
  unseal,
} from "../../records/index.js";
import { checkLayout } from "../file/layout.js";
import { type Meta, type PageFile, PageProblem, type Tree } from "../file/pages.js";
import { FileWalk } from "../file/walk.js";

type Values = ReadonlyMap<string, () => Buffer>;

/**
 * A store read from its file without LMDB, as far as it can be read: for looking at stores that LMDB must not open. What
 * is damaged is left out and listed. Everything else is read as from an open store, seals and hashes included.
 */
export class RawStore implements StoreReader {
  /** What is wrong with the file itself. */
  readonly problems: readonly string[];
  readonly layout: number;
  /** How many sessions there should be. */
  readonly expectedSessions: number;
  /** The transaction that wrote this state. */
  readonly transaction: number;
  readonly #tables: ReadonlyMap<string, Values>;

  /** `meta`: the state to read, of the two a file has. */
  constructor(file: PageFile, meta: Meta) {
    this.transaction = meta.transaction;
    const walk = new FileWalk(file, meta, { tolerant: true });
    const trees = walk.tables();
    const metaTree = trees.get("meta");
    if (metaTree === undefined) throw new PageProblem("it does not say which layout it has");
    this.layout = layoutIn(valuesOf(walk, "meta", metaTree, (key) => key));
    const tables = new Map<string, Values>();
    for (const [name, tree] of trees) {
      if (name !== "meta")
        tables.set(
          name,
          valuesOf(walk, name, tree, (key, bytes) => this.#place(name, key, bytes)),
        );
    }
    walk.checkFreePages();
    this.expectedSessions = trees.get("heads")?.entries ?? 0;
    this.problems = walk.problems;
    this.#tables = tables;
  }

  storedHead(sessionId: string): StoredHead | undefined {
    const bytes = this.#bytes("heads", sessionId);
    if (bytes === undefined) return undefined;
    return this.layout === 1 ? { head: decode<Head>(bytes), receipts: [] } : openHead(sessionId, bytes);
  }

  head(sessionId: string): Head | undefined {
    return this.storedHead(sessionId)?.head;
  }

  segment(id: string): Uint8Array | undefined {
    const bytes = this.#bytes("segments", id);
    return bytes && (this.layout === 1 ? bytes : unseal(bytes));
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

  isDeleted(sessionId: string): boolean {
    return this.#tables.get("deleted")?.has(sessionId) === true;
  }

  sessionIds(): string[] {
    return this.keys("heads");
  }

  /** Sessions that have a journal. */
  journalIds(): string[] {
    return [...new Set([...(this.#tables.get("journal")?.keys() ?? [])].map(sessionOfJournalKey))];
  }

  sessionCount(): number {
    return this.keys("heads").length;
  }

  keys(table: "heads" | "segments" | "components" | "deleted"): string[] {
    return [...(this.#tables.get(table)?.keys() ?? [])];
  }

  #place(table: string, key: string, bytes: Uint8Array): string {
    return this.layout === 1 ? key : rightKey(table, key, bytes);
  }

  #bytes(table: string, key: string): Uint8Array | undefined {
    const bytes = this.#tables.get(table)?.get(key)?.();
    // A plain byte array: what is decoded from a Buffer has Buffers in it.
    return bytes && new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }
}

/** `place`: the key a value belongs under. */
function valuesOf(walk: FileWalk, name: string, tree: Tree, place: (key: string, bytes: Uint8Array) => string): Values {
  const values = new Map<string, () => Buffer>();
  walk.walk(name, tree, ({ key, value }) => values.set(place(key.toString("utf8"), value()), value));
  return values;
}

function layoutIn(meta: Values): number {
  const bytes = meta.get("layout")?.();
  if (bytes === undefined) throw new PageProblem("it does not say which layout it has");
  return checkLayout(bytes);
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
        if (error instanceof PageProblem || isDamage(error)) return [];
        throw error;
      }
    });
}

function isDamage(error: unknown): boolean {
  return error instanceof TroupeError && error.code === "snapshot_damaged";
}
