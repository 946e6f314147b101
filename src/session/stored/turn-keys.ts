import { type Part, TroupeError, type TurnConfig, type TurnResult, turnOfFrameTask } from "../../kernel/index.js";
import { contentHash, decode, encode } from "../../wire/index.js";
import { Component, type ComponentReader, turnKeyComponent } from "./components.js";

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
 * run. Each has a place of its own beside the history, so that keeping one writes one: the place is dirty that was kept last.
 */
export class TurnKeys {
  readonly component = new Component(turnKeyComponent(0));
  readonly #stored: () => ComponentReader;
  #kept: Map<number, KeptTurn> | undefined;
  #next = 0;

  /** `stored`: reads what is stored by now. */
  constructor(stored: () => ComponentReader) {
    this.#stored = stored;
  }

  /** What a turn of this name came to. Another input under the same key is a conflict. */
  async find({ key, content }: TurnKey): Promise<TurnResult | undefined> {
    for (const kept of (await this.#load()).values()) {
      if (kept.key !== key) continue;
      if (kept.content === content) return kept.result;
      throw new TroupeError("turn_key_conflict", `A turn with the key ${key} and another input was asked for before.`, {
        details: { key, turnId: kept.result.turnId },
      });
    }
    return undefined;
  }

  /** The turn that left an input for its next frame, when it was named by a key: what it left to do goes on under that name. */
  async leftOff(inputIds: readonly string[]): Promise<KeptTurn | undefined> {
    const [inputId, ...others] = inputIds;
    const turnId = inputId === undefined || others.length > 0 ? undefined : turnOfFrameTask(inputId);
    if (turnId === undefined) return undefined;
    for (const kept of (await this.#load()).values()) if (kept.result.turnId === turnId) return kept;
    return undefined;
  }

  /** Keeps a turn in the place of the oldest or of its own key, for the write that is being planned. `find` was asked before. */
  keep(name: TurnKey, result: TurnResult): void {
    const own = [...(this.#kept ?? [])].find(([, { key }]) => key === name.key);
    const place = own?.[0] ?? this.#next;
    if (own === undefined) this.#next = (place + 1) % MAX_TURN_KEYS;
    const kept: KeptTurn = { ...name, result };
    this.#kept?.set(place, kept);
    this.component.change(encode(kept), turnKeyComponent(place));
  }

  async #load(): Promise<Map<number, KeptTurn>> {
    if (this.#kept !== undefined) return this.#kept;
    const reader = this.#stored();
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
