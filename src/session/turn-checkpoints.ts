import { type CheckpointKind, NO_DIRECTIVES, type TurnDirectives, type TurnEvent } from "../kernel/index.js";
import { issueOf } from "./issues.js";
import { replayIssue, siteDirectives, type TurnScope } from "./turn-scope.js";

/** The safe points of a turn, where hooks and what was said meanwhile may change it. */
export class TurnCheckpoints {
  readonly #scope: TurnScope;
  #count = 0;

  constructor(scope: TurnScope) {
    this.#scope = scope;
  }

  /** What a checkpoint delivered is delivered again when the turn is taken up again, and nothing else. */
  pass(checkpoint: CheckpointKind): TurnEvent | Promise<TurnEvent> {
    const { hooks, inputs } = this.#scope.session;
    const passed = this.#scope.journal.once<TurnEvent, CheckpointDone>({
      key: `checkpoint:${this.#count++}`,
      envelope: () => checkpoint,
      run: () => (hooks.has("checkpoint") ? this.#hooked(checkpoint) : this.#done(checkpoint, NO_DIRECTIVES)),
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

  async #hooked(checkpoint: CheckpointKind): Promise<TurnEvent> {
    try {
      const facts = { ...this.#scope.facts, checkpoint, step: this.#scope.state.step };
      const directives = await siteDirectives(this.#scope, "checkpoint", facts, { signal: this.#scope.request.signal });
      return this.#done(checkpoint, directives);
    } catch (error) {
      return { type: "checkpoint_failed", issue: issueOf("plugin", "plugin_checkpoint", error) };
    }
  }

  /** What waits for the turn is taken only when no hook ends it here: otherwise it goes on waiting. */
  #done(checkpoint: CheckpointKind, directives: TurnDirectives): TurnEvent {
    const { inputs } = this.#scope.session;
    const stays = directives.abort !== undefined || this.#scope.request.signal.aborted || inputs.pending.length === 0;
    if (stays) return { type: "checkpoint_done", directives };
    return {
      type: "checkpoint_done",
      directives,
      inputs: inputs.takeAtCheckpoint(this.#scope.facts.turnId, checkpoint),
    };
  }
}

type CheckpointDone = Extract<TurnEvent, { type: "checkpoint_done" }>;

function deliversSomething({ directives, inputs = [] }: CheckpointDone): boolean {
  return inputs.length > 0 || directives !== NO_DIRECTIVES;
}
