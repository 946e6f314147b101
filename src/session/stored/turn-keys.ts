import { type Part, TroupeError, type TurnConfig, type TurnResult, turnOfFrameTask } from "../../kernel/index.js";
import { contentHash, decode, encode } from "../../wire/index.js";
import type { ComponentReader } from "./components.js";
import { formerComponentOf, type SessionRows, TABLE } from "./session-rows.js";

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

/** Do two names name the same turn, as far as anybody knows? */
export function isNamesake(a: TurnKey, b: TurnKey): boolean {
  return a.key === b.key && (a.content === b.content || a.content === HIDDEN || b.content === HIDDEN);
}

/** In the place of the hash of an input that is replaced: the hash of a short one would give it away. */
const HIDDEN = "";

/**
 * The last turns of a session that were named by a key, with their results: asked for again, they are answered and not
 * run. Each has a row of its own, so that keeping one writes one, over the one that was there.
 */
export class TurnKeys {
  readonly #rows: SessionRows;
  readonly #stored: () => ComponentReader;
  #kept: Map<number, KeptTurn> | undefined;
  #next = 0;
  /** What was asked for last, and by the keys of turns that are kept here what they were asked with: never written. */
  #asked: TurnKey | undefined;
  readonly #askedWith = new Map<string, string>();

  /** `stored`: reads what an older release stored. */
  constructor(rows: SessionRows, stored: () => ComponentReader) {
    this.#rows = rows;
    this.#stored = stored;
  }

  /**
   * Names a turn by its caller's key and by what it is asked with. `hidden`: its input is replaced before anything is
   * written, so the key alone is its name in the store, and another input under it is noticed only while this is in memory.
   */
  nameOf(key: string, asked: Parameters<typeof turnKeyOf>[1], { hidden }: { readonly hidden: boolean }): TurnKey {
    const name = turnKeyOf(key, asked);
    this.#asked = hidden ? name : undefined;
    return hidden ? { key, content: HIDDEN } : name;
  }

  /** What a turn of this name came to. Another input under the same key is a conflict. */
  async find({ key, content }: TurnKey): Promise<TurnResult | undefined> {
    for (const kept of (await this.#load()).values()) {
      if (kept.key !== key) continue;
      if (this.#isSame(kept, { key, content })) return kept.result;
      throw new TroupeError("turn_key_conflict", `A turn with the key ${key} and another input was asked for before.`, {
        details: { key, turnId: kept.result.turnId },
      });
    }
    return undefined;
  }

  /** What a turn came to that was named by a key, or was one of those before such a turn. */
  async byTurn(turnId: string): Promise<TurnResult | undefined> {
    for (const { result } of (await this.#load()).values()) {
      const found = [result, ...(result.before ?? [])].find((each) => each.turnId === turnId);
      if (found !== undefined) return found;
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
    if (name.content === HIDDEN && this.#asked?.key === name.key) this.#askedWith.set(name.key, this.#asked.content);
    const own = [...(this.#kept ?? [])].find(([, { key }]) => key === name.key);
    const place = own?.[0] ?? this.#next;
    if (own === undefined) this.#next = (place + 1) % MAX_TURN_KEYS;
    const kept: KeptTurn = { ...name, result };
    const former = this.#kept?.get(place);
    if (former !== undefined && former.key !== name.key) this.#askedWith.delete(former.key);
    this.#kept?.set(place, kept);
    this.#rows.change(String(place), encode(kept));
  }

  /** What only memory knew is the same when nobody remembers. */
  #isSame(kept: TurnKey, asked: TurnKey): boolean {
    const was = kept.content === HIDDEN ? this.#askedWith.get(kept.key) : kept.content;
    const is = asked.content === HIDDEN ? this.#asked?.content : asked.content;
    return was === undefined || is === undefined || was === is;
  }

  async #load(): Promise<Map<number, KeptTurn>> {
    if (this.#kept !== undefined) return this.#kept;
    const places = Array.from({ length: MAX_TURN_KEYS }, (_, place) => place);
    const reader = this.#stored();
    const stored = reader.isStored ? await this.#rows.load(MAX_TURN_KEYS) : [];
    const rows = new Map(stored.map(({ key, value }) => [Number(key), value]));
    const former = await reader.several(places.map(formerTurnKey));
    const kept = new Map<number, KeptTurn>();
    for (const place of places) {
      const bytes = rows.get(place) ?? former.get(formerTurnKey(place));
      if (bytes !== undefined) kept.set(place, decode<KeptTurn>(bytes));
    }
    // The youngest stands before the next place to be taken.
    const youngest = [...kept].reduce((a, b) => (b[1].result.turnIndex > a[1].result.turnIndex ? b : a), NO_TURN);
    this.#next = (youngest[0] + 1) % MAX_TURN_KEYS;
    this.#kept = kept;
    return kept;
  }
}

/** Where an older release kept the turn of a place. */
export function formerTurnKey(place: number): string {
  return formerComponentOf({ table: TABLE.turnKeys, key: String(place) }) as string;
}

const NO_TURN = [MAX_TURN_KEYS - 1, { result: { turnIndex: -1 } }] as [number, KeptTurn];
