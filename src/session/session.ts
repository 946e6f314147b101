import {
  type AppendNode,
  type Authority,
  addUsage,
  answerKeyOf,
  type Json,
  type Message,
  NO_USAGE,
  type Origin,
  PromptCache,
  type PromptLayer,
  type SessionConfig,
  type StorableTurn,
  segmentId,
  type ToolOutput,
  TroupeError,
  turnIdOf,
} from "../kernel/index.js";
import type { Model } from "../model/index.js";
import type { SessionView } from "../plugin/index.js";
import { sealEnvelope } from "../store/index.js";
import type { SessionTools } from "../tools/index.js";
import { encode } from "../wire/index.js";
import { Blobs } from "./blobs.js";
import { SessionCatalog } from "./catalog.js";
import { Completions } from "./completions.js";
import { COMPONENT, Component } from "./components.js";
import { SessionHooks } from "./hooks.js";
import type { SessionPluginOptions } from "./protocol.js";
import { Receipts } from "./receipts.js";
import { SessionGraph } from "./session-graph.js";
import { SessionHistory } from "./session-history.js";
import type { SessionInputs } from "./session-inputs.js";
import { betweenTurns, isUnsettled, mayPark, SessionLife } from "./session-life.js";
import type { SessionParts, SessionServices, TurnCommit } from "./session-parts.js";
import type { SessionProtocol } from "./session-protocol.js";
import { Spending } from "./spending.js";
import { StoredSession } from "./stored-session.js";
import type { Surface } from "./surface.js";
import { ToolsComponent } from "./tools-component.js";
import { TurnKeys } from "./turn-keys.js";

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
  /** The turns that were named by a key. */
  readonly turnKeys: TurnKeys;
  /** What was asked for under a key, and what came of it. */
  readonly receipts: Receipts;
  readonly blobs: Blobs;
  readonly spending: Spending;
  /** Tool calls whose answer comes from outside. */
  readonly completions: Completions;
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
  readonly graph: SessionGraph;
  readonly #storedConfig = new Component(COMPONENT.config);
  #config: SessionConfig;
  #promptLayers: readonly PromptLayer[];

  constructor(parts: SessionParts) {
    this.id = parts.id;
    this.life = new SessionLife(parts.chart);
    this.services = parts.services;
    this.completions = new Completions(parts.services.deadlines);
    this.surface = parts.surface;
    this.hooks = new SessionHooks(parts.surface.table, parts.slots);
    this.tools = parts.tools;
    this.authority = parts.authority;
    this.protocol = parts.protocol;
    this.inputs = parts.inputs;
    this.pluginOptions = parts.pluginOptions;
    this.#config = parts.config;
    this.#promptLayers = layersOf(parts.services, parts.config);
    const { store, prices } = parts.services;
    this.blobs = new Blobs(store);
    this.stored = new StoredSession({
      id: parts.id,
      clock: parts.services.clock,
      store,
      head: parts.head,
      blobs: this.blobs,
      messageCount: () => this.past.known,
      onWriteFailed: (error) => this.life.giveUp(error),
    });
    this.past = new SessionHistory(store, parts.head);
    const { stored, past, protocol, inputs } = this;
    this.spending = new Spending({ budget: parts.budget, prices, stored, life: this.life });
    this.turnKeys = new TurnKeys(() => stored.reader());
    this.receipts = new Receipts(() => stored.reader());
    this.catalog = new SessionCatalog(this);
    const { receipts, turnKeys } = this;
    const onEntered = () => this.invalidate();
    this.graph = new SessionGraph({ id: parts.id, store, stored, past, protocol, inputs, receipts, onEntered });
    stored.register(
      this.#storedConfig,
      this.spending.component,
      new ToolsComponent(parts.tools),
      ...protocol.components,
      inputs.first,
      receipts.component,
      turnKeys,
      inputs.component,
      this.graph.entering,
      ...parts.slots.filter((slot) => slot !== undefined),
    );
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
      ledger: this.spending.ledger,
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
        this.turnKeys.keep(name, result);
      }
      this.inputs.settle();
      if (entering !== undefined) this.graph.leaveFor(entering);
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
          this.inputs.turnStored();
        },
      };
    });
    return written.revision;
  }

  /** Stores state that changed since the last commit; a session that never had a turn stays unstored unless `always`. */
  async save({ always = false, unless = never }: SaveOptions = {}): Promise<void> {
    // One plugin whose state cannot be captured does not cost the others theirs.
    const captures = await Promise.allSettled([this.hooks.capture(), this.protocol.captureExecution()]);
    // A turn that began meanwhile stores it itself.
    if (always || this.stored.head !== undefined)
      await this.stored.store("save", () => betweenTurns(this.life.now) && !unless());
    for (const captured of captures) if (captured.status === "rejected") throw captured.reason;
  }

  /** Something may have changed behind the last write that no turn is about to store. */
  get isUnsettled(): boolean {
    if (!isUnsettled(this.life.now) || this.stored.head === undefined) return false;
    return this.hooks.needCapture || this.stored.dirty || this.protocol.codeExecutor !== undefined;
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
    if (nodes.length > 0) await this.graph.append({ nodes }, origin);
    else await this.stored.store("operation");
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

  /** Stores what is dirty, unless a running turn will. */
  async storeBetweenTurns(operation: string): Promise<void> {
    if (betweenTurns(this.life.now)) await this.stored.store(operation);
  }

  setConfig(config: SessionConfig): void {
    this.#config = config;
    this.#promptLayers = layersOf(this.services, config);
    this.#storedConfig.change(encode(config));
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

  /** What an extension changes in the code executor is stored before it is answered. */
  async extend(extension: Json): Promise<void> {
    await this.protocol.applyExtension(extension);
    if ((await this.protocol.captureExecution()) !== undefined) await this.stored.store("extension");
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
