import type { Activity } from "./activity.js";
import type { CheckpointKind } from "./checkpoint.js";
import type { TurnOutcome, TurnResult, TurnSummary } from "./outcome.js";
import type { TurnEffect, TurnState, TurnStep } from "./turn-state.js";

// What a turn asks for follows from its state alone.

/** What a state waits for. A turn that goes on from a stored state asks for exactly this again, and once. */
export function outstanding(state: TurnState): Exclude<TurnEffect, { type: "emit" }> | undefined {
  switch (state.phase) {
    case "before_turn":
    case "prompt":
    case "capture":
      return { type: state.phase };
    case "before_model":
    case "model":
      return { type: state.phase, step: state.step };
    case "tools":
    case "code":
      return state.work;
    case "checkpoint":
      // The phase is never entered without saying which.
      return { type: "checkpoint", checkpoint: state.checkpoint as CheckpointKind };
    case "after_turn":
      return { type: "after_turn", summary: summarise(state) };
    case "commit": {
      const { messages, spent, modelCallRecords, initialNodes } = state;
      return { type: "commit", summary: summarise(state), messages, spent, modelCallRecords, initialNodes };
    }
    case "deliver":
      return { type: "deliver", summary: summarise(state), revision: state.revision };
    case "done":
    case "failed":
      return undefined;
  }
}

/** Goes on with a changed state. */
export function change({ state, effects }: TurnStep, changed: Partial<TurnState>): TurnStep {
  return { state: { ...state, ...changed }, effects };
}

/** The same, and asks for what the state then waits for. */
export function ask(step: TurnStep, changed: Partial<TurnState>): TurnStep {
  const { state, effects } = change(step, changed);
  const effect = outstanding(state);
  return { state, effects: effect === undefined ? effects : [...effects, effect] };
}

/** Tells whoever listens; nobody answers it. */
export function tell({ state, effects }: TurnStep, activity: Activity): TurnStep {
  return { state, effects: [...effects, { type: "emit", activity }] };
}

export function summarise(state: TurnState): TurnSummary {
  const outcome: TurnOutcome = state.outcome ?? {
    type: "stopped",
    reason: "runtime_error",
    code: "no_outcome",
    message: "The turn has no outcome.",
  };
  return {
    turnId: state.config.turnId,
    turnIndex: state.config.turnIndex,
    outcome,
    text: outcome.type === "finished" ? outcome.text : "",
    usage: state.usage,
    modelCalls: state.step,
    toolCalls: state.toolCalls,
    issues: state.issues,
  };
}

/** What a turn that is stored came to. */
export function resultOf(state: TurnState): TurnResult {
  const { config, revision, modelCallRecords } = state;
  return { ...summarise(state), sessionId: config.sessionId, revision, modelCallRecords };
}
