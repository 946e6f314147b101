/**
 * The lowest room: promises, signals and time, each idea in a file of its own. Knows nothing of sessions, turns or
 * threads. Time and chance come by a {@link Clock} that every thread is made with and hands on; nothing in `src/` reads
 * them from anywhere else.
 */
export { abortWith, onAbort, Stop, type Stoppable, untilAborted } from "./abortable.js";
export { Alarm } from "./alarm.js";
export { type Clock, pinnedClock, systemClock, type Timer } from "./clock.js";
export { type Deferred, deferred, ignore } from "./deferred.js";
export { nodeCrypto } from "./node-crypto.js";
export { ReaderQueue } from "./reader-queue.js";
export { Serial } from "./serial.js";
export { inTime, loopTurn, persist, sleep, within } from "./sleep.js";
export { Together } from "./together.js";
