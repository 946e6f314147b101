import { ignore, within } from "../../async/index.js";
import type { Runtime } from "../places/index.js";
import type { Turns } from "../turns/index.js";

/**
 * Lets the turns that were asked for finish, and the sessions that are closing close. Waited for here and not on the
 * workers: the word to stop travels past the lanes and would overtake turns that are still on their way. What is left
 * of the time is for turns that only the workers know of: those that waiting inputs began. With a journal nobody waits for
 * turns that only people can go on with: a runtime that closes takes no answers, and the next one does.
 */
export async function drained(runtime: Runtime, turns: Turns): Promise<number> {
  const { directory, options } = runtime;
  const { clock, drainMs } = options;
  if (options.worker.journals) leaveWaiting(runtime);
  const underWay = [...turns.underWay(), ...directory.moves()];
  if (underWay.length === 0) return drainMs;
  const started = clock.now();
  await within(clock, drainMs, Promise.allSettled(underWay));
  return Math.max(0, drainMs - (clock.now() - started));
}

function leaveWaiting(runtime: Runtime): void {
  for (let place = 0; place < runtime.options.sessionWorkers; place++) {
    const told = runtime
      .worker(place)
      .service()
      .then((service) => service.drain(undefined));
    told.catch(ignore);
  }
}
