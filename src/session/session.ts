import { randomUUID } from "node:crypto";
import {
  type AppendNode,
  type AppendRequest,
  type AppendResult,
  type Authority,
  addEntry,
  addLedgers,
  addUsage,
  type CatalogOverlay,
  type CheckpointKind,
  type Commit,
  FIRST_FRAME,
  type Head,
  type InputItem,
  isConversation,
  isZeroUsage,
  type Json,
  type Ledger,
  type LedgerEntry,
  ledgerOf,
  ledgerSince,
  type Message,
  type ModelPrices,
  messageOfNode,
  NO_USAGE,
  nodeId,
  type Origin,
  type PendingInput,
  PromptCache,
  type PromptLayer,
  type SessionBudget,
  type SessionConfig,
  segmentId,
  sharingOwn,
  type ToolOutput,
  TroupeError,
  type TurnResult,
  type TurnSummary,
  turnIdOf,
  turnOfFrameTask,
  type Usage,
} from "../kernel/index.js";
import type { Model } from "../model/index.js";
import type { SessionView } from "../plugin/index.js";
import { type StoreClient, sealEnvelope } from "../store/index.js";
import type { SessionTools, ToolHomes, ToolLimits } from "../tools/index.js";
import { encode } from "../wire/index.js";
import { Blobs, haveAttachments, storedParts } from "./blobs.js";
import { SessionCatalog } from "./catalog.js";
import { answerKeyOf, Completions } from "./completions.js";
import { applyComponents, ChangedComponents, COMPONENT, ComponentReader, pluginComponent } from "./components.js";
import { turnAtNode } from "./fork-point.js";
import { SessionHooks } from "./hooks.js";
import type { HostRelay, TraceSink } from "./host-relay.js";
import type { JournalWriter, UnfinishedTurn } from "./journal.js";
import type { PluginSlot } from "./plugin-link.js";
import type { MessageRange, SessionPluginOptions } from "./protocol.js";
import { type KeepAppend, Receipts } from "./receipts.js";
import type { SessionInputs } from "./session-inputs.js";
import type { SessionProtocol } from "./session-protocol.js";
import { Spending, type SpendingReport } from "./spending.js";
import type { Surface, Surfaces } from "./surface.js";
import type { Suspects } from "./suspects.js";
import { type KeptTurn, type TurnKey, TurnKeys } from "./turn-keys.js";

/** What every session of a worker shares. */
export interface SessionServices {
  readonly store: StoreClient;
  /** The host's models by name; what it gave as `model` is under "". */
  readonly models: ReadonlyMap<string, Model>;
  /** The host's share of every system prompt. */
  readonly prompt: PromptLayer | undefined;
  /** What sessions may spend until somebody says otherwise, and what models cost. */
  readonly budget: SessionBudget | null;
  readonly prices: ModelPrices;
  readonly surfaces: Surfaces;
  readonly homes: ToolHomes;
  /** What a session is configured with until somebody says otherwise. */
  readonly config: SessionConfig;
  readonly mailboxLimit: number;
  readonly limits: ToolLimits;
  /** To other sessions and the host, by way of the main thread. */
  readonly relay: HostRelay;
  readonly trace: TraceSink;
  /** Turns are written down as they go, and taken up again after a crash. */
  readonly journals: boolean;
  readonly suspects: Suspects;
}

/** What a fork takes along: references to what is stored, and the bytes of what is not. */
export interface SessionSnapshot {
  readonly parent: { readonly sessionId: string; readonly leaf: string | null };
  readonly turnIndex: number;
  readonly components: Readonly<Record<string, string>>;
  /** Component name → bytes, for state that changed since the last commit. */
  readonly unsaved: Readonly<Record<string, Uint8Array>>;
}

/** What is to wait for a turn. With a boundary for the running one, from that checkpoint on. */
export interface InputRequest {
  readonly text: string;
  /** All of it, when it is more than a text. */
  readonly items: readonly InputItem[] | undefined;
  readonly key: string | undefined;
  readonly boundary: CheckpointKind | undefined;
}

/** What goes with a turn's commit beside its messages. */
export interface TurnCommit {
  /** By its own model calls. */
  readonly spent: Ledger;
  readonly modelCallRecords: TurnResult["modelCallRecords"];
  readonly name: TurnKey | undefined;
  /** Of the turns before it, in the frames it came from. */
  readonly before: readonly TurnResult[] | undefined;
  readonly call: string | undefined;
  /** The frame it leaves for: entered next, also when a crash comes between. */
  readonly entering: NewFrame | undefined;
}

/** A frame to be entered. */
export interface NewFrame {
  readonly frameId: string;
  readonly reason: string;
  readonly nodes: readonly AppendNode[];
  readonly origin: Origin;
  /** What is to be done there: it waits for the next turn. */
  readonly task?: Pick<PendingInput, "id" | "text">;
}

/** A turn as the session knows it while it runs. */
export interface RunningTurn {
  readonly turnId: string;
  /** What the turn has added and is not stored yet: nothing once it is. */
  readonly messages: readonly Message[];
  readonly usage: Usage;
  readonly spent: Ledger;
  /** Set by the session when it is; its last hooks are still to be told. */
  stored: boolean;
  readonly tellUsage: (entry: LedgerEntry) => void;
}

export interface SessionParts {
  readonly id: string;
  readonly services: SessionServices;
  readonly head: Head | undefined;
  readonly surface: Surface;
  readonly slots: readonly (PluginSlot | undefined)[];
  readonly tools: SessionTools;
  readonly config: SessionConfig;
  readonly budget: SessionBudget | null;
  readonly authority: Authority;
  readonly overlay: CatalogOverlay;
  readonly protocol: SessionProtocol;
  readonly inputs: SessionInputs;
  readonly pluginOptions: SessionPluginOptions;
}

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
  /** Set while a turn runs. */
  running: RunningTurn | undefined;
  /** A turn a crash left behind, until it is taken up again. */
  unfinished: UnfinishedTurn | undefined;
  #config: SessionConfig;
  #head: Head | undefined;
  #history: Message[] | undefined;
  /** Set while it is being read. */
  #reading: Promise<readonly Message[]> | undefined;
  #hasAttachments = false;
  #promptLayers: readonly PromptLayer[];
  #stale = false;
  readonly #changed = new ChangedComponents();
  /** Usage of other sources that no commit has written yet. */
  #unwrittenUsage: Ledger = [];
  /** The write under way: one at a time, because each builds on the head before. */
  #writing: Promise<unknown> | undefined;

  constructor(parts: SessionParts) {
    this.id = parts.id;
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
    this.blobs = new Blobs(parts.services.store);
    this.spending = new Spending(parts.budget, parts.services.prices, () => this.spentSoFar());
    this.#turnKeys = new TurnKeys(parts.services.store);
    this.receipts = new Receipts({
      store: parts.services.store,
      head: () => this.#head,
      changed: (component, bytes) => this.#changed.set(component, bytes),
    });
    this.#head = parts.head && { ...parts.head, ledger: ledgerOf(parts.head) };
    this.catalog = new SessionCatalog(this);
  }

  /** Its turn was left in the middle, as its journal has it. */
  suspended = false;

  /** Was the last turn that was stored this call's? */
  storedCall(call: string): boolean {
    return this.#head?.lastCall === call;
  }

  /** A commit failed: the session must be opened again before it can go on. */
  get stale(): boolean {
    return this.#stale;
  }

  /** What is here is not to be gone on with: the next message opens the session anew, unless it could not be either. */
  giveUp(error?: unknown): void {
    this.#stale = true;
    if (error instanceof TroupeError && error.code === "store_lost") this.givenUpFor = error;
  }

  /** Why it cannot be opened again. */
  givenUpFor: TroupeError | undefined;

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

  /** Something in the current frame has an attachment. */
  get hasAttachments(): boolean {
    return this.#hasAttachments;
  }

  get turnIndex(): number {
    return this.#head?.turnIndex ?? 0;
  }

  get revision(): number {
    return this.#head?.revision ?? 0;
  }

  get parentId(): string | undefined {
    return this.#head?.parent?.sessionId;
  }

  get frameId(): string {
    return this.#head?.frameId ?? FIRST_FRAME;
  }

  /** The messages of the current frame, read when something first needs them: opening and forking cost the same at any length. */
  history(): Promise<readonly Message[]> {
    if (this.#history !== undefined) return Promise.resolve(this.#history);
    this.#reading ??= this.#readHistory().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #readHistory(): Promise<readonly Message[]> {
    const path = await this.services.store.history(this.#head?.leaf ?? null);
    // The frame may have been left meanwhile: then this is no longer the history.
    if (this.#history === undefined) {
      this.#history = path.filter(isConversation);
      this.#hasAttachments = haveAttachments(this.#history);
    }
    return this.#history;
  }

  #grow(messages: readonly Message[]): void {
    this.#history?.push(...messages);
    this.#hasAttachments ||= haveAttachments(messages);
  }

  /** The session as plugins see it: small, and with what the running turn has added. */
  async view(): Promise<SessionView> {
    const history = await this.history();
    const head = this.#head;
    const { running } = this;
    return {
      sessionId: this.id,
      parentSessionId: this.parentId ?? null,
      config: this.#config,
      revision: this.revision,
      turnIndex: this.turnIndex,
      running: running !== undefined,
      messageCount: history.length + (running?.messages.length ?? 0),
      leafNodeId: head?.leaf ?? null,
      frameId: this.frameId,
      frames: head?.frames ?? [],
      usage: addUsage(head?.usage ?? NO_USAGE, running?.usage ?? NO_USAGE),
      ledger: this.spentSoFar(),
      toolGeneration: this.tools.generation,
      pluginFingerprint: String(this.hooks.fingerprint()),
      components: head?.components ?? {},
    };
  }

  /** Messages by their places, the running turn's included; negative places count from the end. */
  async messages(from = 0, to?: number): Promise<readonly Message[]> {
    const all = [...(await this.history()), ...(this.running?.messages ?? [])];
    return all.slice(from, to);
  }

  /** Messages of any frame as they are stored, the running turn's not among them. */
  async storedMessages({
    from = 0,
    to,
    frameId = this.frameId,
    records = false,
  }: MessageRange): Promise<readonly Message[]> {
    const current = frameId === this.frameId;
    const leaf = current ? this.#head?.leaf : this.#head?.frames?.find((left) => left.frameId === frameId)?.leaf;
    if (leaf === undefined && !(current && this.#head === undefined))
      throw new TroupeError("frame_unknown", `Session ${this.id} has no frame ${frameId}.`, { details: { frameId } });
    const path = current && !records ? await this.history() : await this.services.store.history(leaf ?? null);
    return (records ? path : path.filter(isConversation)).slice(from, to);
  }

  /** Stores a turn in one atomic write and adopts it; resolves when it is durable. `spent`: its own calls, by model. */
  async commit(
    summary: TurnSummary,
    messages: readonly Message[],
    { spent, modelCallRecords, name, before, call, entering }: TurnCommit,
  ): Promise<number> {
    const written = await this.#write((previous, revision) => {
      if (name !== undefined) {
        const result = { ...summary, sessionId: this.id, revision, modelCallRecords, ...(before && { before }) };
        this.#changed.set(...this.#turnKeys.keep(name, result));
      }
      const inputs = this.inputs.pending.length === 0 ? undefined : this.inputs.settled();
      if (inputs !== undefined) this.#inputsChanged(inputs);
      if (entering !== undefined) this.#changed.set(COMPONENT.entering, encode(entering));
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
          this.#grow(messages);
          if (this.running !== undefined) this.running.stored = true;
          if (inputs !== undefined) this.inputs.turnStored(inputs);
        },
      };
    });
    return written.revision;
  }

  /** What a turn of this name came to, when there was one. */
  turnNamed(name: TurnKey): Promise<TurnResult | undefined> {
    return this.#turnKeys.find(this.#head, name);
  }

  /** The turn that left an input for its next frame, when it was named by a key. */
  async leftOff(inputIds: readonly string[]): Promise<KeptTurn | undefined> {
    const [inputId, ...others] = inputIds;
    const turnId = inputId === undefined || others.length > 0 ? undefined : turnOfFrameTask(inputId);
    return turnId === undefined ? undefined : this.#turnKeys.leftOff(this.#head, turnId);
  }

  /**
   * Lets an input wait: for the running turn when there is one and it may still take it, otherwise for the next. Stored
   * before it is answered.
   */
  async addInput(request: InputRequest): Promise<PendingInput> {
    const { text, items, key, boundary } = request;
    const parts = items === undefined ? undefined : await storedParts(this.blobs, items);
    const { running } = this;
    // A turn that is about to be taken up again has its checkpoints before it.
    const turnId = running === undefined ? this.unfinished?.turnId : running.stored ? undefined : running.turnId;
    const waitsFor: PendingInput["waitsFor"] =
      boundary === undefined || turnId === undefined
        ? { kind: "next_turn" }
        : { kind: "active_turn", turnId, boundary };
    const input = this.inputs.add({
      id: randomUUID(),
      text,
      waitsFor,
      ...(parts !== undefined && { parts }),
      ...(key !== undefined && { key }),
    });
    this.#inputsChanged(this.inputs.pending);
    await this.store("input");
    return input;
  }

  async cancelInput(named: string): Promise<"cancelled" | "not_found" | "already_taken"> {
    const result = this.inputs.cancel(named);
    if (result !== "cancelled") return result;
    this.#inputsChanged(this.inputs.pending);
    await this.store("input");
    return result;
  }

  #inputsChanged(inputs: readonly PendingInput[]): void {
    this.#changed.set(COMPONENT.inputs, inputs.length === 0 ? null : encode(inputs));
  }

  /** Stores state that changed since the last commit; a session that never had a turn stays unstored unless `always`. */
  async save({ always = false }: { readonly always?: boolean } = {}): Promise<void> {
    // One plugin whose state cannot be captured does not cost the others theirs.
    const captures = await Promise.allSettled([this.hooks.capture(), this.captureExecution()]);
    while (this.#writing !== undefined) await this.#writing.catch(ignore);
    if ((always || this.#head !== undefined) && this.#hasChanges()) await this.store("save");
    for (const captured of captures) if (captured.status === "rejected") throw captured.reason;
  }

  /**
   * Writes the first head of a session that was made of another, as it was planned and with what its protocol made of it
   * when it took it on.
   */
  async found({ components, ...planned }: Pick<Commit, "components" | "segment">): Promise<void> {
    const changes = this.#changes();
    const slots = this.#unsavedSlots();
    const applied = applyComponents(this.#head?.components ?? {}, changes);
    const head = { ...(this.#head as Head), components: applied.components };
    await this.services.store.commit({
      head,
      expectedRevision: 0,
      components: [...components, ...applied.bytes],
      ...planned,
    });
    this.#head = head;
    this.#written(changes, slots);
  }

  /** Nothing waits that would begin as soon as the session is idle. */
  get mayPark(): boolean {
    return this.running === undefined && this.unfinished === undefined && !this.inputs.waitForTurn && !this.#stale;
  }

  /** Everything that is here is stored: who opens the session again finds it as it is. */
  get isSaved(): boolean {
    return this.#writing === undefined && !this.#hasChanges();
  }

  /** Stores what an operation told and what it changed, in one write, also for a session that was never stored. */
  async storeOutcome(nodes: readonly AppendNode[], origin: Origin): Promise<void> {
    const [captured] = await Promise.allSettled([this.hooks.capture()]);
    if (nodes.length > 0) await this.append({ nodes }, origin);
    else if (this.#hasChanges()) await this.store("operation");
    if (captured.status === "rejected") throw captured.reason;
  }

  /** Writes down something the running turn did; resolves when it is durable. */
  async record(entry: Parameters<JournalWriter>[0]): Promise<unknown> {
    while (this.#writing !== undefined) await this.#writing.catch(ignore);
    return this.services.store.record({ ...entry, sessionId: this.id, expectedRevision: this.revision });
  }

  /** Answers a tool call that waits for it; resolves when the answer cannot be lost any more. */
  completeTool(key: string, output: ToolOutput): Promise<void> {
    const { turnId } = this.running ?? this.unfinished ?? {};
    return this.completions.complete(key, output, async () => {
      if (!this.services.journals || turnId === undefined) return;
      await this.record({ turnId, key: answerKeyOf(key), ...sealEnvelope(null), bytes: encode(output) });
    });
  }

  /** A turn was refused: nothing of it is to be taken up again. */
  async clearJournal(): Promise<void> {
    if (!this.services.journals) return;
    while (this.#writing !== undefined) await this.#writing.catch(ignore);
    await this.services.store
      .clearJournal({ sessionId: this.id, expectedRevision: this.revision })
      // Whatever keeps the store from it keeps it from the next write too, and that one tells.
      .catch(ignore);
  }

  /** Stores what changed beside the history, also for a session that was never stored. */
  async store(operation: string): Promise<void> {
    await this.#write(() => ({ operation }));
  }

  /** The same, unless a running turn will store it. */
  async storeBetweenTurns(operation: string): Promise<void> {
    if (this.running === undefined || this.running.stored) await this.store(operation);
  }

  /**
   * Appends nodes behind the stored leaf. When a node is required to be on the path and is not, nothing is written.
   * Under an operation id it is done once. A running turn's own messages follow when it commits.
   */
  append(request: AppendRequest, origin: Origin): Promise<AppendResult> {
    const { operationId } = request;
    if (operationId === undefined) return this.#append(request, origin);
    return this.receipts.append(operationId, request, (keep) => this.#append(request, origin, keep));
  }

  async #append(request: AppendRequest, origin: Origin, keep?: KeepAppend): Promise<AppendResult> {
    const { nodes, requiresAncestorNodeId } = request;
    const { frameId } = this;
    const leaf = this.#head?.leaf ?? null;
    if (requiresAncestorNodeId !== undefined && !(await this.services.store.onPath(leaf, requiresAncestorNodeId))) {
      return { status: "stale_branch", currentLeafNodeId: leaf, requiredNodeId: requiresAncestorNodeId };
    }
    await this.protocol.append(nodes);
    if (nodes.length === 0) return { status: "appended", nodeIds: [], leafNodeId: leaf ?? "" };
    await this.history();
    let result: AppendResult | undefined;
    await this.#write((previous, next) => {
      if (this.frameId !== frameId) return undefined;
      const id = segmentId(this.id, next);
      const messages = nodes.map((node, index) => messageOfNode(node, nodeId(id, index), origin));
      const nodeIds = messages.map((message) => message.id);
      result = { status: "appended", nodeIds, leafNodeId: nodeId(id, nodes.length - 1) };
      keep?.(result);
      return {
        operation: "append",
        segment: { id, parent: previous?.leaf ?? null, messages },
        adopted: () => this.#grow(messages.filter(isConversation)),
      };
    });
    // The frame was left meanwhile: another path, and another answer perhaps.
    return result ?? this.#append(request, origin, keep);
  }

  /** Throws `frame_exists` for the current frame and those that were left. */
  checkNewFrame(frameId: string): void {
    if (frameId !== this.frameId && this.#head?.frames?.some((left) => left.frameId === frameId) !== true) return;
    throw new TroupeError("frame_exists", `Session ${this.id} already has a frame ${frameId}.`, {
      details: { sessionId: this.id, frameId },
    });
  }

  /** Leaves the current frame for a new one that begins with these nodes. The old one stays readable. */
  async openFrame({ frameId, reason, nodes, origin, task }: NewFrame): Promise<void> {
    // Whether it can be entered or not, it is not tried again.
    if (this.#head?.components[COMPONENT.entering] !== undefined) this.#changed.set(COMPONENT.entering, null);
    this.checkNewFrame(frameId);
    if (task !== undefined && task.text.trim() !== "") {
      this.inputs.add({ ...task, waitsFor: { kind: "next_turn" } });
      this.#inputsChanged(this.inputs.pending);
    }
    const frames = this.#head?.frames ?? [];
    await this.#write((previous, revision) => {
      const id = segmentId(this.id, revision);
      const messages = nodes.map((node, index) => messageOfNode(node, nodeId(id, index), origin));
      const left = { frameId: this.frameId, reason, leaf: previous?.leaf ?? null };
      const head = { frameId, frames: [...frames, left], leaf: null };
      return {
        operation: `frame:${frameId}`,
        head,
        ...(nodes.length > 0 && { segment: { id, parent: null, messages } }),
        adopted: () => {
          this.#history = [];
          this.#hasAttachments = false;
          this.#grow(messages.filter(isConversation));
        },
      };
    });
    this.invalidate();
  }

  /**
   * What a fork needs. State is captured now unless a turn is running: then the child gets the last commit's. Only of
   * the head is it kept, so that a fork `at` a node of the past gets it too.
   */
  async snapshot(options: { readonly live: boolean; readonly at?: string | undefined }): Promise<SessionSnapshot> {
    if (options.live) await Promise.all([this.hooks.capture(), this.captureExecution()]);
    const unsaved: Record<string, Uint8Array> = {};
    const components = { ...this.#head?.components };
    if (options.live) {
      for (const [name, bytes] of this.#changes()) {
        delete components[name];
        if (bytes !== null) unsaved[name] = bytes;
      }
    }
    const { at } = options;
    return {
      parent: { sessionId: this.id, leaf: at ?? this.#head?.leaf ?? null },
      turnIndex: at === undefined ? this.turnIndex : await turnAtNode(this.services.store, this.#head, at),
      components,
      unsaved,
    };
  }

  /** Says what the session may spend, at once: a turn that waits for it goes on. */
  async setBudget(budget: SessionBudget | null): Promise<SpendingReport> {
    this.#changed.set(COMPONENT.budget, encode({ budget }));
    await this.store("budget");
    this.spending.set(budget);
    return this.spending.report();
  }

  setConfig(config: SessionConfig): void {
    this.#config = config;
    this.#promptLayers = layersOf(this.services, config);
    this.#changed.set(COMPONENT.config, encode(config));
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
    this.#changed.set(COMPONENT.tools, this.tools.edited ? encode(this.tools.exportState()) : null);
  }

  protocolOptionsChanged(): void {
    const { turnOptions } = this.protocol;
    this.#changed.set(COMPONENT.protocol, turnOptions === undefined ? null : encode(turnOptions));
  }

  /** What an extension changes in the code executor is stored before it is answered. */
  async extend(extension: Json): Promise<void> {
    await this.protocol.applyExtension(extension);
    if ((await this.captureExecution()) !== undefined) await this.store("extension");
  }

  /** The code executor's state, when it is dirty: stored with the next commit. */
  async captureExecution(): Promise<Uint8Array | null | undefined> {
    const state = await this.protocol.captureExecution();
    if (state !== undefined) this.#changed.set(COMPONENT.execution, state);
    return state;
  }

  /** The executor goes on from this state instead of its own. */
  async restoreExecution(state: Uint8Array | null): Promise<void> {
    await this.protocol.restoreExecution(state);
    this.#changed.set(COMPONENT.execution, state);
  }

  /** What was left for the first turn; taken once. */
  async takeFirstInput(): Promise<string | null> {
    const stored = () => this.#head?.components[COMPONENT.firstInput];
    if (stored() === undefined || this.#changed.has(COMPONENT.firstInput)) return null;
    const reader = new ComponentReader(this.services.store, this.#head);
    // Given up before it is read: whoever asks meanwhile finds it taken.
    this.#changed.set(COMPONENT.firstInput, null);
    const input = await reader.value<string>(COMPONENT.firstInput);
    await this.storeBetweenTurns("first_input");
    return input ?? null;
  }

  /** Counts usage that is not of the session's own turns. Written with the running turn, or else at once. */
  async recordUsage(entry: LedgerEntry): Promise<void> {
    if (isZeroUsage(entry.usage)) return;
    // What the whole ledger could not hold is refused here, not when it is to be written with something else.
    addEntry(this.#ledger, entry);
    this.#unwrittenUsage = addEntry(this.#unwrittenUsage, entry);
    this.running?.tellUsage(entry);
    await this.storeBetweenTurns("usage");
  }

  /** Everything spent, but for the running turn's own calls. */
  /** Everything the session has spent, the running turn's calls included. */
  spentSoFar(): Ledger {
    return addLedgers(this.#ledger, this.running?.spent ?? []);
  }

  get #ledger(): Ledger {
    return addLedgers(this.#head?.ledger ?? [], this.#unwrittenUsage);
  }

  close(): void {
    this.hooks.close();
  }

  /**
   * One atomic write: what `plan` says, and everything that changed beside the history. Whatever a write fails for,
   * what is stored may no longer be what is here.
   */
  async #write(plan: Plan): Promise<Head> {
    while (this.#writing !== undefined) await this.#writing.catch(ignore);
    const writing = this.#writeNow(plan);
    this.#writing = writing;
    try {
      return await writing;
    } finally {
      this.#writing = undefined;
    }
  }

  async #writeNow(plan: Plan): Promise<Head> {
    const previous = this.#head;
    const revision = this.revision + 1;
    const planned = plan(previous, revision);
    if (planned === undefined) return previous as Head;
    const { segment, head: changes, clearsJournal = false, spent = [], adopted } = planned;
    const { exactOperation = `${planned.operation}:${randomUUID()}` } = planned;
    const components = this.#changes();
    const slots = this.#unsavedSlots();
    const blobs = this.blobs.unsaved();
    const usage = this.#unwrittenUsage;
    const applied = applyComponents(previous?.components ?? {}, components);
    const ledger = addLedgers(addLedgers(previous?.ledger ?? [], spent), usage);
    const head: Head = {
      sessionId: this.id,
      leaf: null,
      turnIndex: 0,
      usage: NO_USAGE,
      ...previous,
      ...changes,
      ...(segment !== undefined && { leaf: nodeId(segment.id, segment.messages.length - 1) }),
      ...(ledger.length > 0 && { ledger: sharingOwn(ledger, changes?.usage ?? previous?.usage ?? NO_USAGE) }),
      revision,
      components: applied.components,
      operation: exactOperation,
    };
    const commit: Commit = {
      head,
      expectedRevision: revision - 1,
      ...(segment !== undefined && { segment: { id: segment.id, bytes: encode(segment) } }),
      components: blobs.length === 0 ? applied.bytes : [...applied.bytes, ...blobs],
      ...(clearsJournal && { clearsJournal }),
    };
    try {
      await this.services.store.commit(commit);
    } catch (error) {
      this.giveUp(error);
      throw error;
    }
    // Nothing awaits between the store's word and adopting it.
    this.#head = head;
    adopted?.();
    this.#written(components, slots);
    this.blobs.written(blobs);
    this.#unwrittenUsage = ledgerSince(this.#unwrittenUsage, usage);
    return head;
  }

  #written(components: readonly [string, Uint8Array | null][], slots: readonly UnsavedSlot[]): void {
    this.#changed.written(components);
    for (const { slot, bytes } of slots) if (slot.captured === bytes) slot.unsaved = false;
  }

  #hasChanges(): boolean {
    return this.#changed.size > 0 || this.#unsavedSlots().length > 0 || this.#unwrittenUsage.length > 0;
  }

  #changes(): [string, Uint8Array | null][] {
    const slots = this.#unsavedSlots();
    if (slots.length === 0) return this.#changed.size === 0 ? [] : this.#changed.entries();
    return [
      ...this.#changed.entries(),
      ...slots.map(({ pluginId, bytes }): [string, Uint8Array] => [pluginComponent(pluginId), bytes]),
    ];
  }

  #unsavedSlots(): UnsavedSlot[] {
    const unsaved: UnsavedSlot[] = [];
    this.hooks.slots.forEach((slot, index) => {
      if (slot?.unsaved !== true || slot.captured === undefined) return;
      const pluginId = this.services.surfaces.links[index]?.manifest.id ?? "";
      unsaved.push({ slot, pluginId, bytes: slot.captured });
    });
    return unsaved;
  }
}

function layersOf({ prompt: host }: SessionServices, { prompt: own }: SessionConfig): readonly PromptLayer[] {
  return [...(host === undefined ? [] : [host]), ...(own === null ? [] : [own])];
}

function turnOperation(call: string, turnIndex: number): string {
  return `turn:${call}:${turnIdOf(turnIndex)}`;
}

/** A plugin's state that was captured and is not stored. */
interface UnsavedSlot {
  readonly slot: PluginSlot;
  readonly pluginId: string;
  readonly bytes: Uint8Array;
}

/** Says what to write over a head; nothing, when it finds that there is nothing to be written. */
type Plan = (previous: Head | undefined, revision: number) => WritePlan | undefined;

/** What one write changes beside the components. */
interface WritePlan {
  readonly operation: string;
  /** Names the operation once and for all; otherwise it is one of its own. */
  readonly exactOperation?: string;
  readonly segment?: { readonly id: string; readonly parent: string | null; readonly messages: readonly Message[] };
  readonly head?: Partial<Head>;
  readonly clearsJournal?: boolean;
  /** By the session's own calls. */
  readonly spent?: Ledger;
  /** What else becomes true with it, at once. */
  readonly adopted?: () => void;
}

function ignore(): void {}
