import { ignore } from "../../async/index.js";
import type { Cancellation, Json } from "../../kernel/index.js";
import type { Once } from "./once.js";
import type { TurnStart } from "./unfinished-turn.js";

/**
 * What a turn has done, recorded before anything is built on it: a paid answer, a finished tool call, what a checkpoint
 * delivered. A turn that is taken up again runs as it did the first time, and finds here what it need not do twice.
 */
export interface TurnJournal {
  /** Not waited for: what is recorded later is stored behind it, and without anything recorded nothing was done. */
  begin(start: () => TurnStart, how?: { readonly held: boolean }): Promise<unknown> | undefined;
  /** Nothing is recorded before the turn is begun, and nobody can say yet what with. */
  hold(): void;
  readonly held: boolean;
  /** The turn is taken up again, for the n-th time. `past` is called when it is clear that this does not kill its worker. */
  resume(n: number, past: () => void): Promise<void>;
  /** Finds what was done, or does and records it. Rejects with `replay_mismatch` when something else was asked for then. */
  once<T, R = T>(step: Once<T, R>): T | Promise<T>;
  /** How many were given a number at this place before: tells apart what else would have the same key. */
  number(place: string): number;
  /** It was recorded in an earlier life of the turn. */
  has(key: string): boolean;
  /** What was recorded for the turn, by somebody else or in an earlier life of it. */
  find<T>(key: string, envelope?: Json): T | undefined;
  /** Writes down what the turn is asked with. Not waited for: what is recorded later is stored behind it. */
  note(key: string, value: object): void;
  /** The same, with the state of these plugins and what the turn has spent: what came to that is not done again. */
  noteDone(key: string, value: object, plugins: readonly string[]): Promise<void> | undefined;
  /** Puts the state of plugins, and what the turn had spent, back to what was noted when it was prepared. */
  takeUp(): void;
  /** The turn waits for somebody outside. */
  waits(): void;
  /** The turn is left as it is, and no death's fault is it. */
  left(): Promise<void>;
  /** The turn is about to be stored. */
  storing(): void;
  ended(): void;
  /** Somebody was told that this stops the turn. Resolves when that is durable. */
  cancel(cancellation: Cancellation): Promise<unknown>;
  /** The same, from an earlier life of the turn. */
  readonly cancellation: Cancellation | undefined;
  /** Of what the turn had done before, it has not found everything yet. */
  readonly isAhead: boolean;
  /** The turn was taken up again, and has not come to anything yet that it had not done before. */
  readonly replaying: boolean;
  /** When what was found last was recorded; undefined when the turn is not replaying. */
  readonly replayedAt: number | undefined;
}

/** Of a runtime that records nothing: everything is done as if there were no journal. */
export const NO_JOURNAL: TurnJournal = {
  begin: () => undefined,
  hold: ignore,
  held: false,
  resume: async () => undefined,
  once: ({ run }) => run(),
  number: () => 0,
  has: () => false,
  find: () => undefined,
  note: ignore,
  noteDone: () => undefined,
  takeUp: ignore,
  waits: ignore,
  left: async () => undefined,
  storing: ignore,
  ended: ignore,
  cancel: async () => undefined,
  cancellation: undefined,
  isAhead: false,
  replaying: false,
  replayedAt: undefined,
};
