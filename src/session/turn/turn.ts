import {
  contextMessages,
  firstPlace,
  foldTurnDirectives,
  type Json,
  type LedgerEntry,
  type Message,
  NO_DIRECTIVES,
  type Owned,
  type Part,
  type PreparedContext,
  type PromptContribution,
  type PromptLayer,
  startTurn,
  stepTurn,
  TroupeError,
  type TurnConfig,
  type TurnDirective,
  type TurnDirectives,
  type TurnEffect,
  type TurnEvent,
  type TurnIssue,
  type TurnResult,
  type TurnState,
  turnIdOf,
  type Usage,
  wholeContext,
} from "../../kernel/index.js";
import type { Model } from "../../model/index.js";
import {
  type HookFacts,
  hostFacade,
  mergeTurnOptions,
  type ProtocolTurnOptions,
  RUNTIME_SESSION_HOST,
  type RuntimeSessionHost,
  type TurnFacts,
} from "../../plugin/index.js";
import { performDirectives } from "../host-services/index.js";
import { endsHere, NO_JOURNAL, StoredJournal, type TurnJournal, type UnfinishedTurn } from "../journal/index.js";
import { AskingCall, type HookOptions, readContributions, readPrepared } from "../plugins/index.js";
import type { TurnCatalog } from "../protocol/index.js";
import type { RunningTurn } from "../state/index.js";
import type { TurnKey } from "../stored/index.js";
import { issueOf, type TurnRequest, type TurnSession } from "./turn-session.js";

/** What a turn begins with, let in: its model, and its input as a message keeps it. */
export interface Admitted {
  readonly model: Model;
  readonly parts: readonly Part[];
  /** The input is of no use: such a turn is recorded, but does nothing. */
  readonly stopped?: NonNullable<TurnConfig["stopped"]>;
}

/** What a turn begins with. */
export interface TurnBeginning extends Admitted {
  readonly name: TurnKey | undefined;
  /** What came of the turns before it, in the frames it came from. */
  readonly before?: readonly TurnResult[];
  /** It killed its worker too often: it is stored, and no hook sees it. */
  readonly poisoned?: boolean;
  /** Set when a crash left the turn behind. */
  readonly unfinished?: UnfinishedTurn;
}

/** A running turn: its machine, and what the model is given beside the turn's own messages (the history, the system prompt, the tools). */
export class Turn implements RunningTurn {
  readonly session: TurnSession;
  readonly request: TurnRequest;
  readonly beginning: TurnBeginning;
  readonly facts: TurnFacts;
  readonly journal: TurnJournal;
  readonly protocolOptions: ProtocolTurnOptions | undefined;
  /** What the model reads before the messages of the turn. */
  history: readonly Message[];
  system = "";
  /** Of the last model call of the turn. */
  latestUsage: Usage | undefined;
  readonly #layers: readonly PromptLayer[];
  /** What the context's transforms add to the prompt. */
  #contributions: readonly PromptContribution[] = NO_CONTRIBUTIONS;
  #catalog: TurnCatalog | undefined;
  #machine: ReturnType<typeof startTurn>;

  constructor(
    session: TurnSession,
    request: TurnRequest,
    { beginning, history }: { readonly beginning: TurnBeginning; readonly history: readonly Message[] },
  ) {
    const { config, promptLayers } = session.settings;
    const { maxSteps = config.maxSteps, options, prompt } = request.extras;
    const { parts, stopped, unfinished } = beginning;
    const turnIndex = session.stored.turnIndex + 1;
    this.session = session;
    this.request = request;
    this.beginning = beginning;
    this.facts = { sessionId: session.id, turnId: turnIdOf(turnIndex), turnIndex };
    this.history = history;
    this.protocolOptions = mergeTurnOptions(session.protocol.turnOptions, options);
    this.#layers = prompt === undefined ? promptLayers : [...promptLayers, prompt];
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
    this.#machine = startTurn({
      ...this.facts,
      input: parts,
      ...(stopped !== undefined && { stopped }),
      maxSteps,
      noProgressLimit: config.noProgressLimit,
      asksBeforeModel: session.protocol.session.beforeLlmCall !== undefined,
      maxContextTokens: config.maxContextTokens,
    });
  }

  get turnId(): string {
    return this.facts.turnId;
  }

  /** The machine's, as it is now. */
  get state(): TurnState {
    return this.#machine.state;
  }

  /** What the machine asks to be done next. */
  get effects(): readonly TurnEffect[] {
    return this.#machine.effects;
  }

  /** A cancellation during the effect comes before its answer, so the machine decides with both in hand. */
  step(answer: TurnEvent): void {
    const { signal } = this.request;
    // Left as it is, for whoever opens the session next; unless it is stored, and only to be told.
    if (endsHere(signal) && this.session.life.unstoredTurn !== undefined) throw signal.reason;
    const state = signal.aborted
      ? stepTurn(this.state, { type: "cancel", reason: cancelReason(signal) }).state
      : this.state;
    this.#machine = stepTurn(state, answer);
  }

  tellUsage(entry: LedgerEntry): void {
    this.request.emit({ type: "usage", ...entry });
  }

  /** What a plugin is told about the turn's beginning; what the host brought along for it is for nobody else. */
  beginningFor(pluginId: string): TurnFacts & { readonly input: string; readonly pluginInput: Json } {
    const { input, extras } = this.request;
    return { ...this.facts, input, pluginInput: extras.pluginInputs?.[pluginId] ?? null };
  }

  /** The model was called with a catalog before anybody asks for it. */
  get catalog(): TurnCatalog {
    return this.#catalog as TurnCatalog;
  }

  /** The transforms, one after another. They are told how many messages there are, and say which of them they want. */
  async prepare(messageCount: number): Promise<PreparedContext | undefined> {
    const { hooks, settings, past } = this.session;
    const { promptTokens } = past;
    if (!hooks.has("context_transform")) return undefined;
    const { maxContextTokens } = settings.config;
    let prepared = wholeContext(messageCount);
    await hooks.each(
      "context_transform",
      (pluginId) => ({ ...this.beginningFor(pluginId), messageCount, promptTokens, maxContextTokens, prepared }),
      (answer, pluginId) => {
        prepared = readPrepared(answer, prepared, { messageCount, pluginId });
      },
      { signal: this.request.signal },
    );
    // A tool nobody knows refuses the turn and leaves the session's tools as they are.
    this.session.tools.setOverlay({ includeBase: prepared.includeBaseTools, toolIds: prepared.tools });
    return prepared;
  }

  /** What the transforms left is this turn's context. No more of the history is read than that. */
  async adopt(prepared: PreparedContext): Promise<void> {
    const part = await this.session.past.from(firstPlace(prepared));
    this.history = contextMessages(prepared, part, this.facts.turnId);
    this.#contributions = prepared.promptContributions;
  }

  /** The catalog and the system prompt. Without anybody who contributes it is done at once. */
  prompt(): TurnEvent | Promise<TurnEvent> {
    try {
      const catalog = this.resolveCatalog();
      if (catalog instanceof Promise || this.session.hooks.has("prompt_contributor"))
        return this.#contributed(catalog).catch(promptFailed);
      return this.#done(catalog, this.#contributions);
    } catch (error) {
      return promptFailed(error);
    }
  }

  async #contributed(resolving: TurnCatalog | Promise<TurnCatalog>): Promise<TurnEvent> {
    const catalog = await resolving;
    const contributions = [...this.#contributions];
    await this.session.hooks.each(
      "prompt_contributor",
      (pluginId) => ({ ...this.beginningFor(pluginId), tools: catalog.names }),
      (answer, pluginId) => contributions.push(...readContributions(answer, pluginId)),
      { signal: this.request.signal },
    );
    return this.#done(catalog, contributions);
  }

  #done(catalog: TurnCatalog, contributions: readonly PromptContribution[]): TurnEvent {
    const { settings, catalog: catalogs } = this.session;
    const { executionPrompt, promptContributions, syncExecutionEnvironment } = catalog.preamble;
    this.#catalog = catalog;
    this.system = catalogs.prompts.prompt({
      instructions: settings.config.instructions,
      execution: executionPrompt,
      contributions: promptContributions.length === 0 ? contributions : [...contributions, ...promptContributions],
      layers: this.#layers,
      tools: catalog.names,
    });
    return { type: "prompt_done", syncs: syncExecutionEnvironment };
  }

  /** The tools as they are now; at once when none changed. */
  resolveCatalog(): TurnCatalog | Promise<TurnCatalog> {
    return this.session.catalog.resolve(this.facts, this.protocolOptions, this.request.signal);
  }

  use(catalog: TurnCatalog): void {
    this.#catalog = catalog;
  }
}

export function promptFailed(error: unknown): TurnEvent {
  return { type: "prompt_failed", issue: issueOf("plugin", "plugin_prompt", error) };
}

const NO_CONTRIBUTIONS: readonly PromptContribution[] = [];

function cancelReason(signal: AbortSignal): string {
  const { reason } = signal;
  return reason instanceof Error ? reason.message : typeof reason === "string" ? reason : "The turn was cancelled.";
}

/** A site's directives: what is done at once is done, the rest is folded. */
export async function siteDirectives<S extends "before_turn" | "checkpoint" | "after_turn">(
  { session }: Turn,
  site: S,
  facts: HookFacts[S] | ((pluginId: string) => HookFacts[S]),
  options: HookOptions = {},
): Promise<TurnDirectives> {
  const directives = await session.hooks.directives(site, facts, options);
  if (directives.length === 0) return NO_DIRECTIVES;
  await performDirectives(session, directives);
  return foldTurnDirectives(directives as readonly Owned<TurnDirective>[]);
}

/** The host services of the protocol: it is part of the turn and may do what the runtime may. */
export function protocolHost(
  { session, state, request: { signal } }: Turn,
  { site, pluginId }: { readonly site: "before_llm_call" | "code"; readonly pluginId: string },
): RuntimeSessionHost {
  const asking = new AskingCall(`${site}:${pluginId}:${state.step}`);
  const request = { sessionId: session.id, pluginId, granted: RUNTIME_SESSION_HOST, signal, asking };
  const host = hostFacade(RUNTIME_SESSION_HOST, (method, args) => session.services.host({ ...request, method, args }));
  // The facade has the methods of every interface it was given.
  return host as RuntimeSessionHost;
}

/** The turn does not do what it did before the crash: it is stopped and says where. Anything else refuses it. */
export function replayIssue(error: unknown): TurnIssue {
  if (!(error instanceof TroupeError) || error.code !== "replay_mismatch") throw error;
  return { kind: "runtime", code: error.code, message: error.message };
}
