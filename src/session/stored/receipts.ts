import { Serial } from "../../async/index.js";
import { type AppendRequest, type AppendResult, TroupeError } from "../../kernel/index.js";
import { contentHash, decode, encode } from "../../wire/index.js";
import type { OperationReceipt } from "../calls/index.js";
import type { ComponentReader } from "./components.js";
import { formerComponentOf, type SessionRows, TABLE } from "./session-rows.js";

/** Whoever asks again does so soon: older receipts make room. */
const MAX_RECEIPTS = 64;

interface Kept {
  readonly key: string;
  /** Of the operation, or `append`. */
  readonly name: string;
  /** What was to be appended, as a hash. */
  readonly content?: string;
  readonly receipt: OperationReceipt | AppendResult;
}

/** What came of the last things that were asked for under a key, so that asking again does nothing twice. */
export class Receipts {
  readonly #rows: SessionRows;
  readonly #stored: () => ComponentReader;
  #kept: readonly Kept[] | undefined;
  /** Appends under a key wait for each other: who asks again meanwhile finds it done. */
  readonly #appends = new Serial();

  /** `stored`: reads what an older release stored. */
  constructor(rows: SessionRows, stored: () => ComponentReader) {
    this.#rows = rows;
    this.#stored = stored;
  }

  /** What an operation came to that was asked for under this key before. */
  async operation(key: string, name: string): Promise<OperationReceipt | undefined> {
    return (await this.#find(key, name))?.receipt as OperationReceipt | undefined;
  }

  /** Stored with the operation's own write. It was looked for before, so the others are known. */
  keepOperation(key: string, name: string, receipt: OperationReceipt): void {
    this.#keep({ key, name, receipt });
  }

  /** Appends once: asked for again, it answers as it did the first time, although the session may have moved on. */
  append(key: string, request: AppendRequest, run: (keep: KeepAppend) => Promise<AppendResult>): Promise<AppendResult> {
    return this.#appends.run(async () => {
      const content = contentHash(encode([request.nodes, request.requiresAncestorNodeId ?? null]));
      const done = await this.#find(key, APPEND, content);
      if (done !== undefined) return done.receipt as AppendResult;
      try {
        return await run((receipt) => this.#keep({ key, name: APPEND, content, receipt }));
      } catch (error) {
        this.#drop(key);
        throw error;
      }
    });
  }

  async #find(key: string, name: string, content?: string): Promise<Kept | undefined> {
    const known = (await this.#load()).find((entry) => entry.key === key);
    if (known === undefined || (known.name === name && known.content === content)) return known;
    const before = known.name === name ? "something else" : known.name;
    throw new TroupeError("operation_key_conflict", `Key ${key} was used for ${before} before, not for this ${name}.`, {
      details: { key, name: known.name },
    });
  }

  #keep(kept: Kept): void {
    this.#become([...(this.#kept ?? []), kept].slice(-MAX_RECEIPTS));
  }

  /** Nothing was stored. */
  #drop(key: string): void {
    const rest = this.#kept?.filter((entry) => entry.key !== key);
    if (rest !== undefined && rest.length !== this.#kept?.length) this.#become(rest);
  }

  #become(kept: readonly Kept[]): void {
    this.#kept = kept;
    this.#rows.change(ALL, encode(kept));
  }

  async #load(): Promise<readonly Kept[]> {
    if (this.#kept === undefined) {
      const reader = this.#stored();
      const [row] = reader.isStored ? await this.#rows.load(1) : [];
      const bytes = row?.value ?? (await reader.bytes(FORMER));
      this.#kept ??= bytes === undefined ? [] : decode<readonly Kept[]>(bytes);
    }
    return this.#kept;
  }
}

/** Called where the append's write is planned, so that both are stored together. */
export type KeepAppend = (result: AppendResult) => void;

const APPEND = "append";
/** They are one row. */
const ALL = "";
const FORMER = formerComponentOf({ table: TABLE.receipts, key: ALL }) as string;
