import type { Head, JournalRow, StoredHead } from "../../../kernel/index.js";
import type { StoreReader } from "../../records/index.js";
import type { RawStore } from "./raw-store.js";

/**
 * The states of a damaged store together. A file has its newest state and the one before it; what is lost in the one is
 * often whole in the other. Segments and components never change, so either will do; a head of the older state is an
 * earlier state of its session.
 */
export class Salvage implements StoreReader {
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

  head(sessionId: string): Head | undefined {
    return this.storedHead(sessionId)?.head;
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

  isDeleted(sessionId: string): boolean {
    return this.#states[0]?.isDeleted(sessionId) === true;
  }

  /** As for journals, only the newest. */
  journalIds(): string[] {
    return this.#states[0]?.journalIds() ?? [];
  }

  sessionCount(): number {
    return this.sessionIds().length;
  }

  deletedIds(): string[] {
    return this.#states[0]?.keys("deleted") ?? [];
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

/** The session a segment is named after. */
export function ownerOf(segment: string): string {
  return segment.slice(0, segment.lastIndexOf("@"));
}
