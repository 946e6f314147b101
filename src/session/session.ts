import {
  type AppendNode,
  type AppendRequest,
  type AppendResult,
  type Authority,
  addLedgers,
  addUsage,
  answerKeyOf,
  isZeroUsage,
  type Json,
  type Ledger,
  type LedgerEntry,
  type Message,
  NO_USAGE,
  type Origin,
  type PendingInput,
  PromptCache,
  type PromptLayer,
  type SessionBudget,
  type SessionConfig,
  type SpendingReport,
  type StorableTurn,
  segmentId,
  type ToolOutput,
  TroupeError,
  type TurnResult,
  turnIdOf,
  turnOfFrameTask,
} from "../kernel/index.js";
import type { Model } from "../model/index.js";
import type { SessionView } from "../plugin/index.js";
import { sealEnvelope } from "../store/index.js";
import type { SessionTools } from "../tools/index.js";
import { encode } from "../wire/index.js";
import { Blobs } from "./blobs.js";
import { SessionCatalog } from "./catalog.js";
import { Completions } from "./completions.js";
import { COMPONENT } from "./components.js";
import { SessionHooks } from "./hooks.js";
import type { SessionPluginOptions } from "./protocol.js";
import { Receipts } from "./receipts.js";
import { appendNodes, openFrame } from "./session-graph.js";
import { SessionHistory } from "./session-history.js";
import type { SessionInputs } from "./session-inputs.js";
import { betweenTurns, isUnsettled, mayPark, SessionLife } from "./session-life.js";
import type { NewFrame, SessionParts, SessionServices, TurnCommit } from "./session-parts.js";
import type { SessionProtocol } from "./session-protocol.js";
import { Spending } from "./spending.js";
import { StoredSession } from "./stored-session.js";
import type { Surface } from "./surface.js";
import { type KeptTurn, type TurnKey, TurnKeys } from "./turn-keys.js";

/** One session's state on its worker: the head, the history (once something needs it), its plugins' slots. */
export class Session {
  readonly id: string;
  readonly services: SessionServices;
  readonly surface: Surface;
  readonly hooks: SessionHooks;
  readonly tools: SessionTools;
  readonly authority: Authority;
  readonly protocol: SessionProtocol;
  readonly catalog: SessionCatalog;
  readonly inputs: SessionInputs;
  /** What it was opened with. */
  readonly pluginOptions: SessionPluginOptions;
  readonly prompts = new PromptCache();
  readonly #turnKeys: TurnKeys;
  /** What was asked for under a key, and what came of it. */
  readonly receipts: Receipts;
  readonly blobs: Blobs;
  readonly spending: Spending;
  /** Tool calls whose answer comes from outside. */
  readonly completions = new Completions();
  /** Tokens the last model call read. */
  promptTokens: number | null = null;
  /** Sessions this one's plugins made: it may see them, whatever their relation. */
  readonly created = new Set<string>();
  /** Where it is in its turns. */
  readonly life: SessionLife;
  /** What of it is stored, and what is still to be. */
  readonly stored: StoredSession;
  /** The messages of its current frame. */
  readonly past: SessionHistory;
  #config: SessionConfig;
  #promptLayers: readonly PromptLayer[];

  constructor(parts: SessionParts) {
    this.id = parts.id;
    this.life = new SessionLife(parts.chart);
    this.services = parts.services;
    this.surface = parts.surface;
    this.hooks = new SessionHooks(parts.surface.table, parts.slots);
    this.tools = parts.tools;
    this.authority = parts.authority;
    this.protocol = parts.protocol;
    this.inputs = parts.inputs;
    this.pluginOptions = parts.pluginOptions;
    this.#config = parts.config;
    this.#promptLayers = layersOf(parts.services, parts.config);
    const { store, surfaces } = parts.services;
    this.blobs = new Blobs(store);
    this.stored = new StoredSession({
      id: parts.id,
      store,
      head: parts.head,
      blobs: this.blobs,
      slots: this.hooks.slots,
      pluginIds: (index) => surfaces.links[index]?.manifest.id ?? "",
      messageCount: () => this.past.known,
      onWriteFailed: (error) => this.life.giveUp(error),
    });
    this.past = new SessionHistory(store, parts.head);
    this.spending = new Spending(parts.budget, parts.services.prices, () => this.spentSoFar());
    this.#turnKeys = new TurnKeys(store);
    this.receipts = new Receipts({
      store,
      head: () => this.stored.head,
      changed: (component, bytes) => this.stored.change(component, bytes),
    });
    this.catalog = new SessionCatalog(this);
  }

  /** Was the last turn that was stored this call's? */
  storedCall(call: string): boolean {
    return this.stored.head?.lastCall === call;
  }

  get config(): SessionConfig {
    return this.#config;
  }

  /** The model a turn names, or the session's own. */
  modelNamed(name: string = this.#config.model ?? ""): Model {
    const model = this.services.models.get(name);
    if (model !== undefined) return model;
    const known = [...this.services.models.keys()].filter((other) => other !== "");
    throw new TroupeError(
      "model_unknown",
      `There is no model ${name}. ${known.length === 0 ? "Give the runtime its models." : `There are: ${known.join(", ")}.`}`,
      { details: { model: name } },
    );
  }

  /** What host and session put into the prompt, the later the stronger. The same list until one of them changes. */
  get promptLayers(): readonly PromptLayer[] {
    return this.#promptLayers;
  }

  get turnIndex(): number {
    return this.stored.head?.turnIndex ?? 0;
  }

  get revision(): number {
    return this.stored.revision;
  }

  get parentId(): string | undefined {
    return this.stored.head?.parent?.sessionId;
  }

  get frameId(): string {
    return this.stored.frameId;
  }

  /** Reads what the next turn will need, unless its context transforms are to say what that is. */
  async resume(): Promise<void> {
    if (!this.hooks.has("context_transform")) await this.past.read();
  }

  /** The session as plugins see it: small, and with what the running turn has added. */
  async view(): Promise<SessionView> {
    const messageCount = await this.past.count();
    const head = this.stored.head;
    const turn = this.life.unstoredTurn;
    return {
      sessionId: this.id,
      parentSessionId: this.parentId ?? null,
      config: this.#config,
      revision: this.revision,
      turnIndex: this.turnIndex,
      running: this.life.turn !== undefined,
      messageCount: messageCount + (turn?.messages.length ?? 0),
      leafNodeId: head?.leaf ?? null,
      frameId: this.frameId,
      frames: head?.frames ?? [],
      usage: addUsage(head?.usage ?? NO_USAGE, turn?.usage ?? NO_USAGE),
      ledger: this.spentSoFar(),
      toolGeneration: this.tools.generation,
      pluginFingerprint: String(this.hooks.fingerprint()),
      components: head?.components ?? {},
    };
  }

  /** Messages by their places, the running turn's included; negative places count from the end. */
  async messages(from = 0, to?: number): Promise<readonly Message[]> {
    return this.past.slice(from, to, () => this.life.unstoredTurn?.messages ?? []);
  }

  /** Stores a turn in one atomic write and adopts it; resolves when it is durable. */
  async commit(
    { summary, messages, spent, modelCallRecords }: StorableTurn,
    { name, before, call, entering }: TurnCommit,
  ): Promise<number> {
    if (this.past.known === undefined) await this.past.count();
    const written = await this.stored.write((previous, revision) => {
      if (name !== undefined) {
        const result = { ...summary, sessionId: this.id, revision, modelCallRecords, ...(before && { before }) };
        this.stored.change(...this.#turnKeys.keep(name, result));
      }
      const inputs = this.inputs.pending.length === 0 ? undefined : this.inputs.settled();
      if (inputs !== undefined) this.inputsChanged(inputs);
      if (entering !== undefined) this.stored.change(COMPONENT.entering, encode(entering));
      return {
        ...(call !== undefined && { exactOperation: turnOperation(call, summary.turnIndex) }),
        operation: `turn:${summary.turnId}`,
        clearsJournal: this.services.journals,
        ...(messages.length > 0 && {
          segment: { id: segmentId(this.id, revision), parent: previous?.leaf ?? null, messages },
        }),
        head: {
          turnIndex: summary.turnIndex,
          usage: addUsage(previous?.usage ?? NO_USAGE, summary.usage),
          ...(call !== undefined && { lastCall: call }),
        },
        spent,
        adopted: () => {
          this.past.grow(messages);
          this.life.turnStored();
          if (inputs !== undefined) this.inputs.turnStored(inputs);
        },
      };
    });
    return written.revision;
  }

  /** What a turn of this name came to, when there was one. */
  turnNamed(name: TurnKey): Promise<TurnResult | undefined> {
    return this.#turnKeys.find(this.stored.head, name);
  }

  /** The turn that left an input for its next frame, when it was named by a key. */
  async leftOff(inputIds: readonly string[]): Promise<KeptTurn | undefined> {
    const [inputId, ...others] = inputIds;
    const turnId = inputId === undefined || others.length > 0 ? undefined : turnOfFrameTask(inputId);
    return turnId === undefined ? undefined : this.#turnKeys.leftOff(this.stored.head, turnId);
  }

  /** Stored with the next commit. */
  inputsChanged(inputs: readonly PendingInput[]): void {
    this.stored.change(COMPONENT.inputs, inputs.length === 0 ? null : encode(inputs));
  }

  /** Stores state that changed since the last commit; a session that never had a turn stays unstored unless `always`. */
  async save({ always = false, unless = never }: SaveOptions = {}): Promise<void> {
    // One plugin whose state cannot be captured does not cost the others theirs.
    const captures = await Promise.allSettled([this.hooks.capture(), this.captureExecution()]);
    // A turn that began meanwhile stores it itself.
    const wanted = () => betweenTurns(this.life.now) && !unless() && this.stored.hasChanges;
    if (always || this.stored.head !== undefined)
      await this.stored.write(() => (wanted() ? { operation: "save" } : undefined));
    for (const captured of captures) if (captured.status === "rejected") throw captured.reason;
  }

  /** Something may have changed behind the last write that no turn is about to store. */
  get isUnsettled(): boolean {
    if (!isUnsettled(this.life.now) || this.stored.head === undefined) return false;
    return this.hooks.needCapture || this.stored.hasChanges || this.protocol.codeExecutor !== undefined;
  }

  /**
   * Stores what hooks changed behind the last write. Whatever was asked of a session, its answer finds everything stored:
   * what is on the disk does not depend on when a session is parked, and a crash right after takes nothing back.
   * `unless`: somebody else is about to.
   */
  async settle(unless = never): Promise<void> {
    if (this.isUnsettled && !unless()) await this.save({ unless });
  }

  /** Nothing waits that would begin as soon as the session is idle. */
  get mayPark(): boolean {
    return mayPark(this.life.now) && !this.inputs.waitForTurn;
  }

  /** Stores what an operation told and what it changed, in one write, also for a session that was never stored. */
  async storeOutcome(nodes: readonly AppendNode[], origin: Origin): Promise<void> {
    const [captured] = await Promise.allSettled([this.hooks.capture()]);
    if (nodes.length > 0) await this.append({ nodes }, origin);
    else if (this.stored.hasChanges) await this.store("operation");
    if (captured.status === "rejected") throw captured.reason;
  }

  /** Answers a tool call that waits for it; resolves when the answer cannot be lost any more. */
  completeTool(key: string, output: ToolOutput): Promise<void> {
    const { turnId } = this.life.turn ?? this.life.unfinished ?? {};
    return this.completions.complete(key, output, async () => {
      if (!this.services.journals || turnId === undefined) return;
      await this.stored.record({ turnId, key: answerKeyOf(key), ...sealEnvelope(null), bytes: encode(output) });
    });
  }

  /** A turn was refused: nothing of it is to be taken up again. */
  async clearJournal(): Promise<void> {
    if (this.services.journals) await this.stored.clearJournal();
  }

  /** Stores what changed beside the history, also for a session that was never stored; another write may have by then. */
  async store(operation: string): Promise<void> {
    await this.stored.write(() => (this.stored.hasChanges ? { operation } : undefined));
  }

  /** The same, unless a running turn will store it. */
  async storeBetweenTurns(operation: string): Promise<void> {
    if (betweenTurns(this.life.now)) await this.store(operation);
  }

  /** Appends nodes behind the stored leaf, under an operation id once. A running turn's own messages follow when it commits. */
  append(request: AppendRequest, origin: Origin): Promise<AppendResult> {
    const { operationId } = request;
    if (operationId === undefined) return appendNodes(this, request, origin);
    return this.receipts.append(operationId, request, (keep) => appendNodes(this, request, origin, keep));
  }

  /** Throws `frame_exists` for the current frame and those that were left. */
  checkNewFrame(frameId: string): void {
    if (frameId !== this.frameId && this.stored.head?.frames?.some((left) => left.frameId === frameId) !== true) return;
    throw new TroupeError("frame_exists", `Session ${this.id} already has a frame ${frameId}.`, {
      details: { sessionId: this.id, frameId },
    });
  }

  /** Leaves the current frame for a new one. */
  openFrame(frame: NewFrame): Promise<void> {
    return openFrame(this, frame);
  }

  /** Says what the session may spend, at once: a turn that waits for it goes on. */
  async setBudget(budget: SessionBudget | null): Promise<SpendingReport> {
    this.stored.change(COMPONENT.budget, encode({ budget }));
    await this.store("budget");
    this.spending.set(budget);
    return this.spending.report();
  }

  setConfig(config: SessionConfig): void {
    this.#config = config;
    this.#promptLayers = layersOf(this.services, config);
    this.stored.change(COMPONENT.config, encode(config));
  }

  /** The tools are composed anew, and the catalogs and prompts made of them forgotten. */
  refreshTools(): void {
    this.tools.rebind(this.surface.registry);
    this.invalidate();
  }

  /** What is kept for speed alone is made anew when it is next needed. */
  invalidate(): void {
    this.catalog.invalidate();
    this.prompts.clear();
  }

  /** The tools changed: they are stored with the next commit. */
  toolsChanged(): void {
    this.stored.change(COMPONENT.tools, this.tools.edited ? encode(this.tools.exportState()) : null);
  }

  protocolOptionsChanged(): void {
    const { turnOptions } = this.protocol;
    this.stored.change(COMPONENT.protocol, turnOptions === undefined ? null : encode(turnOptions));
  }

  /** What an extension changes in the code executor is stored before it is answered. */
  async extend(extension: Json): Promise<void> {
    await this.protocol.applyExtension(extension);
    if ((await this.captureExecution()) !== undefined) await this.store("extension");
  }

  /** The code executor's state, when it is dirty: stored with the next commit. */
  async captureExecution(): Promise<Uint8Array | null | undefined> {
    const state = await this.protocol.captureExecution();
    if (state !== undefined) this.stored.change(COMPONENT.execution, state);
    return state;
  }

  /** The executor goes on from this state instead of its own. */
  async restoreExecution(state: Uint8Array | null): Promise<void> {
    await this.protocol.restoreExecution(state);
    this.stored.change(COMPONENT.execution, state);
  }

  /** Counts usage that is not of the session's own turns. Written with the running turn, or else at once. */
  async recordUsage(entry: LedgerEntry): Promise<void> {
    if (isZeroUsage(entry.usage)) return;
    this.stored.countUsage(entry);
    this.life.turn?.tellUsage(entry);
    await this.storeBetweenTurns("usage");
  }

  /** Everything the session has spent, the running turn's calls included. */
  spentSoFar(): Ledger {
    return addLedgers(this.stored.ledger, this.life.unstoredTurn?.spent ?? []);
  }

  close(): void {
    this.hooks.close();
  }
}

interface SaveOptions {
  /** Also what was never stored. */
  readonly always?: boolean;
  /** Somebody else stores it, with what it is about. */
  readonly unless?: () => boolean;
}

const never = () => false;

function layersOf({ prompt: host }: SessionServices, { prompt: own }: SessionConfig): readonly PromptLayer[] {
  return [...(host === undefined ? [] : [host]), ...(own === null ? [] : [own])];
}

function turnOperation(call: string, turnIndex: number): string {
  return `turn:${call}:${turnIdOf(turnIndex)}`;
}
