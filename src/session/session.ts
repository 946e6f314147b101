import type { SessionTools } from "../tools/index.js";
import { Blobs } from "./blobs.js";
import { SessionCatalog } from "./catalog.js";
import { Completions } from "./completions.js";
import { SessionHooks } from "./hooks.js";
import type { SessionPluginOptions } from "./protocol.js";
import { Receipts } from "./receipts.js";
import { SessionGraph } from "./session-graph.js";
import { SessionHistory } from "./session-history.js";
import type { SessionInputs } from "./session-inputs.js";
import { betweenTurns, mayPark, SessionLife } from "./session-life.js";
import type { SessionParts, SessionServices } from "./session-parts.js";
import type { SessionProtocol } from "./session-protocol.js";
import { SessionSettings } from "./session-settings.js";
import { Spending } from "./spending.js";
import { StoredSession } from "./stored-session.js";
import type { Surface } from "./surface.js";
import { ToolsComponent } from "./tools-component.js";
import { TurnKeys } from "./turn-keys.js";

/** One session's state on its worker, by duty. Each part has what it needs of the others; none has the session. */
export class Session {
  readonly id: string;
  readonly services: SessionServices;
  /** What its plugins contribute. */
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
    const { store, prices } = services;
    const life = new SessionLife(parts.chart);
    const past = new SessionHistory(store, head);
    const hooks = new SessionHooks(surface.table, slots);
    const blobs = new Blobs(store);
    const stored = new StoredSession({
      id,
      clock: services.clock,
      store,
      head,
      blobs,
      journals: services.journals,
      turnRuns: () => !betweenTurns(life.now),
      messageCount: () => past.known,
      onWriteFailed: (error) => life.giveUp(error),
      turnsWait: () => inputs.turnsWait,
    });
    const settings = new SessionSettings(services, parts.config);
    const spending = new Spending({ budget: parts.budget, prices, stored, life });
    const turnKeys = new TurnKeys(() => stored.reader());
    const receipts = new Receipts(() => stored.reader());
    const catalog = new SessionCatalog({ tools, hooks, authority, protocol, surface, services });
    const onEntered = () => catalog.invalidate();
    const graph = new SessionGraph({
      id,
      store,
      stored,
      past,
      protocol,
      inputs,
      receipts,
      turnKeys,
      life,
      onEntered,
    });
    stored.register(
      settings.component,
      spending.component,
      new ToolsComponent(tools),
      ...protocol.components,
      inputs.first,
      receipts.component,
      turnKeys,
      inputs.component,
      graph.entering,
      ...slots.filter((slot) => slot !== undefined),
    );
    this.id = id;
    this.services = services;
    this.hooks = hooks;
    this.tools = tools;
    this.protocol = protocol;
    this.catalog = catalog;
    this.settings = settings;
    this.pluginOptions = parts.pluginOptions;
    this.inputs = inputs;
    this.turnKeys = turnKeys;
    this.receipts = receipts;
    this.blobs = blobs;
    this.spending = spending;
    this.completions = new Completions(services.deadlines);
    this.life = life;
    this.stored = stored;
    this.past = past;
    this.graph = graph;
  }

  /** What its plugins contribute. */
  get surface(): Surface {
    return this.catalog.surface;
  }

  /** Nothing waits that would begin as soon as the session is idle. */
  get mayPark(): boolean {
    return mayPark(this.life.now) && !this.inputs.waitForTurn;
  }

  close(): void {
    this.hooks.close();
  }
}
