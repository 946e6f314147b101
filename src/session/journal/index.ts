/** What a turn has done so far, and taking it up again after a crash. */
export * from "./resume-queue.js";
export * from "./suspension.js";
export * from "./turn-journal.js";
export * from "./unfinished-turn.js";
