import {
  type Activity,
  type CallLayers,
  type CallSettings,
  type CompactionReason,
  contextMessages,
  firstPlace,
  type Json,
  type LedgerEntry,
  type Message,
  NO_DIRECTIVES,
  type PreparedContext,
  type PromptContribution,
  type PromptLayer,
  renderUnsplitPrompt,
  type SessionConfig,
  startTurn,
  stepTurn,
  type TurnDirectives,
  type TurnEffect,
  type TurnEvent,
  type TurnState,
  toldOfCuts,
  turnIdOf,
  type UnstoredMessage,
  type UntimedActivity,
  type Usage,
  wholeContext,
} from "../../kernel/index.js";
import { mergeTurnOptions, type ProtocolTurnOptions, type TurnFacts } from "../../plugin/index.js";
import {
  type AskedTurn,
  endsHere,
  type LeftBehind,
  leftBehind,
  NO_JOURNAL,
  type RecordedCall,
  type RecordedContext,
  StoredJournal,
  type TurnJournal,
} from "../journal/index.js";
import { type HookOptions, readContributions, readPrepared } from "../plugins/index.js";
import type { TurnCatalog } from "../protocol/index.js";
import type { RunningTurn } from "../state/index.js";
import { AskedWith, recordedCall, recordedTurn } from "./asked-with.js";
import { type ContextChanges, noteChanges } from "./context-changes.js";
import type { TurnDeadline } from "./turn-deadline.js";
import {
  cancelReason,
  codeCallsOf,
  deadlineFor,
  promptFailed,
  type TurnBeginning,
  type TurnRequest,
  type TurnSession,
} from "./turn-session.js";
import { VolatileNotes } from "./volatile-notes.js";

/** A running turn: its machine, and what the model is given beside the turn's own messages (the history, the system prompt, the tools). */
export class Turn implements RunningTurn {
  readonly session: TurnSession;
  readonly request: TurnRequest & { readonly emit: (activity: UntimedActivity) => void };
  readonly beginning: TurnBeginning;
  readonly facts: TurnFacts;
  readonly journal: TurnJournal;
  readonly left: LeftBehind | undefined;
  /** What its model is asked with, as its journal has it. */
  readonly asked: AskedWith;
  /** Undefined: it may take as long as it does. */
  readonly deadline: TurnDeadline | undefined;
  readonly protocolOptions: ProtocolTurnOptions | undefined;
  /** What runtime, agent, session and turn say of how models are called, and what that comes to. */
  readonly callLayers: CallLayers;
  readonly calling: CallSettings;
  /** What the model reads before the messages of the turn. */
  history: readonly Message[];
  /** What the session this one was forked from was sent beside that history: read again by its first turn. */
  inherited: readonly UnstoredMessage[];
  system = "";
  /** The system text as releases had it that put what changes every turn into it. */
  unsplitSystem = (): string => "";
  /** What changes every turn, as the prompt has it now. */
  volatile = "";
  /** The same, where the model reads it. */
  readonly notes: VolatileNotes;
  /** Hashes of attachments the turn brought along by its tools and answers: released when it is over. */
  readonly attached: string[] = [];
  /** Of the ids of calls that code makes; the same in every life of the turn, so that it finds what it had done. */
  readonly codeCalls: string | undefined;
  /** The text it is asked with: as it came, or as hooks that replace it left it. */
  input: string;
  /** Hooks may replace that: nothing of it is written before they were asked. */
  readonly replacesInput: boolean;
  readonly isLimited: boolean;
  /** Of the last model call of the turn. */
  latestUsage: Usage | undefined;
  /** Why its conversation was summed up, or tried to be: once for each reason. */
  readonly compacted = new Set<CompactionReason>();
  readonly layers: readonly PromptLayer[];
  /** What the context's transforms add to the prompt. */
  #contributions: readonly PromptContribution[] = NO_CONTRIBUTIONS;
  /** What of the history is read. */
  #context: RecordedContext;
  /** What the `beforeTurn` hooks asked for. */
  directives: TurnDirectives = NO_DIRECTIVES;
  /** Who changed what the model is given; only in development. */
  readonly changes: ContextChanges | undefined;
  #catalog: TurnCatalog | undefined;
  #machine: ReturnType<typeof startTurn>;

  constructor(
    session: TurnSession,
    request: TurnRequest,
    { beginning, history }: { readonly beginning: TurnBeginning; readonly history: readonly Message[] },
  ) {
    const { parts, stopped, unfinished, asked } = beginning;
    this.session = session;
    this.request = { ...request, emit: (told) => request.emit(timed(told, this.now())) };
    this.beginning = beginning;
    const { config } = this;
    const { maxSteps = config.maxSteps, options, prompt, calling, limited = false } = request.extras;
    this.isLimited = limited;
    const callLayers = asked?.calling ?? session.settings.callLayers;
    const promptLayers = asked?.prompt?.layers ?? session.settings.promptLayers;
    session.hooks.failures.turnBegins();
    const turnIndex = session.stored.turnIndex + 1;
    this.facts = { sessionId: session.id, turnId: turnIdOf(turnIndex), turnIndex };
    this.history = this.#told(history);
    this.left = unfinished && leftBehind(session.id, unfinished);
    this.inherited = asked === undefined ? session.past.inherited : (asked.inherited ?? []);
    this.codeCalls = codeCallsOf(session, unfinished);
    const { replacesInput } = session.hooks;
    this.replacesInput = replacesInput && stopped === undefined;
    // An input that is of no use passes no hook.
    this.input = replacesInput && stopped !== undefined ? "" : request.input;
    this.notes = new VolatileNotes(this.facts.turnId);
    this.changes = session.prefixWatch && { messages: [], tools: [], said: [] };
    this.protocolOptions = mergeTurnOptions(session.protocol.turnOptions, options);
    this.callLayers = calling === undefined ? callLayers : { ...callLayers, turn: calling };
    this.calling = session.settings.calling(this.callLayers);
    this.layers = prompt === undefined ? promptLayers : [...promptLayers, prompt];
    const from = config.window === null ? 0 : (session.past.known ?? history.length) - history.length;
    this.#context = asked?.context ?? { from };
    const { journals, onMismatch } = session.services;
    this.journal = journals
      ? new StoredJournal({
          sessionId: session.id,
          turnId: this.facts.turnId,
          clock: session.services.clock,
          write: (entry, unless) => session.stored.record(entry, unless),
          isStored: () => session.stored.turnIndex >= turnIndex,
          hooks: session.hooks,
          usage: session.stored.usage,
          unfinished,
          goesOn: asked !== undefined,
          onCaughtUp: () => request.stop?.heed(),
        })
      : NO_JOURNAL;
    this.deadline = deadlineFor(this);
    const records = journals && onMismatch === "use_recorded";
    this.asked = new AskedWith({ session, journal: this.journal, found: asked, records });
    this.#machine = startTurn({
      input: parts,
      maxSteps,
      noProgressLimit: config.noProgressLimit,
      asksBeforeModel: session.protocol.session.beforeLlmCall !== undefined,
      maxContextTokens: config.maxContextTokens,
      at: this.now(),
      ...this.facts,
      ...(stopped !== undefined && { stopped }),
    });
  }

  /** The time, or when what is found in the journal happened. */
  readonly now = (): number => this.journal.replayedAt ?? this.session.services.clock.wallNow();

  get turnId(): string {
    return this.facts.turnId;
  }

  /** The session's, or what the turn was begun with before a crash. */
  get config(): SessionConfig {
    const { asked } = this.beginning;
    const { config } = this.session.settings;
    return asked === undefined ? config : { ...config, ...asked.config };
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
    const { signal, stop } = this.request;
    stop?.heed();
    // Left as it is, for whoever opens the session next; unless it is stored, and only to be told.
    if (endsHere(signal) && this.session.life.unstoredTurn !== undefined) throw signal.reason;
    const state = signal.aborted
      ? stepTurn(this.state, { type: "cancel", ...(stop?.cancellation ?? { reason: cancelReason(signal) }) }).state
      : this.state;
    this.#machine = stepTurn(state, this.#withFailures(answer), this.now());
  }

  /** What hooks failed at meanwhile, told with the answer: as issues, or as what the turn cannot go on from. */
  #withFailures(answer: TurnEvent): TurnEvent {
    if (answer.type === "cancel") return answer;
    const failed = this.session.hooks.failures.take();
    if (failed === undefined) return answer;
    const { ending } = failed;
    const issues = [...(answer.issues ?? []), ...failed.issues];
    if (ending === undefined) return { ...answer, issues };
    switch (answer.type) {
      case "model_done":
      case "tools_done":
      case "code_done":
        return { ...answer, issues, issue: answer.issue ?? ending };
      default:
        // The turn ends here already, for a reason of its own.
        return { ...answer, issues: [...issues, ending] };
    }
  }

  tellUsage(entry: LedgerEntry): void {
    this.request.emit({ type: "usage", ...entry });
  }

  /** What a plugin is told about the turn's beginning; what the host brought along for it is for nobody else. */
  beginningFor(pluginId: string): TurnFacts & { readonly input: string; readonly pluginInput: Json } {
    const { pluginInputs } = this.request.extras;
    return { input: this.input, pluginInput: pluginInputs?.[pluginId] ?? null, ...this.facts };
  }

  /** Of hooks that are told {@link beginningFor}. */
  get hookOptions(): HookOptions {
    const { signal, extras } = this.request;
    return { signal, inputs: extras.pluginInputs, preparing: this.asked.records && this.state.step === 0 };
  }

  /** The model was called with a catalog before anybody asks for it. */
  get catalog(): TurnCatalog {
    return this.#catalog as TurnCatalog;
  }

  /** The transforms, one after another. They are told how many messages there are, and say which of them they want. */
  async prepare(messageCount: number): Promise<PreparedContext | undefined> {
    const { hooks, past } = this.session;
    const { promptTokens } = past;
    if (!hooks.has("context_transform")) return undefined;
    const { maxContextTokens, window } = this.config;
    let prepared = wholeContext(messageCount, window === null ? 0 : await past.windowStart(window));
    await hooks.each(
      "context_transform",
      (pluginId) => ({ messageCount, promptTokens, maxContextTokens, prepared, ...this.beginningFor(pluginId) }),
      (answer, pluginId) => {
        const before = prepared;
        prepared = readPrepared(answer, before, { messageCount, pluginId });
        if (this.changes !== undefined) noteChanges(this.changes, pluginId, { before, after: prepared });
      },
      this.hookOptions,
    );
    // A tool nobody knows refuses the turn and leaves the session's tools as they are.
    this.session.tools.setOverlay({ includeBase: prepared.includeBaseTools, toolIds: prepared.tools });
    return prepared;
  }

  /** What the transforms left is this turn's context. No more of the history is read than that. */
  async adopt(prepared: PreparedContext): Promise<void> {
    const part = await this.session.past.from(firstPlace(prepared));
    this.history = this.#told(contextMessages(prepared, part, this.facts.turnId));
    this.#contributions = prepared.promptContributions;
    const { messages: pieces, tools, includeBaseTools } = prepared;
    this.#context = { pieces, tools, includeBaseTools };
  }

  /** The history is another one by now: what of it the model is given is found anew. `name`: under which it is recorded. */
  async readAgain(name: string): Promise<void> {
    const { hooks, past } = this.session;
    if (hooks.has("context_transform")) {
      const { prepared } = await this.journal.once<{ readonly prepared: PreparedContext }>({
        key: `${name}:context`,
        envelope: () => null,
        run: async () => ({ prepared: (await this.prepare(await past.count())) as PreparedContext }),
        changes: () => hooks.pluginsWith("context_transform"),
      });
      return this.adopt(prepared);
    }
    const { window } = this.config;
    const from = window === null ? 0 : await past.windowStart(window);
    const { start, messages } = await past.from(from);
    this.history = this.#told(start === from ? messages : messages.slice(from - start));
    this.#context = { from };
  }

  /** What the model reads of the history. Where nothing was ever cut off, none of it is looked at. */
  #told(history: readonly Message[]): readonly Message[] {
    return this.session.past.hasCuts ? toldOfCuts(history) : history;
  }

  /** Takes up what the turn was prepared with: nobody is asked. */
  takeUp({ context, directives = NO_DIRECTIVES, issues = [], prompt }: AskedTurn): TurnEvent {
    this.journal.takeUp();
    this.directives = directives;
    this.#contributions = prompt?.contributions ?? NO_CONTRIBUTIONS;
    if (!("from" in context))
      this.session.tools.layAgain({ includeBase: context.includeBaseTools, toolIds: context.tools });
    return { type: "before_turn_done", directives, issues };
  }

  /** The catalog and the system prompt. Without anybody who contributes it is done at once. */
  prompt(): TurnEvent | Promise<TurnEvent> {
    try {
      const catalog = this.resolveCatalog();
      const known = this.asked.prompt(
        this.state.step,
        !(catalog instanceof Promise) && catalog.preamble.syncExecutionEnvironment,
      );
      if (known !== undefined && !(catalog instanceof Promise)) return this.#asBefore(catalog, known);
      if (catalog instanceof Promise || this.session.hooks.has("prompt_contributor"))
        return this.#contributed(catalog).catch(promptFailed);
      return this.#done(catalog, this.#contributions);
    } catch (error) {
      return promptFailed(error);
    }
  }

  #asBefore(catalog: TurnCatalog, { system, volatile }: RecordedCall): TurnEvent {
    this.#catalog = catalog;
    this.system = system;
    this.volatile = volatile;
    return { type: "prompt_done", syncs: catalog.preamble.syncExecutionEnvironment };
  }

  async #contributed(resolving: TurnCatalog | Promise<TurnCatalog>): Promise<TurnEvent> {
    const catalog = await resolving;
    const contributions = [...this.#contributions];
    if (this.changes !== undefined) this.changes.said = this.changes.said.filter(({ transform }) => transform);
    await this.session.hooks.each(
      "prompt_contributor",
      (pluginId) => ({ tools: catalog.names, ...this.beginningFor(pluginId) }),
      (answer, pluginId) => {
        const said = readContributions(answer, pluginId);
        contributions.push(...said);
        this.changes?.said.push({ pluginId, said });
      },
      this.hookOptions,
    );
    return this.#done(catalog, contributions);
  }

  #done(catalog: TurnCatalog, contributions: readonly PromptContribution[]): TurnEvent {
    const { catalog: catalogs } = this.session;
    const { executionPrompt, promptContributions } = catalog.preamble;
    this.#catalog = catalog;
    const input = {
      instructions: this.config.instructions,
      execution: executionPrompt,
      contributions: promptContributions.length === 0 ? contributions : [...contributions, ...promptContributions],
      layers: this.layers,
      tools: catalog.names,
    };
    const { system, volatile } = catalogs.prompts.prompt(input);
    this.unsplitSystem = () => renderUnsplitPrompt(input);
    this.system = system;
    this.volatile = volatile;
    return { type: "prompt_done", syncs: catalog.preamble.syncExecutionEnvironment };
  }

  /** The tools as they are now, or as a turn that was taken up was asked with them; at once when none changed. */
  resolveCatalog(): TurnCatalog | Promise<TurnCatalog> {
    return (
      this.asked.catalog(this.state.step, this.protocolOptions) ??
      this.session.catalog.resolve(this.facts, this.protocolOptions, this.request.signal)
    );
  }

  /** Writes down what a call is asked with, when that is kept. */
  recordCall(step: number, { specs, preamble }: TurnCatalog): Promise<void> | undefined {
    if (!this.asked.records) return undefined;
    const call = recordedCall(this, specs, preamble.toolSpecs);
    const whole = () =>
      recordedTurn(this, {
        context: this.#context,
        contributions: this.#contributions,
        synced: preamble.syncExecutionEnvironment,
      });
    return this.asked.record(step, call, whole);
  }

  use(catalog: TurnCatalog): void {
    this.#catalog = catalog;
  }
}

/** Whoever tells an activity made it for that: its time is added to it, and not to a copy. */
function timed(told: UntimedActivity & { at?: number }, at: number): Activity {
  told.at = at;
  return told as Activity; // now it has its time
}

const NO_CONTRIBUTIONS: readonly PromptContribution[] = [];
