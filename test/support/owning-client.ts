import type { Commit, JournalEntry } from "../../src/kernel/index.js";
import type { StoreClient } from "../../src/store/index.js";

/** A client that opens each session before it first writes to it, as a session worker does. */
export class OwningClient {
  readonly #client: StoreClient;
  readonly #epochs = new Map<string, number>();

  constructor(client: StoreClient) {
    this.#client = client;
  }

  /** Opens sessions, so that what is sent afterwards is sent at once. */
  async own(...sessionIds: readonly string[]): Promise<void> {
    for (const sessionId of sessionIds) {
      const { epoch } = await this.#client.open(sessionId, { take: "always", journal: false });
      this.#epochs.set(sessionId, epoch);
    }
  }

  async commit(commit: Commit) {
    return this.#client.commit({ ...commit, epoch: await this.#epochOf(commit.head.sessionId) });
  }

  async record(entry: Omit<JournalEntry, "epoch">) {
    return this.#client.record({ ...entry, epoch: await this.#epochOf(entry.sessionId) });
  }

  async #epochOf(sessionId: string): Promise<number> {
    if (!this.#epochs.has(sessionId)) await this.own(sessionId);
    return this.#epochs.get(sessionId) as number;
  }
}
