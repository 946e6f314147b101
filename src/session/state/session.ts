import type { Clock } from "../../async/index.js";
import {
  type AnswerOutcome,
  type Authority,
  addLedgers,
  addUsage,
  answerKeyOf,
  type CompletionPlace,
  completionKeyOf,
  completionUnknown,
  type Head,
  type Identity,
  indexOfTurn,
  NO_USAGE,
  type SessionBudget,
  type SessionConfig,
} from "../../kernel/index.js";
import type { Model, ModelFactory, ModelInstances } from "../../model/index.js";
import type { SessionView } from "../../plugin/index.js";
import { answerKeysOf, type StoreClient, sealEnvelope } from "../../store/index.js";
import type { ArgumentChecks, SessionTools, ToolHomes, ToolLimits } from "../../tools/index.js";
import type { EventSink } from "../../trace/index.js";
import { type Deadlines, decode, encode } from "../../wire/index.js";
import type { HostRelay, SessionPluginOptions, TraceSink, WorkerSettings } from "../calls/index.js";
import { leftBehind, type Suspects } from "../journal/index.js";
import { type HostGate, type PluginSlot, SessionHooks, type Surface, type Surfaces } from "../plugins/index.js";
import { PrefixWatch, SessionCatalog, type SessionProtocol, ToolsComponent } from "../protocol/index.js";
import {
  Blobs,
  hasAttachment,
  type KeptOpening,
  Receipts,
  SessionRows,
  StoredSession,
  TABLE,
  TurnKeys,
} from "../stored/index.js";
import type { AgentInForce, Agents } from "./agents.js";
import { Completions, type PendingAnswer } from "./completions.js";
import { SessionGraph } from "./session-graph.js";
import { SessionHistory } from "./session-history.js";
import type { SessionInputs } from "./session-inputs.js";
import { type LifeChart, mayPark, SessionLife } from "./session-life.js";
import { SessionSettings, Spending } from "./session-settings.js";
import { type TenantAccounts, type TenantSpending, tenantSpendingOf } from "./tenant-spending.js";
import type { TokenCounts } from "./token-counts.js";
import { WaitingCalls } from "./waiting-calls.js";

/** What every session of a worker shares: its settings as far as sessions look at them, and what was made of the others. */
export interface SessionServices
  extends Pick<
    WorkerSettings,
    | "prompt"
    | "calling"
    | "turnLimit"
    | "budget"
    | "prices"
    | "config"
    | "mailboxLimit"
    | "journals"
    | "onMismatch"
    | "attachments"
    | "development"
  > {
  readonly clock: Clock;
  /** Of every call that waits for somebody outside the worker. */
  readonly deadlines: Deadlines;
  readonly store: StoreClient;
  /** The host's models by name, or what makes them; what it gave as `model` is under "". */
  readonly models: ReadonlyMap<string, Model | ModelFactory>;
  /** The models that were made for tenants and agents. */
  readonly instances: ModelInstances;
  readonly agents: Agents;
  /** Counts how long a model's first token took. */
  readonly firstToken: (modelId: string, ms: number) => void;
  readonly surfaces: Surfaces;
  readonly homes: ToolHomes;
  readonly checks: ArgumentChecks;
  readonly limits: ToolLimits;
  /** Answers host services about the sessions of this worker. */
  readonly host: HostGate;
  /** To other sessions and the host, by way of the main thread. */
  readonly relay: HostRelay;
  readonly trace: TraceSink;
  /** Undefined: nobody listens, and nothing is made for it. */
  readonly events: EventSink | undefined;
  readonly suspects: Suspects;
  /** Undefined: no tenant has a budget, and nothing is asked or counted for one. */
  readonly tenants: TenantAccounts | undefined;
  readonly tokens: TokenCounts;
}

interface SessionParts {
  readonly id: string;
  readonly chart: LifeChart;
  readonly services: SessionServices;
  readonly head: Head | undefined;
  readonly epoch: number;
  readonly identity: Identity;
  /** What of its opening is kept for who takes up what it began. */
  readonly opening: KeptOpening | undefined;
  readonly inputs: SessionInputs;
  readonly pluginOptions: SessionPluginOptions;
}

/** What a session has by its agent, made anew when it has another or the agent says something else. */
export interface Equipment {
  readonly agent: AgentInForce;
  readonly surface: Surface;
  readonly slots: readonly (PluginSlot | undefined)[];
  readonly tools: SessionTools;
  readonly config: SessionConfig;
  readonly budget: SessionBudget | null;
  readonly authority: Authority;
  readonly protocol: SessionProtocol;
}

/** The parts of a session that are made of its equipment. */
interface EquippedParts extends Pick<Equipment, "agent" | "tools" | "protocol"> {
  readonly hooks: SessionHooks;
  readonly catalog: SessionCatalog;
  readonly settings: SessionSettings;
  readonly spending: Spending;
  readonly graph: SessionGraph;
}

/** One session's state on its worker, by duty. Each part has what it needs of the others; none has the session. */
export class Session {
  readonly id: string;
  readonly services: SessionServices;
  /** What it was opened with. */
  readonly pluginOptions: SessionPluginOptions;
  readonly inputs: SessionInputs;
  /** The turns that were named by a key. */
  readonly turnKeys: TurnKeys;
  /** What was asked for under a key, and what came of it. */
  readonly receipts: Receipts;
  readonly blobs: Blobs;
  /** Tool calls whose answer comes from outside. */
  readonly completions: Completions;
  /** Sessions this one's plugins made: it may see them, whatever their relation. */
  readonly created = new Set<string>();
  /** The same, as hosts are told of them. */
  readonly waitingCalls: WaitingCalls;
  /** Where it is in its turns. */
  readonly life: SessionLife;
  /** What of it is stored, and what is still to be. */
  readonly stored: StoredSession;
  /** The messages of its current frame. */
  readonly past: SessionHistory;
  readonly #tenant: TenantSpending | undefined;
  /** Looks who breaks the providers' caches; only in development. */
  readonly prefixWatch: PrefixWatch | undefined;
  #equipped: EquippedParts;

  constructor({ equipment, ...parts }: SessionParts & { readonly equipment: Equipment }) {
    const { id, services, head, inputs } = parts;
    const { store, clock, journals } = services;
    this.id = id;
    this.services = services;
    this.inputs = inputs;
    this.pluginOptions = parts.pluginOptions;
    this.completions = new Completions(services.deadlines);
    this.prefixWatch = services.development ? new PrefixWatch() : undefined;
    this.life = new SessionLife(parts.chart);
    this.past = new SessionHistory(store, head);
    this.blobs = new Blobs(store, (hash) => this.#hasAttachment(hash));
    const { life, past, blobs } = this;
    const { epoch, identity, opening } = parts;
    this.stored = new StoredSession({ id, clock, store, head, epoch, identity, blobs, journals, past, inputs, life });
    const { stored } = this;
    this.waitingCalls = new WaitingCalls({ sessionId: id, store, stored, journals });
    this.#tenant = tenantSpendingOf(id, stored.identity.tenant, services);
    const turnRows = new SessionRows({ store, sessionId: id, table: TABLE.turnKeys });
    const receiptRows = new SessionRows({ store, sessionId: id, table: TABLE.receipts });
    stored.registerRows(turnRows, receiptRows);
    if (opening !== undefined) stored.registerRiding(opening);
    this.turnKeys = new TurnKeys(turnRows, () => stored.reader());
    this.receipts = new Receipts(receiptRows, () => stored.reader());
    this.#equipped = this.#equip(equipment);
  }

  /** Goes on with another equipment. Between turns, when everything is stored: what was made of the old one is gone. */
  equip(equipment: Equipment): void {
    this.#equipped.spending.dropChildren();
    this.#equipped = this.#equip(equipment);
  }

  #equip({ agent, surface, slots, tools, authority, protocol, config, budget }: Equipment): EquippedParts {
    const { id, services, stored, life, past, inputs, turnKeys, receipts } = this;
    const { store, prices, clock } = services;
    const hooks = new SessionHooks(surface.table, slots, services.events);
    const owner = { tenant: stored.identity.tenant, agent };
    const settings = new SessionSettings(services, config, owner);
    const spending = new Spending({ budget, prices, clock, stored, life, tenant: this.#tenant });
    const catalog = new SessionCatalog({ tools, hooks, authority, protocol, surface, services });
    const graph = new SessionGraph({
      id,
      clock,
      store,
      stored,
      past,
      protocol,
      inputs,
      receipts,
      turnKeys,
      life,
      catalog,
    });
    stored.register(
      settings.component,
      spending.component,
      new ToolsComponent(tools),
      ...protocol.components,
      inputs.first,
      inputs.component,
      graph.entering,
      ...stored.asked.components,
      ...slots.filter((slot) => slot !== undefined),
    );
    return { agent, tools, protocol, hooks, catalog, settings, spending, graph };
  }

  /** What it is called by, and what it has by it. */
  get agent(): AgentInForce {
    return this.#equipped.agent;
  }

  get hooks(): SessionHooks {
    return this.#equipped.hooks;
  }

  get tools(): SessionTools {
    return this.#equipped.tools;
  }

  get protocol(): SessionProtocol {
    return this.#equipped.protocol;
  }

  get catalog(): SessionCatalog {
    return this.#equipped.catalog;
  }

  get settings(): SessionSettings {
    return this.#equipped.settings;
  }

  get spending(): Spending {
    return this.#equipped.spending;
  }

  get graph(): SessionGraph {
    return this.#equipped.graph;
  }

  /** Nothing waits that would begin as soon as the session is idle. */
  get mayPark(): boolean {
    return mayPark(this.life.now) && !this.inputs.waitForTurn;
  }

  /** In its current frame, or anywhere in its tree. */
  async #hasAttachment(hash: string): Promise<boolean> {
    if (hasAttachment(await this.past.read(), hash)) return true;
    if (this.stored.head === undefined) return false;
    return hasAttachment(
      (await this.services.store.tree(this.id)).map(({ message }) => message),
      hash,
    );
  }
}

/** The session as plugins see it: small, and with what the running turn has added. */
export async function viewOf(session: Session): Promise<SessionView> {
  const { id, settings, past, stored, life, spending, tools, hooks } = session;
  const { subagent } = session.catalog;
  const messageCount = await past.count();
  const { head, revision, turnIndex, frameId, leaf } = stored;
  const turn = life.unstoredTurn?.state;
  // A turn that a crash left behind is the session's before it is taken up, and while it does again what it had done.
  const left = life.unfinished === undefined ? life.unstoredTurn?.left : leftBehind(id, life.unfinished);
  const isBehind = left !== undefined && (turn === undefined || turn.step < left.calls);
  return {
    sessionId: id,
    parentSessionId: head?.parent?.sessionId ?? null,
    ...(subagent !== undefined && { subagent }),
    config: settings.config,
    revision,
    turnIndex,
    running: life.turn !== undefined || life.unfinished !== undefined,
    messageCount: messageCount + Math.max(turn?.messages.length ?? 0, left?.messages ?? 0),
    leafNodeId: leaf,
    frameId,
    frames: head?.frames ?? [],
    usage: addUsage(head?.usage ?? NO_USAGE, (isBehind ? left : turn)?.usage ?? NO_USAGE),
    ledger: isBehind ? addLedgers(stored.ledger, left.spent) : spending.ledger,
    toolGeneration: tools.generation,
    pluginFingerprint: String(hooks.fingerprint()),
    components: head?.components ?? {},
  };
}

/**
 * Answers a tool call that waits for it; resolves when the answer cannot be lost any more, with what became of it.
 * Rejects with `completion_unknown` when there never was such a call.
 */
export async function answerCall(
  { id, life, services, stored, completions, waitingCalls }: Session,
  { turnId, callId }: Pick<CompletionPlace, "turnId" | "callId">,
  answer: PendingAnswer,
): Promise<AnswerOutcome> {
  const key = completionKeyOf(id, turnId, callId);
  const outcome = await completions.complete(key, answer, async (waits) => {
    if (!services.journals) return undefined;
    const rows = waitingCalls.removalOf(key);
    const entry = { turnId, key: answerKeyOf(key), ...sealEnvelope(null), bytes: encode(answer), rows };
    // It may have to wait for a write behind which the call, or its whole turn, is over.
    const receipt = await stored.record(entry, () => !waits());
    return receipt.replayed ? decode<PendingAnswer>(receipt.bytes) : undefined;
  });
  if (outcome !== undefined) return outcome;
  const isRecorded = answerKeysOf(id, turnId, callId).some(
    (recorded) => life.turn?.journal.has(recorded) ?? life.unfinished?.rows.some((row) => row.key === recorded),
  );
  if (isRecorded) return "already_answered";
  // A turn that was never begun had no call. One that was refused had some, and its place is the next one's.
  const index = indexOfTurn(turnId);
  if (index === undefined || index > stored.turnIndex + 1) throw completionUnknown(key);
  return "moved_on";
}
