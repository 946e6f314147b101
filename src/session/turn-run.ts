import {
  type Activity,
  assemblePrompt,
  asTroupeError,
  foldTurnDirectives,
  type Message,
  type ModelRequest,
  type ModelResponse,
  NO_DIRECTIVES,
  type Owned,
  type PluginEvent,
  type PromptContribution,
  startTurn,
  stepTurn,
  summarise,
  TroupeError,
  type TurnEffect,
  type TurnEvent,
  type TurnIssue,
  type TurnResult,
  type TurnState,
  turnIdOf,
} from "../kernel/index.js";
import { streamWithRetry } from "../model/index.js";
import type { StreamEnd, TurnFacts } from "../plugin/index.js";
import { readContributions, readRemovals, readResponseTransform } from "./read-answers.js";
import type { Session } from "./session.js";
import { StreamPump } from "./stream.js";
import { runToolBatch } from "./tool-calls.js";

export interface TurnRequest {
  readonly input: string;
  readonly emit: (activity: Activity) => void;
  readonly signal: AbortSignal;
}

/** Runs one turn: asks the machine what to do, does it, tells the machine what came of it. */
export async function runTurn(session: Session, request: TurnRequest): Promise<TurnResult> {
  return new TurnRun(session, request, await session.history()).run();
}

class TurnRun {
  readonly #session: Session;
  readonly #request: TurnRequest;
  readonly #history: readonly Message[];
  readonly #facts: TurnFacts;
  #state: TurnState;
  #effects: readonly TurnEffect[];
  #system = "";
  /** Tools this turn does not have. */
  #hidden: ReadonlySet<string>;
  #revision = 0;

  constructor(session: Session, request: TurnRequest, history: readonly Message[]) {
    const turnIndex = session.turnIndex + 1;
    this.#session = session;
    this.#request = request;
    this.#history = history;
    this.#hidden = session.hiddenTools;
    this.#facts = { sessionId: session.id, turnId: turnIdOf(turnIndex), turnIndex };
    const first = startTurn({ ...this.#facts, input: request.input, maxSteps: session.services.maxSteps });
    this.#state = first.state;
    this.#effects = first.effects;
  }

  async run(): Promise<TurnResult> {
    while (this.#effects.length > 0) {
      let answer: TurnEvent | undefined;
      for (const effect of this.#effects) {
        if (effect.type === "emit") this.#request.emit(effect.activity);
        else {
          const performed = this.#perform(effect);
          answer = performed instanceof Promise ? await performed : performed;
        }
      }
      if (answer === undefined) break;
      this.#step(answer);
    }
    const result: TurnResult = { ...summarise(this.#state), sessionId: this.#session.id, revision: this.#revision };
    this.#request.emit({ type: "turn_finished", result });
    return result;
  }

  /** A cancellation during the effect comes before its answer, so the machine decides with both in hand. */
  #step(answer: TurnEvent): void {
    const { signal } = this.#request;
    const state = signal.aborted
      ? stepTurn(this.#state, { type: "cancel", reason: cancelReason(signal) }).state
      : this.#state;
    const next = stepTurn(state, answer);
    this.#state = next.state;
    this.#effects = next.effects;
  }

  /** Does what the machine asks for. What nobody has a hook for is answered at once. */
  #perform(effect: Exclude<TurnEffect, { type: "emit" }>): TurnEvent | Promise<TurnEvent> {
    const { hooks } = this.#session;
    switch (effect.type) {
      case "before_turn":
        return hooks.has("before_turn") ? this.#beforeTurn() : { type: "before_turn_done", directives: NO_DIRECTIVES };
      case "prompt":
        if (hooks.has("prompt_contributor") || hooks.has("tool_catalog_contributor")) return this.#prompt();
        this.#system = this.#session.services.instructions;
        return { type: "prompt_done" };
      case "model":
        return this.#model(effect.step);
      case "tools":
        return this.#tools(effect);
      case "checkpoint":
        if (hooks.has("checkpoint")) return this.#checkpoint(effect.checkpoint);
        return { type: "checkpoint_done", directives: NO_DIRECTIVES };
      case "after_turn":
        if (hooks.has("after_turn") || hooks.has("turn_finalized")) return this.#afterTurn(effect);
        return { type: "after_turn_done", directives: NO_DIRECTIVES, issues: [] };
      case "commit":
        return this.#commit(effect);
      case "deliver":
        return hooks.has("turn_persisted") ? this.#deliver(effect) : { type: "delivered", issues: [] };
    }
  }

  async #beforeTurn(): Promise<TurnEvent> {
    const { hooks } = this.#session;
    try {
      const facts = { ...this.#facts, input: this.#request.input, messageCount: this.#history.length };
      const directives = await hooks.directives("before_turn", facts, { signal: this.#request.signal });
      return { type: "before_turn_done", directives: foldTurnDirectives(directives) };
    } catch (error) {
      // A turn that was cancelled while its hooks ran is a cancelled turn, not a failed hook.
      if (this.#request.signal.aborted) return { type: "before_turn_done", directives: NO_DIRECTIVES };
      throw refusal("plugin_prepare_turn", "A beforeTurn hook failed", error);
    }
  }

  async #prompt(): Promise<TurnEvent> {
    const { hooks, services } = this.#session;
    const options = { signal: this.#request.signal };
    try {
      await this.#resolveCatalog();
      const tools = this.#toolNames();
      const contributions: PromptContribution[] = [];
      await hooks.each(
        "prompt_contributor",
        () => ({ ...this.#facts, input: this.#request.input, tools }),
        (answer, pluginId) => contributions.push(...readContributions(answer, pluginId)),
        options,
      );
      this.#system = assemblePrompt(services.instructions, contributions, new Set(tools));
      return { type: "prompt_done" };
    } catch (error) {
      return { type: "prompt_failed", issue: issueOf("plugin", "plugin_prompt", error) };
    }
  }

  /** Contributors all see the same catalog and can only take away; what the session's authority hides is not in it. */
  async #resolveCatalog(): Promise<void> {
    const { hooks, hiddenTools } = this.#session;
    if (!hooks.has("tool_catalog_contributor")) return;
    const tools = this.#toolNames();
    const hidden = new Set(hiddenTools);
    await hooks.each(
      "tool_catalog_contributor",
      () => ({ ...this.#facts, tools }),
      (answer, pluginId) => {
        for (const name of readRemovals(answer, pluginId)) hidden.add(name);
      },
      { signal: this.#request.signal },
    );
    this.#hidden = hidden;
  }

  #toolNames(): string[] {
    return this.#session.services.registry.specs(this.#hidden).map((spec) => spec.name);
  }

  async #model(step: number): Promise<TurnEvent> {
    let end: StreamEnd = "complete";
    try {
      const { response, aborted } = await this.#stream(step);
      if (aborted) end = "aborted";
      return { type: "model_done", response: await this.#respond(response, step) };
    } catch (error) {
      end = this.#request.signal.aborted ? "cancelled" : "provider_error";
      const failure = asTroupeError(error, "model_failed");
      return { type: "model_failed", issue: issueOf("model", failure.code, failure) };
    } finally {
      await this.#finishStream(step, end);
    }
  }

  /** Every call that was begun is told to have ended; what goes wrong there is an issue, never the turn's end. */
  async #finishStream(step: number, reason: StreamEnd): Promise<void> {
    const { hooks } = this.#session;
    if (!hooks.has("stream_finished")) return;
    const issues = await hooks.announce("stream_finished", { ...this.#facts, step, reason });
    if (issues.length > 0) this.#state = { ...this.#state, issues: [...this.#state.issues, ...issues] };
  }

  async #stream(step: number): Promise<{ response: ModelResponse; aborted: boolean }> {
    const { hooks, services } = this.#session;
    const { emit, signal } = this.#request;
    // Only a stream hook can end a model call without ending the turn.
    const stop = hooks.has("assistant_stream") ? new AbortController() : undefined;
    const pump = new StreamPump({
      hooks,
      facts: { ...this.#facts, step },
      signal,
      emit,
      onPluginEvent: this.#emitPluginEvent,
      onStop: () => stop?.abort(),
    });
    const request: ModelRequest = {
      sessionId: this.#session.id,
      turnId: this.#facts.turnId,
      step,
      system: this.#system,
      history: this.#history,
      turn: this.#state.messages,
      tools: services.registry.specs(this.#hidden),
    };
    try {
      const events = streamWithRetry(services.model, request, {
        signal: stop === undefined ? signal : AbortSignal.any([signal, stop.signal]),
        onRetry: ({ attempt, delayMs, error }) =>
          emit({ type: "model_retry", step, attempt, code: error.code, delayMs }),
      });
      for await (const event of events) pump.push(event);
      await pump.drain();
      const { aborted } = pump;
      return { response: aborted ? pump.response.build("stop") : pump.response.build(), aborted };
    } catch (error) {
      await pump.drain();
      if (pump.aborted && !signal.aborted) return { response: pump.response.build("stop"), aborted: true };
      throw error;
    }
  }

  async #respond(raw: ModelResponse, step: number): Promise<ModelResponse> {
    const { hooks } = this.#session;
    if (!hooks.has("assistant_response")) return raw;
    let response = raw;
    try {
      await hooks.each(
        "assistant_response",
        () => ({ ...this.#facts, step, response }),
        (answer, pluginId) => {
          const transform = readResponseTransform(answer, response, pluginId);
          response = transform.response;
          for (const value of transform.events) this.#emitPluginEvent({ pluginId, value });
        },
        { signal: this.#request.signal },
      );
      return response;
    } catch (cause) {
      throw new TroupeError(
        "plugin_assistant_response",
        `A response hook failed: ${asTroupeError(cause, "hook_failed").message}`,
        { cause },
      );
    }
  }

  async #tools({ calls, brokenArgs }: Extract<TurnEffect, { type: "tools" }>): Promise<TurnEvent> {
    const { emit, signal } = this.#request;
    const batch = await runToolBatch({
      session: this.#session,
      facts: this.#facts,
      hidden: this.#hidden,
      calls,
      brokenArgs,
      signal,
      emit,
    });
    return { type: "tools_done", ...batch };
  }

  async #checkpoint(checkpoint: "after_work" | "before_completion"): Promise<TurnEvent> {
    try {
      const facts = { ...this.#facts, checkpoint, step: this.#state.step };
      const directives = await this.#session.hooks.directives("checkpoint", facts, { signal: this.#request.signal });
      return { type: "checkpoint_done", directives: foldTurnDirectives(directives) };
    } catch (error) {
      return { type: "checkpoint_failed", issue: issueOf("plugin", "plugin_checkpoint", error) };
    }
  }

  async #afterTurn({ summary }: Extract<TurnEffect, { type: "after_turn" }>): Promise<TurnEvent> {
    const { hooks } = this.#session;
    const facts = { ...this.#facts, turn: summary };
    try {
      const directives = await hooks.directives("after_turn", facts);
      const issues = await hooks.announce("turn_finalized", facts);
      return { type: "after_turn_done", directives: foldTurnDirectives(directives), issues };
    } catch (error) {
      throw refusal("plugin_finalize_turn", "An afterTurn hook failed", error);
    }
  }

  async #commit({ summary }: Extract<TurnEffect, { type: "commit" }>): Promise<TurnEvent> {
    const captureIssue = this.#session.hooks.needCapture ? await this.#capture() : undefined;
    if (captureIssue !== undefined) this.#state = { ...this.#state, issues: [...this.#state.issues, captureIssue] };
    this.#revision = await this.#session.commit(summary, this.#state.messages);
    return { type: "committed" };
  }

  /** A capture that fails keeps the last good state and costs the turn nothing but an issue. */
  async #capture(): Promise<TurnIssue | undefined> {
    try {
      await this.#session.hooks.capture();
      return undefined;
    } catch (error) {
      return issueOf("plugin", "plugin_capture_failed", error);
    }
  }

  async #deliver({ summary }: Extract<TurnEffect, { type: "deliver" }>): Promise<TurnEvent> {
    const facts = { ...this.#facts, turn: summary, revision: this.#revision };
    return { type: "delivered", issues: await this.#session.hooks.announce("turn_persisted", facts) };
  }

  readonly #emitPluginEvent = ({ pluginId, value }: Owned<PluginEvent>): void => {
    this.#request.emit({ type: "plugin_event", pluginId, event: value });
  };
}

/** The call fails and nothing is stored. */
function refusal(code: string, what: string, error: unknown): TroupeError {
  const cause = asTroupeError(error, "hook_failed");
  return new TroupeError(code, `${what}: ${cause.message}`, { cause, retryable: cause.retryable });
}

function issueOf(kind: TurnIssue["kind"], code: string, error: unknown): TurnIssue {
  const { message, details } = asTroupeError(error, code);
  const { pluginId } = details;
  return { kind, code, message, ...(typeof pluginId === "string" && { pluginId }) };
}

function cancelReason(signal: AbortSignal): string {
  const { reason } = signal;
  return reason instanceof Error ? reason.message : typeof reason === "string" ? reason : "The turn was cancelled.";
}
