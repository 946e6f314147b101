/** Runs a turn: lets it in, performs the machine's effects in order, commits, goes on in other frames. */
export * from "./run-turn.js";
