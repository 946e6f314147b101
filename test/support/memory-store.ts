import { deferred } from "../../src/async/index.js";
import {
  type Commit,
  type CommitReceipt,
  type JournalClearing,
  type JournalEntry,
  type RowsReceipt,
  type RowsWrite,
  type StoreWrite,
  TroupeError,
} from "../../src/kernel/index.js";
import { openMemory, readHistory, readTail } from "../../src/store/index.js";
import type { OrderRange, RowRange } from "../../src/store/records/contract.js";
import { OPENINGS } from "../../src/store/thread/store-calls.js";

/** A store in this thread, as a session uses it. Its writes can be made to fail, or to wait. */
export class MemoryStore {
  readonly backend = openMemory();
  readonly commits: Commit[] = [];
  /** Told of every commit before it is written: throws to refuse it, waits to hold it up. */
  onCommit: (commit: Commit, nth: number) => unknown = () => undefined;

  /** Who opens sessions now: the worker the store is seen from. */
  owner = "a worker";

  /** Makes somebody the session's owner and reads it, as a session worker does. */
  async open(sessionId: string, { take, journal }: { readonly take: "always" | "free"; readonly journal: boolean }) {
    const epoch = this.backend.claim(sessionId, { owner: this.owner, take });
    const head = this.backend.head(sessionId);
    const opening = this.backend.row({ table: OPENINGS, session: sessionId, key: "" });
    const components = await this.components(Object.values(head?.components ?? {}));
    return { epoch, head, journal: journal ? this.backend.journal(sessionId) : [], components, opening };
  }

  /** The epoch of a session that nobody opened: it is claimed as a worker would. */
  claim(sessionId: string): number {
    return this.backend.claim(sessionId, { owner: "a worker", take: "always" });
  }

  release(sessionId: string, epoch: number): void {
    this.backend.release(sessionId, epoch);
  }

  async head(sessionId: string) {
    return this.backend.head(sessionId);
  }

  async component(hash: string) {
    return this.backend.component(hash);
  }

  async components(hashes: readonly string[]) {
    const found = hashes.map((hash) => [hash, this.backend.component(hash)] as const);
    return new Map(found.filter((pair): pair is readonly [string, Uint8Array] => pair[1] !== undefined));
  }

  async componentSize(hash: string) {
    return this.backend.componentSize(hash);
  }

  async rows(range: RowRange) {
    return this.backend.rows(range);
  }

  async rowsInOrder(range: OrderRange) {
    return this.backend.rowsInOrder(range);
  }

  async changeRows(write: Omit<RowsWrite, "kind">) {
    return this.#write({ kind: "rows", ...write }) as RowsReceipt;
  }

  async history(leaf: string | null) {
    return readHistory(this.backend, leaf);
  }

  async tail(leaf: string | null, count: number) {
    return readTail(this.backend, leaf, count);
  }

  async journal(sessionId: string) {
    return this.backend.journal(sessionId);
  }

  async commit(commit: Commit) {
    this.commits.push(commit);
    await this.onCommit(commit, this.commits.length);
    return this.#write({ kind: "commit", commit }) as CommitReceipt;
  }

  async record(entry: JournalEntry) {
    return this.#write({ kind: "record", entry }) as never;
  }

  async clearJournal(clearing: JournalClearing) {
    this.#write({ kind: "clear", ...clearing });
  }

  /** Holds the next commit up until it is let go. */
  holdNext(): { readonly reached: Promise<void>; readonly letGo: () => void } {
    const reached = deferred();
    const go = deferred();
    const before = this.onCommit;
    this.onCommit = () => {
      this.onCommit = before;
      reached.resolve();
      return go.promise;
    };
    return { reached: reached.promise, letGo: go.resolve };
  }

  #write(write: StoreWrite): unknown {
    const [result] = this.backend.write([write]);
    if (result?.ok !== true) throw result?.error;
    return result.receipt;
  }
}

/** What a full disk says. */
export const diskFull = () => new TroupeError("store_write_failed", "The disk is full.", { retryable: true });
