import {
  type CheckpointKind,
  foldTurnDirectives,
  frameSwitchOf,
  frameTaskOf,
  type Ledger,
  type LedgerEntry,
  type Message,
  type ModelResponse,
  NO_DIRECTIVES,
  NO_USAGE,
  type Owned,
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
  type TurnSummary,
  toolFailure,
  turnIdOf,
  type Usage,
  untilAborted,
} from "../kernel/index.js";
import type { Model } from "../model/index.js";
import {
  type FrameSwitch,
  type HookFacts,
  hostFacade,
  RUNTIME_SESSION_HOST,
  type RuntimeSessionHost,
  type StreamEnd,
  type TurnFacts,
} from "../plugin/index.js";
import { endsHere, isSuspended } from "./active-turns.js";
import type { Admitted } from "./admission.js";
import { haveAttachments } from "./blobs.js";
import type { TurnCatalog } from "./catalog.js";
import { callHost } from "./host-services.js";
import { type Found, type PluginStates, TurnJournal, type TurnStart, type UnfinishedTurn } from "./journal.js";
import { callModel } from "./model-call.js";
import { performDirectives } from "./perform.js";
import type { HookOptions } from "./plugin-link.js";
import { NO_PLUGIN_OPTIONS, type TurnExtras } from "./protocol.js";
import { readFrameSwitch } from "./read-protocol.js";
import { runCode } from "./run-code.js";
import type { NewFrame, RunningTurn, Session } from "./session.js";
import { runToolBatch, type ToolBatch, type ToolBatchResult } from "./tool-calls.js";
import { issueOf, promptFailed, refusal, TurnContext, type TurnRequest } from "./turn-context.js";
import type { TurnKey } from "./turn-keys.js";

/** Runs one turn: asks the machine what to do, does it, tells the machine what came of it. */
export async function runOneTurn(
  session: Session,
  request: TurnRequest,
  beginning: Omit<TurnBeginning, "history">,
): Promise<TurnResult> {
  const run = new TurnRun(session, request, { ...beginning, history: await session.history() });
  // A turn that had its worker killed before may do so again: it is counted before it can.
  if (beginning.unfinished !== undefined) await run.resume(beginning.unfinished);
  else if (session.services.journals) {
    const begun = run.begin(beginning);
    if (request.again === true) await begun;
  }
  session.running = run;
  session.unfinished = undefined;
  try {
    return await run.run();
  } catch (error) {
    session.inputs.turnFailed();
    // What was refused is not taken up again after a crash.
    if (isSuspended(request.signal)) await run.leave();
    else if (endsHere(request.signal)) session.giveUp(request.signal.reason);
    else if (!session.stale) await session.clearJournal();
    throw error;
  } finally {
    run.ended();
    session.running = undefined;
  }
}

export interface TurnBeginning extends Admitted {
  readonly name: TurnKey | undefined;
  /** What came of the turns before it, in the frames it came from. */
  readonly before?: readonly TurnResult[];
  /** It killed its worker too often: it is stored, and no hook sees it. */
  readonly poisoned?: boolean;
  /** Set when a crash left the turn behind. */
  readonly unfinished?: UnfinishedTurn;
  readonly history: readonly Message[];
}

class TurnRun implements RunningTurn {
  readonly #session: Session;
  readonly #request: TurnRequest;
  readonly #facts: TurnFacts;
  readonly #context: TurnContext;
  readonly #model: Model;
  readonly #name: TurnKey | undefined;
  readonly #before: readonly TurnResult[] | undefined;
  readonly #poisoned: boolean;
  readonly #journal: TurnJournal | undefined;
  #checkpoints = 0;
  #state: TurnState;
  #effects: readonly TurnEffect[];
  #frameSwitch: FrameSwitch | undefined;
  #latestUsage: Usage | undefined;
  #revision = 0;
  stored = false;

  constructor(
    session: Session,
    request: TurnRequest,
    { model, parts, stopped, name, before, poisoned = false, unfinished, history }: TurnBeginning,
  ) {
    const { config, protocol } = session;
    const turnIndex = session.turnIndex + 1;
    this.#session = session;
    this.#request = request;
    this.#model = model;
    this.#name = name;
    this.#before = before;
    this.#poisoned = poisoned;
    this.#facts = { sessionId: session.id, turnId: turnIdOf(turnIndex), turnIndex };
    this.#context = new TurnContext(session, this.#facts, request, history);
    if (session.services.journals)
      this.#journal = new TurnJournal(this.#facts, (entry) => session.record(entry), unfinished);
    const first = startTurn({
      ...this.#facts,
      input: parts,
      ...(stopped !== undefined && { stopped }),
      maxSteps: request.extras.maxSteps === undefined ? config.maxSteps : request.extras.maxSteps,
      noProgressLimit: config.noProgressLimit,
      asksBeforeModel: protocol.session.beforeLlmCall !== undefined,
      maxContextTokens: session.config.maxContextTokens,
    });
    this.#state = first.state;
    this.#effects = first.effects;
  }

  /** Writes down what is begun, so that it can be begun again. */
  begin({ parts, stopped, name, before }: Omit<TurnBeginning, "history">): Promise<unknown> | undefined {
    const { input, extras, call, inputIds = [] } = this.#request;
    const blobs = this.#session.blobs.unsaved().map(({ bytes }) => bytes);
    const { pluginOptions } = this.#session;
    const start: TurnStart = {
      call,
      input,
      parts,
      extras: plainExtras(extras),
      blobs,
      inputIds,
      stopped,
      ...(name && { name }),
      ...(before && { before }),
      ...(pluginOptions !== NO_PLUGIN_OPTIONS && { pluginOptions }),
    };
    const written = this.#journal?.begin(start);
    // What is recorded next fails for the same reason, and is waited for.
    written?.catch(ignore);
    return written;
  }

  /** Writes down that it is taken up again, alone if it may be what kills its worker. */
  async resume({ resumed, strikes }: UnfinishedTurn): Promise<void> {
    const { signal } = this.#request;
    const past = strikes === 0 ? ignore : await this.#session.services.suspects.alone(signal);
    if (endsHere(signal)) throw signal.reason;
    await this.#journal?.resume(resumed, past).catch((error: unknown) => {
      past();
      throw error;
    });
  }

  /** Left as its journal has it: the runtime closes. */
  async leave(): Promise<void> {
    this.#session.suspended = true;
    await this.#journal?.left();
  }

  /** Nobody else has to wait for it. */
  ended(): void {
    this.#journal?.ended();
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
    // Left as it is, for whoever opens the session next; unless it is stored, and only to be told.
    if (endsHere(signal) && !this.stored) throw signal.reason;
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
        return this.#context.prompt();
      case "before_model":
        return this.#beforeModel(effect.step);
      case "code":
        return this.#code(effect);
      case "model":
        return this.#askModel(effect.step);
      case "tools":
        return this.#tools(effect);
      case "checkpoint":
        if (this.#journal !== undefined) return this.#journaledCheckpoint(this.#journal, effect.checkpoint);
        if (hooks.has("checkpoint")) return this.#checkpoint(effect.checkpoint);
        return this.#checkpointDone(effect.checkpoint, NO_DIRECTIVES);
      case "after_turn":
        if (this.#request.keepsInputs && isCancelled(effect.summary)) throw this.#request.signal.reason;
        if (!this.#poisoned && (hooks.has("after_turn") || hooks.has("turn_finalized"))) return this.#afterTurn(effect);
        return { type: "after_turn_done", directives: NO_DIRECTIVES, issues: [] };
      case "commit":
        return this.#commit(effect);
      case "deliver":
        return hooks.has("turn_persisted") ? this.#deliver(effect) : { type: "delivered", issues: [] };
    }
  }

  async #beforeTurn(): Promise<TurnEvent> {
    const { signal } = this.#request;
    const { messages } = this.#context;
    let failure = { code: "context_prepare_turn", what: "A context transform failed" };
    try {
      await this.#context.prepare();
      failure = { code: "plugin_prepare_turn", what: "A beforeTurn hook failed" };
      const facts = (pluginId: string) => ({ ...this.#context.beginning(pluginId), messageCount: messages.length });
      return { type: "before_turn_done", directives: await this.#directives("before_turn", facts, { signal }) };
    } catch (error) {
      // A turn that was cancelled while its hooks ran is a cancelled turn, not a failed hook.
      if (signal.aborted) return { type: "before_turn_done", directives: NO_DIRECTIVES };
      throw refusal(failure.code, failure.what, error);
    }
  }

  /** A site's directives: what is done at once is done, the rest is folded. */
  async #directives<S extends "before_turn" | "checkpoint" | "after_turn">(
    site: S,
    facts: HookFacts[S] | ((pluginId: string) => HookFacts[S]),
    options: HookOptions = {},
  ): Promise<TurnDirectives> {
    const directives = await this.#session.hooks.directives(site, facts, options);
    if (directives.length === 0) return NO_DIRECTIVES;
    await performDirectives(this.#session, directives);
    return foldTurnDirectives(directives as readonly Owned<TurnDirective>[]);
  }

  /** The protocol may leave for another frame instead of calling the model. */
  async #beforeModel(step: number): Promise<TurnEvent> {
    const { protocol, id: sessionId } = this.#session;
    const { signal, extras } = this.#request;
    const pluginId = protocol.ownerOf("session");
    const context = {
      sessionId,
      turnId: this.#facts.turnId,
      step,
      messages: [...this.#context.messages, ...this.#state.messages],
      turnOptions: this.#context.protocolOptions,
      latestUsage: this.#latestUsage,
      extension: extras.extension,
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
    const { signal, extras } = this.#request;
    const { turnId } = this.#facts;
    const pluginId = protocol.ownerOf("codeExecutor");
    const execute = () =>
      runCode({
        executor: protocol.codeExecutor,
        pluginId,
        request: { language, code, acceptFinish: true },
        context: {
          sessionId,
          turnId,
          turnOptions: this.#context.protocolOptions,
          extension: extras.extension,
          host: this.#host(pluginId),
          signal,
        },
        callIds: `code-${turnId}-${this.#state.step}`,
        runTool: (call, stop) => this.#runTools([call], {}, stop),
      });
    if (this.#journal === undefined) return { type: "code_done", ...(await execute()) };
    try {
      return { type: "code_done", ...(await this.#codeOnce(this.#journal, { language, code }, execute)) };
    } catch (error) {
      const issue = replayIssue(error);
      const result = { observations: [], error: issue.message, toolCalls: [], durationMs: 0 };
      return { type: "code_done", result, directives: NO_DIRECTIVES, issue };
    }
  }

  /** Code that ran is not run again: what it left behind, in its executor and in plugins, is kept with its result. */
  async #codeOnce(
    journal: TurnJournal,
    envelope: { readonly language: string; readonly code: string },
    execute: () => ReturnType<typeof runCode>,
  ): ReturnType<typeof runCode> {
    const session = this.#session;
    const key = `code:${this.#state.step}`;
    const found = journal.find<RecordedCode>(key, envelope);
    if (found !== undefined) {
      const { execution, state, ...ran } = found.value;
      journal.restoreState(session.hooks, state, found.sequence);
      if (execution !== undefined) await session.restoreExecution(execution);
      return ran;
    }
    const unsettled = journal.settled();
    if (unsettled !== undefined) await unsettled;
    const ran = await execute();
    // Cut off by closing it has not ended: it runs again when the turn goes on, and finds the calls it had finished.
    if (isSuspended(this.#request.signal)) throw this.#request.signal.reason;
    // The commit tries again, and says what is wrong with it.
    const execution = await session.captureExecution().catch(ignore);
    const state = ran.result.toolCalls.length === 0 ? undefined : await session.hooks.unsavedState();
    await journal.record(key, envelope, {
      ...ran,
      ...(execution instanceof Uint8Array || execution === null ? { execution } : {}),
      ...(state && { state }),
    } satisfies RecordedCode);
    return ran;
  }

  /** Tools that changed since the last call are as they are now; when none did, there is nothing to wait for. */
  #askModel(step: number): TurnEvent | Promise<TurnEvent> {
    const why = this.#session.spending.whySpent();
    if (why !== undefined) return this.#budgetSpent(step, why);
    try {
      const resolved = this.#context.resolveCatalog();
      if (!(resolved instanceof Promise)) return this.#callModel(step, resolved);
      return resolved.then((catalog) => this.#callModel(step, catalog), promptFailed);
    } catch (error) {
      return promptFailed(error);
    }
  }

  async #callModel(step: number, catalog: TurnCatalog): Promise<TurnEvent> {
    const { hooks, id: sessionId } = this.#session;
    const { emit, signal } = this.#request;
    const { messages: history, system } = this.#context;
    this.#context.use(catalog);
    const outcome = await callModel({
      model: this.#model,
      request: {
        sessionId,
        turnId: this.#facts.turnId,
        step,
        system,
        history,
        turn: this.#state.messages,
        tools: catalog.preamble.toolSpecs,
      },
      attachments: this.#hasAttachments() ? this.#session.blobs : undefined,
      journal: this.#journal,
      hooks,
      facts: { ...this.#facts, step },
      emit,
      signal,
    });
    const { record } = outcome;
    if ("error" in outcome) {
      const { error, cost } = outcome;
      // A turn that cannot be written down cannot go on; one that does not repeat itself must not.
      if (isStoreError(error)) throw error;
      if (error.code === "replay_mismatch") return promptFailedBy(replayIssue(error));
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

  /** A spent budget ends the turn, or keeps it waiting until somebody raises it. */
  #budgetSpent(step: number, why: string): TurnEvent | Promise<TurnEvent> {
    const issue: TurnIssue = { kind: "runtime", code: "budget_spent", message: why };
    if (this.#session.spending.budget?.whenSpent !== "pause") return { type: "budget_spent", issue };
    return this.#pause(step, issue);
  }

  async #pause(step: number, issue: TurnIssue): Promise<TurnEvent> {
    const { emit, signal } = this.#request;
    emit({ type: "turn_paused", code: issue.code, message: issue.message });
    await this.#session.spending.untilRaised(signal);
    emit({ type: "turn_resumed" });
    return signal.aborted ? { type: "budget_spent", issue } : this.#askModel(step);
  }

  #hasAttachments(): boolean {
    return this.#session.hasAttachments || haveAttachments(this.#state.messages);
  }

  /** What the protocol makes of an answer; making nothing of it ends the turn. */
  #interpret(response: ModelResponse): { next: ProtocolStep } | { issue: TurnIssue } {
    try {
      return { next: this.#context.catalog.preamble.interpret(response) };
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
    try {
      return { type: "tools_done", ...(await this.#runTools(calls, brokenArgs)) };
    } catch (error) {
      const issue = replayIssue(error);
      const output = toolFailure("internal", issue.code, issue.message);
      const records = calls.map((call, completed) => ({ ...call, output, durationMs: 0, completed }));
      return { type: "tools_done", records, directives: NO_DIRECTIVES, issue };
    }
  }

  #runTools(
    calls: ToolBatch["calls"],
    brokenArgs: ToolBatch["brokenArgs"],
    signal = this.#request.signal,
  ): Promise<ToolBatchResult> {
    const { emit } = this.#request;
    const { catalog } = this.#context;
    const { step } = this.#state;
    return runToolBatch({
      session: this.#session,
      facts: this.#facts,
      catalog,
      calls,
      brokenArgs,
      signal,
      emit,
      ...(this.#journal && { journal: { entries: this.#journal, batch: `tools:${step}` } }),
    });
  }

  /** What a checkpoint delivered is delivered again when the turn is taken up again, and nothing else. */
  async #journaledCheckpoint(journal: TurnJournal, checkpoint: CheckpointKind): Promise<TurnEvent> {
    const key = `checkpoint:${this.#checkpoints++}`;
    const { hooks, inputs } = this.#session;
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
    const event = hooked ? await this.#checkpoint(checkpoint) : this.#checkpointDone(checkpoint, NO_DIRECTIVES);
    if (event.type === "checkpoint_done" && deliversSomething(event)) {
      const state = hooked ? await hooks.unsavedState(hooks.pluginsWith("checkpoint")) : undefined;
      await journal.record(key, checkpoint, state === undefined ? event : { ...event, state });
    }
    return event;
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
    const entering = this.#frameLeftFor(summary);
    this.#revision = await this.#session.commit(summary, this.#state.messages, {
      spent: this.#state.spent,
      modelCallRecords: this.#state.modelCallRecords,
      name: this.#name,
      before: this.#before,
      call: this.#request.call,
      entering,
    });
    this.ended();
    if (entering !== undefined) await this.#enterFrame(entering);
    return { type: "committed" };
  }

  #frameLeftFor({ outcome, toolCalls }: TurnSummary): NewFrame | undefined {
    if (outcome.type !== "frame_switch") return undefined;
    const frame: FrameSwitch | undefined = this.#frameSwitch ?? frameSwitchOf(toolCalls);
    if (frame === undefined) return undefined;
    const { frameId, task, initialNodes: nodes = [] } = frame;
    const waits = { id: frameTaskOf(this.#facts.turnId), text: task };
    return { frameId, reason: "switch", nodes, origin: { kind: "protocol" }, task: waits };
  }

  /**
   * The turn is stored in the frame it was asked in; the next one finds the new frame. Whatever goes wrong now is an
   * issue of a turn that is stored, and never says that it is not.
   */
  async #enterFrame(frame: NewFrame): Promise<void> {
    try {
      await this.#session.openFrame(frame);
      this.#revision = this.#session.revision;
    } catch (error) {
      this.#addIssue(issueOf("plugin", "frame_switch_failed", error));
    }
  }

  /** A capture that fails keeps the last good state and costs the turn nothing but an issue. */
  async #orIssue(code: string, attempt: () => Promise<unknown>): Promise<void> {
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

/** The turn does not do what it did before the crash: it is stopped and says where. Anything else refuses it. */
function replayIssue(error: unknown): TurnIssue {
  if (!(error instanceof TroupeError) || error.code !== "replay_mismatch") throw error;
  return { kind: "runtime", code: error.code, message: error.message };
}

function promptFailedBy(issue: TurnIssue): TurnEvent {
  return { type: "prompt_failed", issue };
}

const STORE_CODES: readonly string[] = [
  "store_write_failed",
  "store_closed",
  "store_lost",
  "head_conflict",
  "commit_too_large",
];

function isStoreError({ code }: TroupeError): boolean {
  return STORE_CODES.includes(code);
}

type CheckpointDone = Extract<TurnEvent, { type: "checkpoint_done" }>;
type RecordedCode = Awaited<ReturnType<typeof runCode>> & {
  readonly execution?: Uint8Array | null;
  readonly state?: PluginStates;
};
type RecordedCheckpoint = CheckpointDone & { readonly state?: PluginStates };

function deliversSomething({ directives, inputs = [] }: CheckpointDone): boolean {
  return inputs.length > 0 || directives !== NO_DIRECTIVES;
}

/** Without what the journal keeps beside them: items are parts by then. */
function plainExtras({ items: _items, parts: _parts, ...extras }: TurnExtras): TurnExtras {
  return extras;
}

function ignore(): void {}

function unrevised(pluginId: string): TurnIssue {
  const message = `The state of plugin ${pluginId} changed, but its snapshotRevision did not: the change is not stored.`;
  return { kind: "plugin", code: "plugin_state_unrevised", message, pluginId };
}

function isCancelled({ outcome }: TurnSummary): boolean {
  return outcome.type === "stopped" && outcome.reason === "cancelled";
}

function cancelReason(signal: AbortSignal): string {
  const { reason } = signal;
  return reason instanceof Error ? reason.message : typeof reason === "string" ? reason : "The turn was cancelled.";
}
