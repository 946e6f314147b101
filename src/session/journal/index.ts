/** What a turn has done so far, and taking it up again after a crash. */
export * from "./turn-journal.js";
export * from "./unfinished-turn.js";
