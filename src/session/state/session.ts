import type { SessionTools } from "../../tools/index.js";
import type { SessionPluginOptions } from "../calls/index.js";
import type { Surface } from "../plugins/index.js";
import { SessionHooks } from "../plugins/index.js";
import type { SessionProtocol } from "../protocol/index.js";
import { SessionCatalog, ToolsComponent } from "../protocol/index.js";
import { Blobs, Receipts, StoredSession, TurnKeys } from "../stored/index.js";
import { Completions } from "./completions.js";
import { SessionGraph } from "./session-graph.js";
import { SessionHistory } from "./session-history.js";
import type { SessionInputs } from "./session-inputs.js";
import { mayPark, SessionLife } from "./session-life.js";
import type { SessionParts, SessionServices } from "./session-parts.js";
import { SessionSettings } from "./session-settings.js";
import { Spending } from "./spending.js";

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
    this.stored = new StoredSession({ id, clock, store, head, blobs, journals, past, inputs, life });
    const { stored } = this;
    this.settings = new SessionSettings(services, parts.config);
    this.spending = new Spending({ budget: parts.budget, prices, stored, life });
    this.turnKeys = new TurnKeys(() => stored.reader());
    this.receipts = new Receipts(() => stored.reader());
    this.catalog = new SessionCatalog({ tools, hooks, authority, protocol, surface, services });
    const { settings, spending, turnKeys, receipts, catalog } = this;
    this.graph = new SessionGraph({ id, store, stored, past, protocol, inputs, receipts, turnKeys, life, catalog });
    stored.register(
      settings.component,
      spending.component,
      new ToolsComponent(tools),
      ...protocol.components,
      inputs.first,
      receipts.component,
      turnKeys.component,
      inputs.component,
      this.graph.entering,
      ...slots.filter((slot) => slot !== undefined),
    );
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
