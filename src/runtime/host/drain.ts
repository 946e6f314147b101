import { ignore, type Timer, within } from "../../async/index.js";
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

/** How often a runtime that closes looks for turns that have come to wait. */
const LOOK_MS = 20;

/**
 * With a journal nobody waits for turns that only people can go on with: a runtime that closes takes no answers, and the
 * next one does. Turns that others wait for are left to these. Until it is told to end.
 */
export function leaveWaiting(runtime: Runtime, childTurns: { readonly sessions: readonly string[] }): () => void {
  const { clock, sessionWorkers, worker } = runtime.options;
  if (!worker.journals) return ignore;
  let timer: Timer | undefined;
  const look = () => {
    const but = childTurns.sessions;
    for (let place = 0; place < sessionWorkers; place++) {
      const service = runtime.worker(place).service();
      service.then((told) => told.suspendWaiting({ but })).catch(ignore);
    }
    timer = clock.timeout(LOOK_MS, look);
  };
  look();
  return () => timer?.cancel();
}
