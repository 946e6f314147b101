/** Runs a turn: lets it in, performs the machine's effects in order, commits, goes on in other frames. Sees a narrow `TurnSession`, never the session class. */
export { askCompactors, openCompacted } from "./compaction/index.js";
export * from "./run-turn.js";
export { runToolAlone } from "./tools/lone-call.js";
export * from "./turn-session.js";
export * from "./turn-stop.js";
