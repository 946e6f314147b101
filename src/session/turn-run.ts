import { ignore, untilAborted } from "../async/index.js";
import {
  type Ledger,
  type LedgerEntry,
  type Message,
  NO_DIRECTIVES,
  resultOf,
  startTurn,
  stepTurn,
  type TurnEffect,
  type TurnEvent,
  type TurnResult,
  type TurnState,
  type TurnSummary,
  turnIdOf,
  type Usage,
} from "../kernel/index.js";
import type { TurnFacts } from "../plugin/index.js";
import type { Admitted } from "./admission.js";
import { issueOf, orRefused, settleOrIssue } from "./issues.js";
import { NO_JOURNAL, StoredJournal, type TurnJournal } from "./journal.js";
import { NO_PLUGIN_OPTIONS, type TurnExtras } from "./protocol.js";
import { readFrameSwitch } from "./read-protocol.js";
import { readAhead } from "./session-history.js";
import type { RunningTurn } from "./session-life.js";
import { endsHere, isSuspended } from "./suspension.js";
import { TurnCheckpoints } from "./turn-checkpoints.js";
import { runTurnCode } from "./turn-code.js";
import { captureTurn, commitTurn } from "./turn-commit.js";
import { TurnContext, type TurnRequest } from "./turn-context.js";
import type { TurnKey } from "./turn-keys.js";
import { TurnModel } from "./turn-model.js";
import { protocolHost, siteDirectives, type TurnScope } from "./turn-scope.js";
import type { TurnSession } from "./turn-session.js";
import { runTools } from "./turn-tools.js";
import type { TurnStart, UnfinishedTurn } from "./unfinished-turn.js";

/** Runs one turn: asks the machine what to do, does it, tells the machine what came of it. */
export async function runOneTurn(
  session: TurnSession,
  request: TurnRequest,
  beginning: Omit<TurnBeginning, "history">,
): Promise<TurnResult> {
  // What the model is not given is not read; what it is, its transforms say.
  const history = await readAhead(session);
  const run = new TurnRun(session, request, { ...beginning, history });
  // A turn that had its worker killed before may do so again: it is counted before it can.
  if (beginning.unfinished !== undefined) await run.resume(beginning.unfinished);
  else {
    const begun = run.begin(beginning);
    if (request.again === true) await begun;
  }
  session.life.begin(run);
  try {
    return await run.run();
  } catch (error) {
    session.inputs.turnFailed();
    // What was refused is not taken up again after a crash.
    if (isSuspended(request.signal)) await run.leave();
    else if (endsHere(request.signal)) session.life.giveUp(request.signal.reason);
    else if (!session.life.isStale) {
      session.stored.usage.release();
      await session.stored.clearJournal();
    }
    throw error;
  } finally {
    run.ended();
    session.life.end();
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

class TurnRun implements RunningTurn, TurnScope {
  readonly session: TurnSession;
  readonly request: TurnRequest;
  readonly facts: TurnFacts;
  readonly context: TurnContext;
  readonly #name: TurnKey | undefined;
  readonly #before: readonly TurnResult[] | undefined;
  readonly #poisoned: boolean;
  readonly journal: TurnJournal;
  readonly #checkpoints = new TurnCheckpoints(this);
  readonly #model: TurnModel;
  #state: TurnState;
  #effects: readonly TurnEffect[];

  constructor(
    session: TurnSession,
    request: TurnRequest,
    { model, parts, stopped, name, before, poisoned = false, unfinished, history }: TurnBeginning,
  ) {
    const { config } = session.settings;
    const turnIndex = session.stored.turnIndex + 1;
    this.session = session;
    this.request = request;
    this.#model = new TurnModel(this, model);
    this.#name = name;
    this.#before = before;
    this.#poisoned = poisoned;
    this.facts = { sessionId: session.id, turnId: turnIdOf(turnIndex), turnIndex };
    this.context = new TurnContext(session, this.facts, request, history);
    this.journal = session.services.journals
      ? new StoredJournal({
          ...this.facts,
          clock: session.services.clock,
          write: (entry) => session.stored.record(entry),
          hooks: session.hooks,
          usage: session.stored.usage,
          unfinished,
        })
      : NO_JOURNAL;
    const first = startTurn({
      ...this.facts,
      input: parts,
      ...(stopped !== undefined && { stopped }),
      maxSteps: request.extras.maxSteps === undefined ? config.maxSteps : request.extras.maxSteps,
      noProgressLimit: config.noProgressLimit,
      asksBeforeModel: session.protocol.session.beforeLlmCall !== undefined,
      maxContextTokens: config.maxContextTokens,
    });
    this.#state = first.state;
    this.#effects = first.effects;
  }

  /** Writes down what is begun, so that it can be begun again. */
  begin({ parts, stopped, name, before }: Omit<TurnBeginning, "history">): Promise<unknown> | undefined {
    const written = this.journal.begin((): TurnStart => {
      const { input, extras, call, inputIds = [] } = this.request;
      const { pluginOptions, blobs } = this.session;
      return {
        call,
        input,
        parts,
        extras: plainExtras(extras),
        blobs: blobs.encode().map(({ bytes }) => bytes),
        inputIds,
        stopped,
        ...(name && { name }),
        ...(before && { before }),
        ...(pluginOptions !== NO_PLUGIN_OPTIONS && { pluginOptions }),
      };
    });
    // What is recorded next fails for the same reason, and is waited for.
    written?.catch(ignore);
    return written;
  }

  /** Writes down that it is taken up again, alone if it may be what kills its worker. */
  async resume({ resumed, strikes }: UnfinishedTurn): Promise<void> {
    const { signal } = this.request;
    const past = strikes === 0 ? ignore : await this.session.services.suspects.alone(signal);
    if (endsHere(signal)) throw signal.reason;
    await this.journal.resume(resumed, past).catch((error: unknown) => {
      past();
      throw error;
    });
  }

  /** Left as its journal has it: the runtime closes. */
  async leave(): Promise<void> {
    this.session.life.suspend();
    await this.journal.left();
  }

  /** Nobody else has to wait for it. */
  ended(): void {
    this.journal.ended();
  }

  get state(): TurnState {
    return this.#state;
  }

  get turnId(): string {
    return this.facts.turnId;
  }

  get messages(): readonly Message[] {
    return this.#state.messages;
  }

  get usage(): Usage {
    return this.#state.usage;
  }

  get spent(): Ledger {
    return this.#state.spent;
  }

  tellUsage(entry: LedgerEntry): void {
    this.request.emit({ type: "usage", ...entry });
  }

  async run(): Promise<TurnResult> {
    while (this.#effects.length > 0) {
      let answer: TurnEvent | undefined;
      for (const effect of this.#effects) {
        if (effect.type === "emit") this.request.emit(effect.activity);
        else {
          const performed = this.#perform(effect);
          answer = performed instanceof Promise ? await performed : performed;
        }
      }
      if (answer === undefined) break;
      this.#step(answer);
    }
    return resultOf(this.#state);
  }

  /** A cancellation during the effect comes before its answer, so the machine decides with both in hand. */
  #step(answer: TurnEvent): void {
    const { signal } = this.request;
    // Left as it is, for whoever opens the session next; unless it is stored, and only to be told.
    if (endsHere(signal) && this.session.life.unstoredTurn !== undefined) throw signal.reason;
    const state = signal.aborted
      ? stepTurn(this.#state, { type: "cancel", reason: cancelReason(signal) }).state
      : this.#state;
    const next = stepTurn(state, answer);
    this.#state = next.state;
    this.#effects = next.effects;
  }

  /** Does what the machine asks for. What nobody has a hook for is answered at once. */
  #perform(effect: Exclude<TurnEffect, { type: "emit" }>): TurnEvent | Promise<TurnEvent> {
    const { hooks } = this.session;
    switch (effect.type) {
      case "before_turn":
        if (hooks.has("context_transform") || hooks.has("before_turn")) return this.#beforeTurn();
        return { type: "before_turn_done", directives: NO_DIRECTIVES };
      case "prompt":
        return this.context.prompt();
      case "before_model":
        return this.#beforeModel(effect.step);
      case "code":
        return runTurnCode(this, effect);
      case "model":
        return this.#model.ask(effect.step);
      case "tools":
        return runTools(this, effect);
      case "checkpoint":
        return this.#checkpoints.pass(effect.checkpoint);
      case "after_turn":
        if (this.request.keepsInputs && isCancelled(effect.summary)) throw this.request.signal.reason;
        if (!this.#poisoned && (hooks.has("after_turn") || hooks.has("turn_finalized"))) return this.#afterTurn(effect);
        return { type: "after_turn_done", directives: NO_DIRECTIVES };
      case "capture":
        return captureTurn(this);
      case "commit":
        return commitTurn(this, effect, {
          name: this.#name,
          before: this.#before,
          onStored: () => this.ended(),
        });
      case "deliver":
        return hooks.has("turn_persisted") ? this.#deliver(effect) : { type: "delivered" };
    }
  }

  async #beforeTurn(): Promise<TurnEvent> {
    const { signal } = this.request;
    const { past } = this.session;
    const messageCount = past.known ?? (await past.count());
    const facts = (pluginId: string) => ({ ...this.context.beginning(pluginId), messageCount });
    try {
      const prepared = await orRefused("context_prepare_turn", "A context transform failed", () =>
        this.context.prepare(messageCount),
      );
      if (prepared !== undefined) await this.context.adopt(prepared);
      const directives = await orRefused("plugin_prepare_turn", "A beforeTurn hook failed", () =>
        siteDirectives(this, "before_turn", facts, { signal }),
      );
      return { type: "before_turn_done", directives };
    } catch (error) {
      // A turn that was cancelled while its hooks ran is a cancelled turn, not a failed hook.
      if (signal.aborted) return { type: "before_turn_done", directives: NO_DIRECTIVES };
      throw error;
    }
  }

  /** The protocol may leave for another frame instead of calling the model. */
  async #beforeModel(step: number): Promise<TurnEvent> {
    const { protocol, id: sessionId } = this.session;
    const { signal, extras } = this.request;
    const pluginId = protocol.ownerOf("session");
    const context = {
      sessionId,
      turnId: this.facts.turnId,
      step,
      messages: [...this.context.messages, ...this.#state.messages],
      turnOptions: this.context.protocolOptions,
      latestUsage: this.#model.latestUsage,
      extension: extras.extension,
      host: protocolHost(this, { site: "before_llm_call", pluginId }),
      signal,
    };
    try {
      const asked = (async () => protocol.session.beforeLlmCall?.(context))();
      const frame = readFrameSwitch(await untilAborted(asked, signal), pluginId);
      if (frame === undefined) return { type: "before_model_done" };
      this.session.graph.checkNewFrame(frame.frameId);
      const { frameId, task, initialNodes = [] } = frame;
      return { type: "frame_switch", frameId, task, initialNodes };
    } catch (error) {
      return { type: "before_model_failed", issue: issueOf("plugin", "before_llm_call_failed", error) };
    }
  }

  async #afterTurn({ summary }: Extract<TurnEffect, { type: "after_turn" }>): Promise<TurnEvent> {
    const { hooks } = this.session;
    const facts = { ...this.facts, turn: summary };
    const directives = await orRefused("plugin_finalize_turn", "An afterTurn hook failed", () =>
      siteDirectives(this, "after_turn", facts),
    );
    return { type: "after_turn_done", directives, issues: await hooks.announce("turn_finalized", facts) };
  }

  async #deliver({ summary, revision }: Extract<TurnEffect, { type: "deliver" }>): Promise<TurnEvent> {
    const facts = { ...this.facts, turn: summary, revision };
    const issues = await this.session.hooks.announce("turn_persisted", facts);
    return { type: "delivered", issues: [...issues, ...(await settleOrIssue(this.session))] };
  }
}

/** Without what the journal keeps beside them: items are parts by then. */
function plainExtras({ items: _items, parts: _parts, ...extras }: TurnExtras): TurnExtras {
  return extras;
}

function isCancelled({ outcome }: TurnSummary): boolean {
  return outcome.type === "stopped" && outcome.reason === "cancelled";
}

function cancelReason(signal: AbortSignal): string {
  const { reason } = signal;
  return reason instanceof Error ? reason.message : typeof reason === "string" ? reason : "The turn was cancelled.";
}
