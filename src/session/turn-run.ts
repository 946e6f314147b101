import {
  type Activity,
  asTroupeError,
  type CheckpointKind,
  contextMessages,
  foldTurnDirectives,
  type Json,
  type Ledger,
  type LedgerEntry,
  type Message,
  type ModelResponse,
  NO_DIRECTIVES,
  NO_USAGE,
  type Owned,
  type PromptContribution,
  type ProtocolStep,
  startTurn,
  stepTurn,
  summarise,
  TroupeError,
  type TurnDirective,
  type TurnDirectives,
  type TurnEffect,
  type TurnEvent,
  type TurnIssue,
  type TurnResult,
  type TurnState,
  turnIdOf,
  type Usage,
  untilAborted,
  wholeContext,
} from "../kernel/index.js";
import {
  type FrameSwitch,
  type HookFacts,
  hostFacade,
  mergeTurnOptions,
  type ProtocolTurnOptions,
  RUNTIME_SESSION_HOST,
  type RuntimeSessionHost,
  type StreamEnd,
  type TurnFacts,
} from "../plugin/index.js";
import type { TurnCatalog } from "./catalog.js";
import { callHost } from "./host-services.js";
import { callModel } from "./model-call.js";
import { performDirectives } from "./perform.js";
import type { HookOptions } from "./plugin-link.js";
import { readContributions, readPrepared } from "./read-answers.js";
import { readFrameSwitch } from "./read-protocol.js";
import { runCode } from "./run-code.js";
import type { RunningTurn, Session } from "./session.js";
import { runToolBatch, type ToolBatch, type ToolBatchResult } from "./tool-calls.js";

export interface TurnRequest {
  readonly input: string;
  readonly emit: (activity: Activity) => void;
  readonly signal: AbortSignal;
  /** For the protocol, laid over the session's own. */
  readonly protocolOptions?: ProtocolTurnOptions;
  readonly protocolExtension?: Json;
}

/** Runs one turn: asks the machine what to do, does it, tells the machine what came of it. */
export async function runTurn(session: Session, request: TurnRequest): Promise<TurnResult> {
  if (request.protocolExtension !== undefined) await session.protocol.validateTurnExtension(request.protocolExtension);
  const run = new TurnRun(session, request, await session.history());
  session.running = run;
  try {
    return await run.run();
  } catch (error) {
    session.inputs.turnFailed();
    throw error;
  } finally {
    session.running = undefined;
  }
}

class TurnRun implements RunningTurn {
  readonly #session: Session;
  readonly #request: TurnRequest;
  readonly #history: readonly Message[];
  readonly #facts: TurnFacts;
  readonly #protocolOptions: ProtocolTurnOptions | undefined;
  #state: TurnState;
  #effects: readonly TurnEffect[];
  /** What the model reads before the messages of the turn. */
  #context: readonly Message[];
  /** What the context's transforms add to the prompt. */
  #contextPrompt: readonly PromptContribution[] = NO_CONTRIBUTIONS;
  #catalog: TurnCatalog | undefined;
  #system = "";
  #frameSwitch: FrameSwitch | undefined;
  #latestUsage: Usage | undefined;
  #revision = 0;
  stored = false;

  constructor(session: Session, request: TurnRequest, history: readonly Message[]) {
    const turnIndex = session.turnIndex + 1;
    this.#session = session;
    this.#request = request;
    this.#history = history;
    this.#context = history;
    this.#facts = { sessionId: session.id, turnId: turnIdOf(turnIndex), turnIndex };
    const { protocol } = session;
    this.#protocolOptions = mergeTurnOptions(protocol.turnOptions, request.protocolOptions);
    const first = startTurn({
      ...this.#facts,
      input: request.input,
      maxSteps: session.config.maxSteps,
      asksBeforeModel: protocol.session.beforeLlmCall !== undefined,
      maxContextTokens: session.config.maxContextTokens,
    });
    this.#state = first.state;
    this.#effects = first.effects;
  }

  get turnId(): string {
    return this.#facts.turnId;
  }

  get messages(): readonly Message[] {
    return this.stored ? [] : this.#state.messages;
  }

  get usage(): Usage {
    return this.stored ? NO_USAGE : this.#state.usage;
  }

  get spent(): Ledger {
    return this.stored ? [] : this.#state.spent;
  }

  tellUsage(entry: LedgerEntry): void {
    this.#request.emit({ type: "usage", ...entry });
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
    const result: TurnResult = {
      ...summarise(this.#state),
      sessionId: this.#session.id,
      revision: this.#revision,
      modelCallRecords: this.#state.modelCallRecords,
    };
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
        if (hooks.has("context_transform") || hooks.has("before_turn")) return this.#beforeTurn();
        return { type: "before_turn_done", directives: NO_DIRECTIVES };
      case "prompt":
        return this.#prompt();
      case "before_model":
        return this.#beforeModel(effect.step);
      case "code":
        return this.#code(effect);
      case "model":
        return this.#model(effect.step);
      case "tools":
        return this.#tools(effect);
      case "checkpoint":
        if (hooks.has("checkpoint")) return this.#checkpoint(effect.checkpoint);
        return this.#checkpointDone(effect.checkpoint, NO_DIRECTIVES);
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
    const { signal, input } = this.#request;
    let failure = { code: "context_prepare_turn", what: "A context transform failed" };
    try {
      await this.#prepareContext();
      failure = { code: "plugin_prepare_turn", what: "A beforeTurn hook failed" };
      const facts = { ...this.#facts, input, messageCount: this.#history.length };
      return { type: "before_turn_done", directives: await this.#directives("before_turn", facts, { signal }) };
    } catch (error) {
      // A turn that was cancelled while its hooks ran is a cancelled turn, not a failed hook.
      if (signal.aborted) return { type: "before_turn_done", directives: NO_DIRECTIVES };
      throw refusal(failure.code, failure.what, error);
    }
  }

  /** The transforms, one after another; what they leave is this turn's context and the session's overlay. */
  async #prepareContext(): Promise<void> {
    const { hooks, tools, config, promptTokens } = this.#session;
    if (!hooks.has("context_transform")) return;
    const messageCount = this.#history.length;
    let prepared = wholeContext(messageCount);
    await hooks.each(
      "context_transform",
      () => ({
        ...this.#facts,
        input: this.#request.input,
        messageCount,
        promptTokens,
        maxContextTokens: config.maxContextTokens,
        prepared,
      }),
      (answer, pluginId) => {
        prepared = readPrepared(answer, prepared, { messageCount, pluginId });
      },
      { signal: this.#request.signal },
    );
    // Composed first: a tool nobody knows refuses the turn and leaves the session's tools as they are.
    tools.setOverlay({ includeBase: prepared.includeBaseTools, toolIds: prepared.tools });
    this.#context = contextMessages(prepared, this.#history, this.#facts.turnId);
    this.#contextPrompt = prepared.promptContributions;
  }

  /** A site's directives: what is done at once is done, the rest is folded. */
  async #directives<S extends "before_turn" | "checkpoint" | "after_turn">(
    site: S,
    facts: HookFacts[S],
    options: HookOptions = {},
  ): Promise<TurnDirectives> {
    const directives = await this.#session.hooks.directives(site, facts, options);
    if (directives.length === 0) return NO_DIRECTIVES;
    await performDirectives(this.#session, directives);
    return foldTurnDirectives(directives as readonly Owned<TurnDirective>[]);
  }

  /** The catalog and the system prompt. Without anybody who contributes it is done at once. */
  #prompt(): TurnEvent | Promise<TurnEvent> {
    const { hooks } = this.#session;
    try {
      const catalog = this.#resolveCatalog();
      if (catalog instanceof Promise || hooks.has("prompt_contributor")) return this.#contributedPrompt(catalog);
      return this.#promptDone(catalog, this.#contextPrompt);
    } catch (error) {
      return promptFailed(error);
    }
  }

  async #contributedPrompt(resolving: TurnCatalog | Promise<TurnCatalog>): Promise<TurnEvent> {
    try {
      const catalog = await resolving;
      const contributions = [...this.#contextPrompt];
      await this.#session.hooks.each(
        "prompt_contributor",
        () => ({ ...this.#facts, input: this.#request.input, tools: catalog.names }),
        (answer, pluginId) => contributions.push(...readContributions(answer, pluginId)),
        { signal: this.#request.signal },
      );
      return this.#promptDone(catalog, contributions);
    } catch (error) {
      return promptFailed(error);
    }
  }

  #promptDone(catalog: TurnCatalog, contributions: readonly PromptContribution[]): TurnEvent {
    const { config, prompts } = this.#session;
    const { executionPrompt, promptContributions, syncExecutionEnvironment } = catalog.preamble;
    this.#catalog = catalog;
    this.#system = prompts.prompt({
      instructions: config.instructions,
      execution: executionPrompt,
      contributions: promptContributions.length === 0 ? contributions : [...contributions, ...promptContributions],
      tools: catalog.names,
    });
    return { type: "prompt_done", syncs: syncExecutionEnvironment };
  }

  #resolveCatalog(): TurnCatalog | Promise<TurnCatalog> {
    return this.#session.catalog.resolve(this.#facts, this.#protocolOptions, this.#request.signal);
  }

  /** The protocol may leave for another frame instead of calling the model. */
  async #beforeModel(step: number): Promise<TurnEvent> {
    const { protocol, id: sessionId } = this.#session;
    const { signal, protocolExtension: extension } = this.#request;
    const pluginId = protocol.ownerOf("session");
    const context = {
      sessionId,
      turnId: this.#facts.turnId,
      step,
      messages: [...this.#context, ...this.#state.messages],
      turnOptions: this.#protocolOptions,
      latestUsage: this.#latestUsage,
      extension,
      host: this.#host(pluginId),
      signal,
    };
    try {
      const asked = (async () => protocol.session.beforeLlmCall?.(context))();
      const frame = readFrameSwitch(await untilAborted(asked, signal), pluginId);
      if (frame === undefined) return { type: "before_model_done" };
      this.#session.checkNewFrame(frame.frameId);
      this.#frameSwitch = frame;
      return { type: "frame_switch", frameId: frame.frameId, task: frame.task };
    } catch (error) {
      return { type: "before_model_failed", issue: issueOf("plugin", "before_llm_call_failed", error) };
    }
  }

  /** The host services of the protocol: it is part of the turn and may do what the runtime may. */
  #host(pluginId: string): RuntimeSessionHost {
    const request = { pluginId, granted: RUNTIME_SESSION_HOST, signal: this.#request.signal };
    const host = hostFacade(RUNTIME_SESSION_HOST, (method, args) =>
      callHost(this.#session, { ...request, method, args }),
    );
    // The facade has the methods of every interface it was given.
    return host as RuntimeSessionHost;
  }

  /** Code runs in the protocol's executor; the tools it calls go through the same catalog and hooks as the model's. */
  async #code({ language, code }: Extract<TurnEffect, { type: "code" }>): Promise<TurnEvent> {
    const { protocol, id: sessionId } = this.#session;
    const { signal, protocolExtension: extension } = this.#request;
    const { turnId } = this.#facts;
    const pluginId = protocol.ownerOf("codeExecutor");
    const ran = await runCode({
      executor: protocol.codeExecutor,
      pluginId,
      request: { language, code, acceptFinish: true },
      context: {
        sessionId,
        turnId,
        turnOptions: this.#protocolOptions,
        extension,
        host: this.#host(pluginId),
        signal,
      },
      callIds: `code-${turnId}-${this.#state.step}`,
      runTool: (call, stop) => this.#runTools([call], {}, stop),
    });
    return { type: "code_done", ...ran };
  }

  /** Tools that changed since the last call are as they are now; when none did, there is nothing to wait for. */
  #model(step: number): TurnEvent | Promise<TurnEvent> {
    try {
      const resolved = this.#resolveCatalog();
      if (!(resolved instanceof Promise)) return this.#callModel(step, resolved);
      return resolved.then((catalog) => this.#callModel(step, catalog), promptFailed);
    } catch (error) {
      return promptFailed(error);
    }
  }

  async #callModel(step: number, catalog: TurnCatalog): Promise<TurnEvent> {
    const { hooks, services, id: sessionId } = this.#session;
    const { emit, signal } = this.#request;
    this.#catalog = catalog;
    const outcome = await callModel({
      model: services.model,
      request: {
        sessionId,
        turnId: this.#facts.turnId,
        step,
        system: this.#system,
        history: this.#context,
        turn: this.#state.messages,
        tools: catalog.preamble.toolSpecs,
      },
      hooks,
      facts: { ...this.#facts, step },
      emit,
      signal,
    });
    const { record } = outcome;
    if ("error" in outcome) {
      const { error, cost } = outcome;
      await this.#finishStream(step, signal.aborted ? "cancelled" : "provider_error");
      return { type: "model_failed", issue: issueOf("model", error.code, error), record, ...(cost && { usage: cost }) };
    }
    const { response, aborted } = outcome;
    this.#latestUsage = response.usage;
    this.#session.promptTokens = response.usage.inputTokens;
    const read = this.#interpret(response);
    await this.#finishStream(step, aborted ? "aborted" : "complete");
    return { type: "model_done", response, record, ...read };
  }

  /** What the protocol makes of an answer; making nothing of it ends the turn. */
  #interpret(response: ModelResponse): { next: ProtocolStep } | { issue: TurnIssue } {
    try {
      // The model was called with a catalog, and so with a preamble.
      return { next: (this.#catalog as TurnCatalog).preamble.interpret(response) };
    } catch (error) {
      return { issue: issueOf("plugin", "protocol_failed", error) };
    }
  }

  /** Every call that was begun is told to have ended; what goes wrong there is an issue, never the turn's end. */
  async #finishStream(step: number, reason: StreamEnd): Promise<void> {
    const { hooks } = this.#session;
    if (!hooks.has("stream_finished")) return;
    const issues = await hooks.announce("stream_finished", { ...this.#facts, step, reason });
    for (const issue of issues) this.#addIssue(issue);
  }

  async #tools({ calls, brokenArgs }: Extract<TurnEffect, { type: "tools" }>): Promise<TurnEvent> {
    return { type: "tools_done", ...(await this.#runTools(calls, brokenArgs)) };
  }

  #runTools(
    calls: ToolBatch["calls"],
    brokenArgs: ToolBatch["brokenArgs"],
    signal = this.#request.signal,
  ): Promise<ToolBatchResult> {
    const { emit } = this.#request;
    // A model call came before, and with it a catalog.
    const catalog = this.#catalog as TurnCatalog;
    return runToolBatch({ session: this.#session, facts: this.#facts, catalog, calls, brokenArgs, signal, emit });
  }

  async #checkpoint(checkpoint: CheckpointKind): Promise<TurnEvent> {
    try {
      const facts = { ...this.#facts, checkpoint, step: this.#state.step };
      const directives = await this.#directives("checkpoint", facts, { signal: this.#request.signal });
      return this.#checkpointDone(checkpoint, directives);
    } catch (error) {
      return { type: "checkpoint_failed", issue: issueOf("plugin", "plugin_checkpoint", error) };
    }
  }

  /** What waits for the turn is taken only when no hook ends it here: otherwise it goes on waiting. */
  #checkpointDone(checkpoint: CheckpointKind, directives: TurnDirectives): TurnEvent {
    const { inputs } = this.#session;
    const stays = directives.abort !== undefined || this.#request.signal.aborted || inputs.pending.length === 0;
    if (stays) return { type: "checkpoint_done", directives };
    return { type: "checkpoint_done", directives, inputs: inputs.takeAtCheckpoint(this.#facts.turnId, checkpoint) };
  }

  async #afterTurn({ summary }: Extract<TurnEffect, { type: "after_turn" }>): Promise<TurnEvent> {
    const { hooks } = this.#session;
    const facts = { ...this.#facts, turn: summary };
    try {
      const directives = await this.#directives("after_turn", facts);
      const issues = await hooks.announce("turn_finalized", facts);
      return { type: "after_turn_done", directives, issues };
    } catch (error) {
      throw refusal("plugin_finalize_turn", "An afterTurn hook failed", error);
    }
  }

  async #commit({ summary }: Extract<TurnEffect, { type: "commit" }>): Promise<TurnEvent> {
    const { hooks, protocol } = this.#session;
    if (hooks.needCapture) await this.#orIssue("plugin_capture_failed", () => hooks.capture());
    for (const pluginId of hooks.takeUnrevised()) this.#addIssue(unrevised(pluginId));
    if (protocol.codeExecutor !== undefined)
      await this.#orIssue("execution_capture_failed", () => this.#session.captureExecution());
    this.#revision = await this.#session.commit(summary, this.#state.messages, this.#state.spent);
    if (this.#frameSwitch !== undefined && summary.outcome.type === "frame_switch")
      await this.#enterFrame(this.#frameSwitch);
    return { type: "committed" };
  }

  /** The turn is stored in the frame it was asked in; the next one finds the new frame. */
  async #enterFrame({ frameId, initialNodes = [] }: FrameSwitch): Promise<void> {
    await this.#orIssue("frame_switch_failed", () =>
      this.#session.openFrame({
        frameId,
        reason: "switch",
        nodes: initialNodes,
        origin: { kind: "protocol" },
      }),
    );
    this.#revision = this.#session.revision;
  }

  /** A capture that fails keeps the last good state and costs the turn nothing but an issue. */
  async #orIssue(code: string, attempt: () => Promise<void>): Promise<void> {
    try {
      await attempt();
    } catch (error) {
      if (this.#session.stale) throw error;
      this.#addIssue(issueOf("plugin", code, error));
    }
  }

  #addIssue(issue: TurnIssue): void {
    this.#state = { ...this.#state, issues: [...this.#state.issues, issue] };
  }

  async #deliver({ summary }: Extract<TurnEffect, { type: "deliver" }>): Promise<TurnEvent> {
    const facts = { ...this.#facts, turn: summary, revision: this.#revision };
    return { type: "delivered", issues: await this.#session.hooks.announce("turn_persisted", facts) };
  }
}

function unrevised(pluginId: string): TurnIssue {
  const message = `The state of plugin ${pluginId} changed, but its snapshotRevision did not: the change is not stored.`;
  return { kind: "plugin", code: "plugin_state_unrevised", message, pluginId };
}

const NO_CONTRIBUTIONS: readonly PromptContribution[] = [];

/** The call fails and nothing is stored. */
function refusal(code: string, what: string, error: unknown): TroupeError {
  const cause = asTroupeError(error, "hook_failed");
  return new TroupeError(code, `${what}: ${cause.message}`, { cause, retryable: cause.retryable });
}

function promptFailed(error: unknown): TurnEvent {
  return { type: "prompt_failed", issue: issueOf("plugin", "plugin_prompt", error) };
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
