import { ignore } from "../../async/index.js";
import {
  type LedgerEntry,
  type Message,
  resultOf,
  startTurn,
  stepTurn,
  type TurnEffect,
  type TurnEvent,
  type TurnResult,
  type TurnState,
  turnIdOf,
} from "../../kernel/index.js";
import type { TurnFacts } from "../../plugin/index.js";
import { NO_PLUGIN_OPTIONS, type TurnExtras } from "../calls/index.js";
import {
  endsHere,
  isSuspended,
  NO_JOURNAL,
  StoredJournal,
  type TurnJournal,
  type TurnStart,
  type UnfinishedTurn,
} from "../journal/index.js";
import type { RunningTurn } from "../state/index.js";
import { performEffect } from "./effects.js";
import { type TurnBeginning, TurnContext, type TurnScope } from "./turn-scope.js";
import type { TurnRequest, TurnSession } from "./turn-session.js";

/** Runs one turn: asks the machine what to do, does it, tells the machine what came of it. */
export async function runOneTurn(
  session: TurnSession,
  request: TurnRequest,
  beginning: TurnBeginning,
): Promise<TurnResult> {
  // What the model is not given is not read; what it is, its transforms say.
  const turn = new OneTurn(session, request, { beginning, history: await session.past.ahead(session.hooks) });
  // A turn that had its worker killed before may do so again: it is counted before it can.
  if (beginning.unfinished !== undefined) await resumed(turn, beginning.unfinished);
  else {
    const begun = begin(turn);
    if (request.again === true) await begun;
  }
  session.life.begin(turn);
  try {
    return await turn.run();
  } catch (error) {
    session.inputs.turnFailed();
    // What was refused is not taken up again after a crash.
    if (isSuspended(request.signal)) await leave(turn);
    else if (endsHere(request.signal)) session.life.giveUp(request.signal.reason);
    else if (!session.life.isStale) {
      session.stored.usage.release();
      await session.stored.clearJournal();
    }
    throw error;
  } finally {
    turn.journal.ended();
    session.life.end();
  }
}

/** Writes down what is begun, so that it can be begun again. */
function begin({ journal, request, session, beginning }: TurnScope): Promise<unknown> | undefined {
  const written = journal.begin((): TurnStart => {
    const { input, extras, call, inputIds = [] } = request;
    const { parts, stopped, name, before } = beginning;
    const { pluginOptions, blobs } = session;
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
async function resumed(
  { journal, request, session }: TurnScope,
  { resumed: times, strikes }: UnfinishedTurn,
): Promise<void> {
  const { signal } = request;
  const past = strikes === 0 ? ignore : await session.services.suspects.alone(signal);
  if (endsHere(signal)) throw signal.reason;
  await journal.resume(times, past).catch((error: unknown) => {
    past();
    throw error;
  });
}

/** Left as its journal has it: the runtime closes. */
async function leave({ journal, session }: TurnScope): Promise<void> {
  session.life.suspend();
  await journal.left();
}

/** The machine of a turn and what it works with. */
class OneTurn implements RunningTurn, TurnScope {
  readonly session: TurnSession;
  readonly request: TurnRequest;
  readonly beginning: TurnBeginning;
  readonly facts: TurnFacts;
  readonly context: TurnContext;
  readonly journal: TurnJournal;
  #state: TurnState;
  #effects: readonly TurnEffect[];

  constructor(
    session: TurnSession,
    request: TurnRequest,
    { beginning, history }: { readonly beginning: TurnBeginning; readonly history: readonly Message[] },
  ) {
    const { config } = session.settings;
    const { parts, stopped, unfinished } = beginning;
    const turnIndex = session.stored.turnIndex + 1;
    this.session = session;
    this.request = request;
    this.beginning = beginning;
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

  get state(): TurnState {
    return this.#state;
  }

  get turnId(): string {
    return this.facts.turnId;
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
          const performed = performEffect(this, effect);
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
}

/** Without what the journal keeps beside them: items are parts by then. */
function plainExtras({ items: _items, parts: _parts, ...extras }: TurnExtras): TurnExtras {
  return extras;
}

function cancelReason(signal: AbortSignal): string {
  const { reason } = signal;
  return reason instanceof Error ? reason.message : typeof reason === "string" ? reason : "The turn was cancelled.";
}
