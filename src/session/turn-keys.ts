import { type Head, type Part, TroupeError, type TurnConfig, type TurnResult } from "../kernel/index.js";
import type { StoreClient } from "../store/index.js";
import { contentHash, decode, encode } from "../wire/index.js";
import { ComponentReader, turnKeyComponent } from "./components.js";

/** Whoever asks again does so soon: older keys make room. */
export const MAX_TURN_KEYS = 32;

/** A turn as its caller named it: what was asked for under the key. */
export interface TurnKey {
  readonly key: string;
  readonly content: string;
}

export interface KeptTurn extends TurnKey {
  readonly result: TurnResult;
}

/** Names a turn by its caller's key and by what it was asked with. */
export function turnKeyOf(
  key: string,
  { parts, stopped }: { readonly parts: readonly Part[]; readonly stopped?: TurnConfig["stopped"] },
): TurnKey {
  return { key, content: contentHash(encode(stopped?.issue.message ?? parts)) };
}

/**
 * The last turns of a session that were named by a key, with their results: asked for again, they are answered and not
 * run. Each has a place of its own beside the history, so that keeping one writes one.
 */
export class TurnKeys {
  readonly #store: StoreClient;
  #kept: Map<number, KeptTurn> | undefined;
  #next = 0;

  constructor(store: StoreClient) {
    this.#store = store;
  }

  /** What a turn of this name came to. Another input under the same key is a conflict. */
  async find(head: Head | undefined, { key, content }: TurnKey): Promise<TurnResult | undefined> {
    for (const kept of (await this.#load(head)).values()) {
      if (kept.key !== key) continue;
      if (kept.content === content) return kept.result;
      throw new TroupeError("turn_key_conflict", `A turn with the key ${key} and another input was asked for before.`, {
        details: { key, turnId: kept.result.turnId },
      });
    }
    return undefined;
  }

  /** Under which name a turn was kept that left for another frame, and with what: what it left to do goes on so. */
  async leftOff(head: Head | undefined, turnId: string): Promise<KeptTurn | undefined> {
    for (const kept of (await this.#load(head)).values()) if (kept.result.turnId === turnId) return kept;
    return undefined;
  }

  /** The component that keeps a turn, in the place of the oldest or of its own key. `find` was asked before. */
  keep(name: TurnKey, result: TurnResult): readonly [component: string, bytes: Uint8Array] {
    const own = [...(this.#kept ?? [])].find(([, { key }]) => key === name.key);
    const place = own?.[0] ?? this.#next;
    if (own === undefined) this.#next = (place + 1) % MAX_TURN_KEYS;
    const kept: KeptTurn = { ...name, result };
    this.#kept?.set(place, kept);
    return [turnKeyComponent(place), encode(kept)];
  }

  async #load(head: Head | undefined): Promise<Map<number, KeptTurn>> {
    if (this.#kept !== undefined) return this.#kept;
    const reader = new ComponentReader(this.#store, head);
    const kept = new Map<number, KeptTurn>();
    for (let place = 0; place < MAX_TURN_KEYS; place++) {
      const bytes = await reader.bytes(turnKeyComponent(place));
      if (bytes !== undefined) kept.set(place, decode<KeptTurn>(bytes));
    }
    // The youngest stands before the next place to be taken.
    const youngest = [...kept].reduce((a, b) => (b[1].result.turnIndex > a[1].result.turnIndex ? b : a), NO_TURN);
    this.#next = (youngest[0] + 1) % MAX_TURN_KEYS;
    this.#kept = kept;
    return kept;
  }
}

const NO_TURN = [MAX_TURN_KEYS - 1, { result: { turnIndex: -1 } }] as [number, KeptTurn];
