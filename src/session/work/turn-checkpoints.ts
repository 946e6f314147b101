import { type CheckpointKind, NO_DIRECTIVES, type TurnDirectives, type TurnEvent } from "../../kernel/index.js";
import { issueOf } from "./issues.js";
import { replayIssue, siteDirectives, type TurnScope } from "./turn-scope.js";

/**
 * A safe point of a turn, where hooks and what was said meanwhile may change it. What a checkpoint delivered is
 * delivered again when the turn is taken up again, and nothing else.
 */
export function passCheckpoint(turn: TurnScope, checkpoint: CheckpointKind): TurnEvent | Promise<TurnEvent> {
  const { hooks, inputs } = turn.session;
  const passed = turn.journal.once<TurnEvent, CheckpointDone>({
    // There is one behind every model call.
    key: `checkpoint:${turn.state.step - 1}`,
    envelope: () => checkpoint,
    run: () => (hooks.has("checkpoint") ? hooked(turn, checkpoint) : done(turn, checkpoint, NO_DIRECTIVES)),
    keep: (event) => (event.type === "checkpoint_done" && deliversSomething(event) ? event : undefined),
    changes: () => hooks.pluginsWith("checkpoint"),
    found: (event) => {
      inputs.takeThese((event.inputs ?? []).map(({ id }) => id));
      return event;
    },
    inside: true,
  });
  if (!(passed instanceof Promise)) return passed;
  return passed.catch((error) => ({ type: "checkpoint_failed", issue: replayIssue(error) }));
}

async function hooked(turn: TurnScope, checkpoint: CheckpointKind): Promise<TurnEvent> {
  try {
    const facts = { ...turn.facts, checkpoint, step: turn.state.step };
    const directives = await siteDirectives(turn, "checkpoint", facts, { signal: turn.request.signal });
    return done(turn, checkpoint, directives);
  } catch (error) {
    return { type: "checkpoint_failed", issue: issueOf("plugin", "plugin_checkpoint", error) };
  }
}

/** What waits for the turn is taken only when no hook ends it here: otherwise it goes on waiting. */
function done(turn: TurnScope, checkpoint: CheckpointKind, directives: TurnDirectives): TurnEvent {
  const { inputs } = turn.session;
  const stays = directives.abort !== undefined || turn.request.signal.aborted || inputs.pending.length === 0;
  if (stays) return { type: "checkpoint_done", directives };
  return { type: "checkpoint_done", directives, inputs: inputs.takeAtCheckpoint(turn.facts.turnId, checkpoint) };
}

type CheckpointDone = Extract<TurnEvent, { type: "checkpoint_done" }>;

function deliversSomething({ directives, inputs = [] }: CheckpointDone): boolean {
  return inputs.length > 0 || directives !== NO_DIRECTIVES;
}
