import type { MessagePort } from "node:worker_threads";
import type { Commit, Head, Message } from "../kernel/index.js";
import { Lane } from "../wire/index.js";
import type { CommitReceipt, StoreOptions } from "./contract.js";
import { isOnPath, readHistory } from "./history.js";
import { type LmdbReader, openLmdbReader } from "./lmdb.js";
import type { LoadedSession, StoreCalls } from "./protocol.js";

export interface StoreClientOptions {
  /** The other end of a port that the store worker has attached. */
  readonly port: MessagePort;
  /** The options the store worker was opened with. */
  readonly options: StoreOptions;
}

/**
 * The store as a session worker sees it. Commits go to the store worker. Reads of a store with a path are answered by
 * this thread, from the memory-mapped file; reads of a memory store go to the store worker as well.
 *
 * @example
 * const store = new StoreClient({ port, options: { path: "./data" } });
 * const { revision } = await store.commit(commit); // resolves when it is on the disk
 * const messages = await store.history((await store.head("chat-42"))?.leaf ?? null);
 */
export class StoreClient {
  readonly #lane: Lane;
  readonly #path: string | undefined;
  #opened: LmdbReader | undefined;

  constructor({ port, options }: StoreClientOptions) {
    this.#lane = new Lane(port, { name: "store worker" });
    this.#path = "path" in options ? options.path : undefined;
  }

  async head(sessionId: string): Promise<Head | undefined> {
    const reader = this.#reader();
    return reader === undefined ? ((await this.#call("head", sessionId)) ?? undefined) : reader.head(sessionId);
  }

  /** The messages up to and including node `leaf`, oldest first. */
  async history(leaf: string | null): Promise<readonly Message[]> {
    const reader = this.#reader();
    return reader === undefined ? this.#call("history", leaf) : readHistory(reader, leaf);
  }

  /** Is a node on the way from the root to `leaf`? */
  async onPath(leaf: string | null, node: string): Promise<boolean> {
    const reader = this.#reader();
    return reader === undefined ? this.#call("onPath", [leaf, node]) : isOnPath(reader, leaf, node);
  }

  /** Head and history together, or undefined when there is no such session. */
  async load(sessionId: string): Promise<LoadedSession | undefined> {
    const reader = this.#reader();
    if (reader === undefined) return (await this.#call("load", sessionId)) ?? undefined;
    const head = reader.head(sessionId);
    return head === undefined ? undefined : { head, history: readHistory(reader, head.leaf) };
  }

  async component(hash: string): Promise<Uint8Array | undefined> {
    const reader = this.#reader();
    return reader === undefined ? ((await this.#call("component", hash)) ?? undefined) : reader.component(hash);
  }

  async sessionIds(): Promise<readonly string[]> {
    const reader = this.#reader();
    return reader === undefined ? this.#call("sessionIds", null) : [...reader.sessionIds()];
  }

  /** Resolves when the commit is durable. Rejects with `head_conflict`, `session_exists`, `store_write_failed`, … */
  commit(commit: Commit): Promise<CommitReceipt> {
    return this.#call("commit", commit);
  }

  /** Commits without an answer reject with `worker_lost`; they may have been written. */
  close(): void {
    this.#lane.close();
    this.#opened?.close();
    this.#opened = undefined;
  }

  // No deadline: a late commit is still durable, so giving up early would only make its outcome unknown.
  #call<M extends keyof StoreCalls>(method: M, ask: StoreCalls[M]["ask"]): Promise<StoreCalls[M]["answer"]> {
    return this.#lane.call(method, ask);
  }

  #reader(): LmdbReader | undefined {
    if (this.#path !== undefined) this.#opened ??= openLmdbReader(this.#path);
    return this.#opened;
  }
}
