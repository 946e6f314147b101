import type { Json, RowWrite } from "../../kernel/index.js";

/** Something a turn does once, whatever becomes of its worker. `T`: what came of it; `R`: what is recorded of that. */
export interface Once<T, R = T> {
  /** The same in every life of the turn. */
  readonly key: string;
  /** What is asked for. A turn that asks for something else under the same key is not the same turn. */
  readonly envelope: () => Json;
  /** The same as an earlier release asked for it: what it recorded then is taken for what came of it. */
  readonly earlier?: () => Json;
  readonly run: () => T | Promise<T>;
  /** What is recorded; undefined: nothing, and it is done again. Default: what came of it. */
  readonly keep?: (value: T) => R | undefined | Promise<R | undefined>;
  /** Nothing is built on it yet: it is recorded only when something is. */
  readonly owes?: (value: T) => boolean;
  /** The plugins it may have left in another state, by id: their state is recorded and restored with it. */
  readonly changes?: (value: T) => readonly string[] | "all";
  /** Makes of what was recorded, and when, what came of it. Default: that is what was recorded. */
  readonly found?: (recorded: R, at: number) => T | Promise<T>;
  /** Rows that change in the same write as it is recorded, or not at all: a conflict refuses the step, and it was not done. */
  readonly rows?: readonly RowWrite[];
  /** The same, made of what came of it; its usage is recorded with it. */
  readonly rowsOf?: (value: T) => readonly RowWrite[];
  /** It does nothing outside of the turn, so what the turn owes need not be recorded first. */
  readonly inside?: boolean;
  /**
   * Where a turn goes on with what it recorded: may that count although something else is asked for now? Told what was
   * asked for then, as far as it is kept. Default: it does not.
   */
  readonly counts?: (asked: Json | undefined) => boolean;
  /** What comes of it where that does not count, and the turn goes on all the same. Default: the turn ends. */
  readonly otherwise?: () => T;
}
