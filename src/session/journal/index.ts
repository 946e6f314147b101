/** What a turn has done so far, and taking it up again after a crash. */
export * from "./left-behind.js";
export * from "./no-journal.js";
export * from "./once.js";
export * from "./recorded-turn.js";
export * from "./trial.js";
export * from "./turn-journal.js";
export * from "./unfinished-turn.js";
