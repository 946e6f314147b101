import { type CheckpointKind, NO_DIRECTIVES, type TurnDirectives, type TurnEvent } from "../kernel/index.js";
import { issueOf } from "./issues.js";
import type { Found, PluginStates, TurnJournal } from "./journal.js";
import { replayIssue, siteDirectives, type TurnScope } from "./turn-scope.js";

/** The safe points of a turn, where hooks and what was said meanwhile may change it. */
export class TurnCheckpoints {
  readonly #scope: TurnScope;
  #count = 0;

  constructor(scope: TurnScope) {
    this.#scope = scope;
  }

  pass(checkpoint: CheckpointKind): TurnEvent | Promise<TurnEvent> {
    const { journal, session } = this.#scope;
    if (journal !== undefined) return this.#journaled(journal, checkpoint);
    return session.hooks.has("checkpoint") ? this.#hooked(checkpoint) : this.#done(checkpoint, NO_DIRECTIVES);
  }

  /** What a checkpoint delivered is delivered again when the turn is taken up again, and nothing else. */
  async #journaled(journal: TurnJournal, checkpoint: CheckpointKind): Promise<TurnEvent> {
    const key = `checkpoint:${this.#count++}`;
    const { hooks, inputs } = this.#scope.session;
    let found: Found<RecordedCheckpoint> | undefined;
    try {
      found = journal.find<RecordedCheckpoint>(key, checkpoint);
    } catch (error) {
      return { type: "checkpoint_failed", issue: replayIssue(error) };
    }
    if (found !== undefined) {
      const { state, ...event } = found.value;
      inputs.takeThese((event.inputs ?? []).map(({ id }) => id));
      journal.restoreState(hooks, state, found.sequence);
      return event;
    }
    const hooked = hooks.has("checkpoint");
    const event = hooked ? await this.#hooked(checkpoint) : this.#done(checkpoint, NO_DIRECTIVES);
    if (event.type === "checkpoint_done" && deliversSomething(event)) {
      const state = hooked ? await hooks.unsavedState(hooks.pluginsWith("checkpoint")) : undefined;
      await journal.record(key, checkpoint, state === undefined ? event : { ...event, state });
    }
    return event;
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
type RecordedCheckpoint = CheckpointDone & { readonly state?: PluginStates };

function deliversSomething({ directives, inputs = [] }: CheckpointDone): boolean {
  return inputs.length > 0 || directives !== NO_DIRECTIVES;
}
