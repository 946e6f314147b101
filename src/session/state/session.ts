import type { Clock } from "../../async/index.js";
import {
  type Authority,
  addUsage,
  answerKeyOf,
  type Head,
  NO_USAGE,
  type SessionBudget,
  type SessionConfig,
  type ToolOutput,
} from "../../kernel/index.js";
import type { Model } from "../../model/index.js";
import type { SessionView } from "../../plugin/index.js";
import { type StoreClient, sealEnvelope } from "../../store/index.js";
import type { SessionTools, ToolHomes, ToolLimits } from "../../tools/index.js";
import { type Deadlines, decode, encode } from "../../wire/index.js";
import type { HostRelay, SessionPluginOptions, TraceSink, WorkerSettings } from "../calls/index.js";
import type { Suspects } from "../journal/index.js";
import { type HostGate, type PluginSlot, SessionHooks, type Surface, type Surfaces } from "../plugins/index.js";
import { SessionCatalog, type SessionProtocol, ToolsComponent } from "../protocol/index.js";
import { Blobs, type KeptOpening, Receipts, SessionRows, StoredSession, TABLE, TurnKeys } from "../stored/index.js";
import { Completions } from "./completions.js";
import { SessionGraph, SessionHistory } from "./session-graph.js";
import type { SessionInputs } from "./session-inputs.js";
import { type LifeChart, mayPark, SessionLife } from "./session-life.js";
import { SessionSettings, Spending } from "./session-settings.js";

/** What every session of a worker shares: its settings as far as sessions look at them, and what was made of the others. */
export interface SessionServices
  extends Pick<WorkerSettings, "prompt" | "budget" | "prices" | "config" | "mailboxLimit" | "journals"> {
  readonly clock: Clock;
  /** Of every call that waits for somebody outside the worker. */
  readonly deadlines: Deadlines;
  readonly store: StoreClient;
  /** The host's models by name; what it gave as `model` is under "". */
  readonly models: ReadonlyMap<string, Model>;
  readonly surfaces: Surfaces;
  readonly homes: ToolHomes;
  readonly limits: ToolLimits;
  /** Answers host services about the sessions of this worker. */
  readonly host: HostGate;
  /** To other sessions and the host, by way of the main thread. */
  readonly relay: HostRelay;
  readonly trace: TraceSink;
  readonly suspects: Suspects;
}

interface SessionParts {
  readonly id: string;
  readonly chart: LifeChart;
  readonly services: SessionServices;
  readonly head: Head | undefined;
  readonly epoch: number;
  readonly identity: Pick<Head, "tenant" | "metadata">;
  /** What of its opening is kept for who takes up what it began. */
  readonly opening: KeptOpening | undefined;
  readonly surface: Surface;
  readonly slots: readonly (PluginSlot | undefined)[];
  readonly tools: SessionTools;
  readonly config: SessionConfig;
  readonly budget: SessionBudget | null;
  readonly authority: Authority;
  readonly protocol: SessionProtocol;
  readonly inputs: SessionInputs;
  readonly pluginOptions: SessionPluginOptions;
}

/** One session's state on its worker, by duty. Each part has what it needs of the others; none has the session. */
export class Session {
  readonly id: string;
  readonly services: SessionServices;
  readonly hooks: SessionHooks;
  readonly tools: SessionTools;
  readonly protocol: SessionProtocol;
  readonly catalog: SessionCatalog;
  readonly settings: SessionSettings;
  /** What it was opened with. */
  readonly pluginOptions: SessionPluginOptions;
  readonly inputs: SessionInputs;
  /** The turns that were named by a key. */
  readonly turnKeys: TurnKeys;
  /** What was asked for under a key, and what came of it. */
  readonly receipts: Receipts;
  readonly blobs: Blobs;
  readonly spending: Spending;
  /** Tool calls whose answer comes from outside. */
  readonly completions: Completions;
  /** Sessions this one's plugins made: it may see them, whatever their relation. */
  readonly created = new Set<string>();
  /** Where it is in its turns. */
  readonly life: SessionLife;
  /** What of it is stored, and what is still to be. */
  readonly stored: StoredSession;
  /** The messages of its current frame. */
  readonly past: SessionHistory;
  readonly graph: SessionGraph;

  constructor(parts: SessionParts) {
    const { id, services, head, surface, slots, tools, authority, protocol, inputs } = parts;
    const { store, clock, journals, prices } = services;
    this.id = id;
    this.services = services;
    this.tools = tools;
    this.protocol = protocol;
    this.inputs = inputs;
    this.pluginOptions = parts.pluginOptions;
    this.completions = new Completions(services.deadlines);
    this.life = new SessionLife(parts.chart);
    this.past = new SessionHistory(store, head);
    this.hooks = new SessionHooks(surface.table, slots);
    this.blobs = new Blobs(store);
    const { life, past, hooks, blobs } = this;
    const { epoch, identity, opening } = parts;
    this.stored = new StoredSession({ id, clock, store, head, epoch, identity, blobs, journals, past, inputs, life });
    const { stored } = this;
    const turnRows = new SessionRows({ store, sessionId: id, table: TABLE.turnKeys });
    const receiptRows = new SessionRows({ store, sessionId: id, table: TABLE.receipts });
    stored.registerRows(turnRows, receiptRows);
    if (opening !== undefined) stored.registerRiding(opening);
    this.settings = new SessionSettings(services, parts.config);
    this.spending = new Spending({ budget: parts.budget, prices, stored, life });
    this.turnKeys = new TurnKeys(turnRows, () => stored.reader());
    this.receipts = new Receipts(receiptRows, () => stored.reader());
    this.catalog = new SessionCatalog({ tools, hooks, authority, protocol, surface, services });
    const { settings, spending, turnKeys, receipts, catalog } = this;
    this.graph = new SessionGraph({ id, store, stored, past, protocol, inputs, receipts, turnKeys, life, catalog });
    stored.register(
      settings.component,
      spending.component,
      new ToolsComponent(tools),
      ...protocol.components,
      inputs.first,
      inputs.component,
      this.graph.entering,
      ...slots.filter((slot) => slot !== undefined),
    );
  }

  /** Nothing waits that would begin as soon as the session is idle. */
  get mayPark(): boolean {
    return mayPark(this.life.now) && !this.inputs.waitForTurn;
  }
}

/** The session as plugins see it: small, and with what the running turn has added. */
export async function viewOf(session: Session): Promise<SessionView> {
  const { id, settings, past, stored, life, spending, tools, hooks } = session;
  const messageCount = await past.count();
  const { head, revision, turnIndex, frameId, leaf } = stored;
  const turn = life.unstoredTurn?.state;
  return {
    sessionId: id,
    parentSessionId: head?.parent?.sessionId ?? null,
    config: settings.config,
    revision,
    turnIndex,
    running: life.turn !== undefined,
    messageCount: messageCount + (turn?.messages.length ?? 0),
    leafNodeId: leaf,
    frameId,
    frames: head?.frames ?? [],
    usage: addUsage(head?.usage ?? NO_USAGE, turn?.usage ?? NO_USAGE),
    ledger: spending.ledger,
    toolGeneration: tools.generation,
    pluginFingerprint: String(hooks.fingerprint()),
    components: head?.components ?? {},
  };
}

/** Answers a tool call that waits for it; resolves when the answer cannot be lost any more. */
export function completeTool(
  { life, services, stored, completions }: Session,
  key: string,
  output: ToolOutput,
): Promise<void> {
  const { turnId } = life.turn ?? life.unfinished ?? {};
  return completions.complete(key, output, async () => {
    if (!services.journals || turnId === undefined) return undefined;
    const entry = { turnId, key: answerKeyOf(key), ...sealEnvelope(null), bytes: encode(output) };
    const receipt = await stored.record(entry);
    return receipt.replayed ? decode<ToolOutput>(receipt.bytes) : undefined;
  });
}
