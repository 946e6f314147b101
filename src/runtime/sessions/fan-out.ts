import { TroupeError, type TurnInput, type TurnResult } from "../../kernel/index.js";
import type { TurnOptions } from "../turns/index.js";
import type { Session } from "./session-handle.js";

/** Who was first, and with what. */
export interface RaceResult {
  readonly winner: Session;
  readonly result: TurnResult;
}

/**
 * Asks several sessions the same and takes the first turn that finishes; the others are cancelled. When none does it
 * rejects with `race_without_winner`, which says how each ended.
 *
 * @example
 * const { winner, result } = await race(await session.fork(3), "Find a proof.");
 */
export async function race(sessions: readonly Session[], input: TurnInput, options?: TurnOptions): Promise<RaceResult> {
  const turns = sessions.map((session) => ({ session, turn: session.turn(input, options) }));
  const ends: string[] = [];
  const first = await new Promise<RaceResult | undefined>((resolve) => {
    let left = turns.length;
    const ended = (how: string) => {
      ends.push(how);
      if (--left === 0) resolve(undefined);
    };
    if (left === 0) resolve(undefined);
    for (const { session, turn } of turns) {
      turn.then(
        (result) => {
          if (result.outcome.type === "finished") resolve({ winner: session, result });
          else ended(`${session.id}: ${result.outcome.type}`);
        },
        (error: TroupeError) => ended(`${session.id}: ${error.code}`),
      );
    }
  });
  for (const { session, turn } of turns) if (session !== first?.winner) turn.cancel("Another one was first.");
  if (first !== undefined) return first;
  throw new TroupeError("race_without_winner", `None of ${sessions.length} sessions finished.`, { details: { ends } });
}

/**
 * Asks several sessions the same and waits for all of them, in the sessions' order. A turn that was refused rejects.
 *
 * @example
 * const results = await all(await session.fork(3), "Suggest a name.");
 */
export function all(
  sessions: readonly Session[],
  input: TurnInput,
  options?: TurnOptions,
): Promise<readonly TurnResult[]> {
  return Promise.all(sessions.map((session) => session.turn(input, options)));
}
