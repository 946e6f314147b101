import type { Commit, Head } from "../kernel/index.js";
import type { CommitResult, StoreBackend } from "./contract.js";
import { planBatch, recordsOf, writeFailed } from "./plan.js";

/**
 * A store that lives as long as its thread: for tests, and for hosts that keep their sessions elsewhere.
 *
 * @example
 * const backend = openMemory();
 * backend.commit([{ head, expectedRevision: 0, components: [] }]);
 */
export function openMemory(): StoreBackend {
  return new MemoryBackend();
}

class MemoryBackend implements StoreBackend {
  readonly #heads = new Map<string, Head>();
  readonly #segments = new Map<string, Uint8Array>();
  readonly #components = new Map<string, Uint8Array>();
  readonly writes = { transactions: 0, records: 0 };

  commit(batch: readonly Commit[]): CommitResult[] {
    try {
      const { results, accepted } = planBatch((id) => this.#heads.get(id), batch);
      if (accepted.length > 0) this.#write(accepted);
      return results;
    } catch (cause) {
      return writeFailed(batch, cause);
    }
  }

  head(sessionId: string): Head | undefined {
    return this.#heads.get(sessionId);
  }

  segment(id: string): Uint8Array | undefined {
    return this.#segments.get(id);
  }

  component(hash: string): Uint8Array | undefined {
    return this.#components.get(hash);
  }

  sessionIds(): string[] {
    return [...this.#heads.keys()].sort(byUtf8);
  }

  sessionCount(): number {
    return this.#heads.size;
  }

  close(): void {
    this.#heads.clear();
    this.#segments.clear();
    this.#components.clear();
  }

  #write(accepted: readonly Commit[]): void {
    // Everything that can throw happens before the first map changes: that is this backend's transaction.
    const segments = accepted.flatMap(({ segment }) =>
      segment === undefined ? [] : [[segment.id, segment.bytes] as const],
    );
    const components = accepted.flatMap((commit) => commit.components.map(({ hash, bytes }) => [hash, bytes] as const));
    for (const [id, bytes] of segments) this.#segments.set(id, bytes);
    for (const [hash, bytes] of components) this.#components.set(hash, bytes);
    for (const { head } of accepted) this.#heads.set(head.sessionId, head);
    this.writes.transactions++;
    for (const commit of accepted) this.writes.records += recordsOf(commit);
  }
}

/** The order LMDB keeps its keys in; JavaScript's own differs beyond the basic plane. */
function byUtf8(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
