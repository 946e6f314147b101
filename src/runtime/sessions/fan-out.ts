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
  const finished = turns.map(async ({ session, turn }): Promise<RaceResult> => {
    const result = await turn.catch((error: TroupeError) => Promise.reject(`${session.id}: ${error.code}`));
    if (result.outcome.type !== "finished") throw `${session.id}: ${result.outcome.type}`;
    return { winner: session, result };
  });
  // Each reason says how one ended, in the order of the sessions.
  const first = await Promise.any(finished).catch(({ errors }: AggregateError) => ({ ends: errors as string[] }));
  const winner = "winner" in first ? first.winner : undefined;
  for (const { session, turn } of turns) if (session !== winner) turn.cancel("Another one was first.");
  if ("winner" in first) return first;
  throw new TroupeError("race_without_winner", `None of ${sessions.length} sessions finished.`, { details: first });
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
