import { isRecord, type Row, type RowChange, type RowWrite } from "../../kernel/index.js";
import type { PluginManifest } from "../../plugin/index.js";
import { OPENINGS, type StoreClient } from "../../store/index.js";
import { decode, encode } from "../../wire/index.js";
import type { SessionPluginOptions } from "../calls/index.js";

/** Tables with rows of sessions. */
export const TABLE = {
  /** The last turns that were named by a key, each in a place of its own. */
  turnKeys: "turn_keys",
  /** What operations that were named by a key came to. */
  receipts: "receipts",
} as const;

interface SessionRowsParts {
  readonly store: Pick<StoreClient, "rows">;
  readonly sessionId: string;
  readonly table: string;
}

/** The rows a session has in one table. What changed is written with the session's next write. */
export class SessionRows {
  readonly #parts: SessionRowsParts;
  readonly #unwritten = new Map<string, Uint8Array | null>();

  constructor(parts: SessionRowsParts) {
    this.#parts = parts;
  }

  get table(): string {
    return this.#parts.table;
  }

  get dirty(): boolean {
    return this.#unwritten.size > 0;
  }

  /** As they are stored. */
  load(limit: number): Promise<readonly Row[]> {
    const { store, table, sessionId: session } = this.#parts;
    return store.rows({ table, session, limit });
  }

  /** Null: there is no such row any more. */
  change(key: string, value: Uint8Array | null): void {
    this.#unwritten.set(key, value);
  }

  encode(): RowChange[] {
    const { table, sessionId: session } = this.#parts;
    return [...this.#unwritten].map(([key, value]) => ({ table, session, key, value }));
  }

  /** A row that was changed again meanwhile stays unwritten. */
  written(changes: readonly RowWrite[]): void {
    for (const change of changes) {
      const { table, key } = change;
      if (table === this.table && "value" in change && this.#unwritten.get(key) === change.value)
        this.#unwritten.delete(key);
    }
  }
}

/**
 * What the session's last opening gave it, without what a plugin calls secret: who takes up what it began has it from
 * here. It is no reason to write by itself, but goes with whatever is written or recorded next.
 */
export class KeptOpening extends SessionRows {
  /** `stored`: what the opening before left; undefined for a session that keeps none. */
  constructor(parts: Omit<SessionRowsParts, "table">, stored: Row | undefined, kept: SessionPluginOptions) {
    super({ ...parts, table: OPENINGS });
    const nothing = Object.keys(kept).length === 0;
    const value = nothing ? null : encode(kept);
    const before = stored?.value ?? null;
    const same = value === null || before === null ? value === before : Buffer.compare(value, before) === 0;
    if (!same) this.change("", value);
  }
}

export function optionsOfOpening(stored: Row | undefined): SessionPluginOptions | undefined {
  return stored && decode<SessionPluginOptions>(stored.value);
}

/** What of these options may be stored: without the fields that a plugin calls secret. */
export function withoutSecrets(
  options: SessionPluginOptions,
  plugins: readonly Pick<PluginManifest, "id" | "secretOptions">[],
): SessionPluginOptions {
  const kept = { ...options };
  for (const { id, secretOptions } of plugins) {
    const given = kept[id];
    if (secretOptions === undefined || !isRecord(given)) continue;
    kept[id] = Object.fromEntries(Object.entries(given).filter(([name]) => !secretOptions.includes(name)));
  }
  return kept;
}

/** The component an older release kept a row's content in: it goes when the row is written. */
export function formerComponentOf({ table, key }: Pick<RowChange, "table" | "key">): string | undefined {
  if (table === TABLE.turnKeys) return `turn:${key}`;
  return table === TABLE.receipts ? "receipts" : undefined;
}
