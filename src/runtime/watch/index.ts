/** Judges threads and the process from outside: who is blocked, who dies without a reason, how much memory is left. */
export { MemoryAlarm } from "./memory-alarm.js";
export { Asked, UnexplainedDeaths } from "./unexplained-deaths.js";
export { Watchdog, type Watched } from "./watchdog.js";
