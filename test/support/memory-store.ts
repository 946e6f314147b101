import { deferred } from "../../src/async/index.js";
import {
  type Commit,
  type CommitReceipt,
  type JournalEntry,
  type StoreWrite,
  TroupeError,
} from "../../src/kernel/index.js";
import { openMemory, readHistory, readTail } from "../../src/store/index.js";

/** A store in this thread, as a session uses it. Its writes can be made to fail, or to wait. */
export class MemoryStore {
  readonly backend = openMemory();
  readonly commits: Commit[] = [];
  /** Told of every commit before it is written: throws to refuse it, waits to hold it up. */
  onCommit: (commit: Commit, nth: number) => unknown = () => undefined;

  async head(sessionId: string) {
    return this.backend.head(sessionId);
  }

  async component(hash: string) {
    return this.backend.component(hash);
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
    return this.#write({ kind: "record", entry, at: 0 }) as never;
  }

  async clearJournal(clearing: { readonly sessionId: string; readonly expectedRevision: number }) {
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
