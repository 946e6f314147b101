import { within } from "../../async/index.js";
import type { Runtime } from "../places/index.js";
import type { Turns } from "../turns/index.js";

/**
 * Lets the turns that were asked for finish, and the sessions that are closing close. Waited for here and not on the
 * workers: the word to stop travels past the lanes and would overtake turns that are still on their way. What is left
 * of the time is for turns that only the workers know of: those that waiting inputs began.
 */
export async function drained({ directory, options }: Runtime, turns: Turns): Promise<number> {
  const { clock, drainMs } = options;
  const underWay = [...turns.underWay(), ...directory.moves()];
  if (underWay.length === 0) return drainMs;
  const started = clock.now();
  await within(clock, drainMs, Promise.allSettled(underWay));
  return Math.max(0, drainMs - (clock.now() - started));
}
