/** Safe points inside a turn: all calls of a step have results; the model gave its answer. */
export type CheckpointKind = "after_work" | "before_completion";
