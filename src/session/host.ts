import { type MessagePort, threadId } from "node:worker_threads";
import { TroupeError } from "../kernel/index.js";
import { loadModel } from "../model/index.js";
import { loadPlugin, type OperationSpec, type PluginManifest } from "../plugin/index.js";
import { StoreClient } from "../store/index.js";
import { type RegisteredTool, registerTool, type ToolHome, ToolPool, ToolRegistry } from "../tools/index.js";
import { PhaseProbe } from "../trace/index.js";
import { decode, encode, importDefault, Lane, moving, type Served, serve } from "../wire/index.js";
import { ActiveTurn } from "./active-turns.js";
import { SessionActor } from "./actor.js";
import { HookTable } from "./hook-table.js";
import { InlineLink } from "./inline-link.js";
import type { PluginLink } from "./plugin-link.js";
import type {
  ActivityNote,
  CancelNote,
  HostToolCall,
  PluginSetup,
  SessionWorkerService,
  SessionWorkerSetup,
  SessionWorkerStats,
  TurnCall,
} from "./protocol.js";
import { Session, type SessionServices, type SessionSnapshot } from "./session.js";
import { WorkerLink } from "./worker-link.js";

/** The session worker's side of everything the main thread asks of it. */
export function serveSessions(parentPort: MessagePort, options: { readonly toolEntry: URL }): void {
  let host: SessionHost | undefined;
  const configured = (): SessionHost => {
    if (host === undefined)
      throw new TroupeError("worker_not_configured", "This session worker is not configured yet.");
    return host;
  };
  const service = {
    async configure(setup) {
      host = await SessionHost.create(setup, options.toolEntry);
      return { threadId, inline: host.inlineManifests };
    },
    attachPlugin: (lane) => configured().workerLink(lane.plugin)?.attach(lane),
    failPlugin: ({ plugin, code, message }) => configured().workerLink(plugin)?.fail(new TroupeError(code, message)),
    open: ({ sessionId }) => configured().actor(sessionId).info(threadId),
    info: ({ sessionId }) => configured().actor(sessionId).info(threadId),
    async capture({ sessionId }) {
      const snapshot = await configured().snapshot(sessionId);
      return moving({ snapshot }, [snapshot.buffer]);
    },
    adopt: ({ sessionId, snapshot, authority }) =>
      configured().adopt(sessionId, decode(snapshot), authority).info(threadId),
    operate: ({ sessionId, ...request }, signal: AbortSignal) =>
      configured()
        .actor(sessionId)
        .operate({ ...request, signal }),
    operations: () => configured().operations(),
    release: ({ sessionId }) => configured().release(sessionId),
    stats: () => ({ ...configured().stats(), threadId }),
    shutdown: ({ drainMs }) => configured().shutdown(drainMs),
  } satisfies Served<SessionWorkerService>;
  serve(parentPort, service);
}

class SessionHost {
  readonly #services: SessionServices;
  readonly #links: readonly PluginLink[];
  readonly #lane: Lane;
  readonly #probe: PhaseProbe;
  readonly #pool: ToolPool;
  readonly #sessions = new Map<string, SessionActor>();
  readonly #turns = new Map<number, ActiveTurn>();
  #finished = 0;
  #closing = false;

  static async create(setup: SessionWorkerSetup, toolEntry: URL): Promise<SessionHost> {
    const pool = new ToolPool({ entry: toolEntry, maxThreads: setup.pool.maxThreads });
    try {
      const probe = new PhaseProbe();
      const model = await loadModel(setup.model);
      const links = await Promise.all(setup.plugins.map((plugin) => makeLink(plugin, probe)));
      checkPluginIds(links);
      const tools = await allTools(setup, links, pool);
      return new SessionHost({ setup, pool, probe, model, links, tools });
    } catch (error) {
      await pool.close();
      throw error;
    }
  }

  private constructor(parts: {
    readonly setup: SessionWorkerSetup;
    readonly pool: ToolPool;
    readonly probe: PhaseProbe;
    readonly model: SessionServices["model"];
    readonly links: readonly PluginLink[];
    readonly tools: readonly RegisteredTool[];
  }) {
    const { setup } = parts;
    this.#pool = parts.pool;
    this.#probe = parts.probe;
    this.#links = parts.links;
    const registry = new ToolRegistry(parts.tools);
    this.#lane = new Lane(setup.mainPort, {
      name: "The main thread",
      serve: (_method, payload) => this.#turn(payload as TurnCall),
      onNote: (topic, payload) => this.#note(topic, payload),
    });
    this.#services = {
      store: new StoreClient(setup.store),
      model: parts.model,
      table: new HookTable(parts.links, setup.hookDispatch),
      registry,
      homes: { host: this.#hostHome, plugin: this.#pluginHome, pool: parts.pool },
      instructions: setup.instructions,
      maxSteps: setup.maxSteps,
      mailboxLimit: setup.mailboxLimit,
    };
  }

  get inlineManifests(): PluginManifest[] {
    return this.#links.filter((link) => link instanceof InlineLink).map((link) => link.manifest);
  }

  workerLink(plugin: number): WorkerLink | undefined {
    const link = this.#links[plugin];
    return link instanceof WorkerLink ? link : undefined;
  }

  /** The session's actor, opened from the store when it is not resident. */
  actor(sessionId: string): SessionActor {
    return this.#sessions.get(sessionId) ?? this.#start(sessionId, () => Session.open(this.#services, sessionId));
  }

  adopt(sessionId: string, snapshot: SessionSnapshot, authority: Parameters<typeof Session.adopt>[3]): SessionActor {
    if (this.#sessions.has(sessionId)) {
      throw new TroupeError("session_exists", `There is already a session ${sessionId}.`, { details: { sessionId } });
    }
    return this.#start(sessionId, () => Session.adopt(this.#services, sessionId, snapshot, authority));
  }

  operations(): OperationSpec[] {
    return this.#services.table.operations();
  }

  async snapshot(sessionId: string): Promise<Uint8Array<ArrayBuffer>> {
    const actor = this.actor(sessionId);
    const session = await actor.opened();
    return encode(await session.snapshot({ live: actor.state === "idle" }));
  }

  async release(sessionId: string): Promise<void> {
    const actor = this.#sessions.get(sessionId);
    actor?.leave();
    await actor?.ended();
    if (actor?.failure !== undefined) throw actor.failure;
  }

  stats(): Omit<SessionWorkerStats, "threadId"> {
    const hookMessages = { sent: 0, received: 0 };
    for (const link of this.#links) {
      if (!(link instanceof WorkerLink)) continue;
      hookMessages.sent += link.messages.sent;
      hookMessages.received += link.messages.received;
    }
    return { sessions: this.#sessions.size, turns: this.#finished, hookMessages, histograms: this.#probe.entries() };
  }

  async shutdown(drainMs: number): Promise<void> {
    this.#closing = true;
    const actors = [...this.#sessions.values()];
    for (const actor of actors) actor.leave();
    const hurry = setTimeout(() => {
      for (const turn of this.#turns.values()) turn.cancel("The runtime is closing.");
    }, drainMs);
    await Promise.all(actors.map((actor) => actor.ended()));
    clearTimeout(hurry);
    await this.#pool.close();
    for (const link of this.#links) link.close();
    this.#services.store.close();
    // Answers to the last turns are still on their way into the lane; it closes behind them, and only then are we done.
    await new Promise((resolve) => setImmediate(resolve));
    this.#lane.close();
  }

  #start(sessionId: string, open: () => Promise<Session>): SessionActor {
    if (this.#closing) throw new TroupeError("closed", "The runtime is closing.");
    const actor = new SessionActor(sessionId, { open, mailboxLimit: this.#services.mailboxLimit });
    this.#sessions.set(sessionId, actor);
    actor.ended().then(() => {
      if (this.#sessions.get(sessionId) === actor) this.#sessions.delete(sessionId);
    });
    return actor;
  }

  async #turn([key, sessionId, input, listening]: TurnCall) {
    const send = (activity: ActivityNote[1]) => this.#lane.note("activity", [key, activity] satisfies ActivityNote);
    const turn = new ActiveTurn({ listening, send });
    this.#turns.set(key, turn);
    try {
      return await this.actor(sessionId).turn(input, turn);
    } finally {
      this.#finished++;
      this.#turns.delete(key);
    }
  }

  #note(topic: string, payload: unknown): void {
    if (topic === "listen") this.#turns.get(payload as number)?.listen();
    else if (topic === "cancel") {
      const [key, reason] = payload as CancelNote;
      this.#turns.get(key)?.cancel(reason);
    }
  }

  readonly #hostHome: ToolHome = {
    run: (tool, args, { sessionId, turnId, callId, signal }) =>
      this.#lane.call("tool", [tool.spec.name, args, { sessionId, turnId, callId }] satisfies HostToolCall, { signal }),
  };

  readonly #pluginHome: ToolHome = {
    run: (tool, args, context) => {
      const session = this.#sessions.get(context.sessionId)?.session;
      if (tool.home.kind !== "plugin" || session === undefined) {
        throw new TroupeError("tool_unavailable", `${tool.spec.name} cannot be reached.`);
      }
      const { link, slot } = session.hooks.of(tool.home.pluginId);
      return link.tool(slot, tool.spec.name, args, context);
    },
  };
}

function checkPluginIds(links: readonly PluginLink[]): void {
  const seen = new Set<string>();
  for (const { manifest } of links) {
    if (seen.has(manifest.id)) {
      throw new TroupeError("duplicate_plugin", `Two plugins have the id ${manifest.id}. Give one of them another.`, {
        details: { pluginId: manifest.id },
      });
    }
    seen.add(manifest.id);
  }
}

async function makeLink(setup: PluginSetup, probe: PhaseProbe): Promise<PluginLink> {
  const { deadlineMs } = setup;
  if (setup.tier === "worker") return new WorkerLink({ manifest: setup.manifest, deadlineMs, probe });
  const plugin = await loadPlugin(await importDefault(setup.module, "plugin"), setup.options, setup.module);
  return new InlineLink({ plugin, deadlineMs, probe });
}

async function allTools(
  setup: SessionWorkerSetup,
  links: readonly PluginLink[],
  pool: ToolPool,
): Promise<RegisteredTool[]> {
  const host = setup.hostTools.map(({ spec, timeoutMs }) =>
    registerTool(spec.name, { ...spec, ...(timeoutMs && { timeoutMs }) }, { kind: "host" }),
  );
  const plugins = links.flatMap(({ manifest }) =>
    manifest.tools.map(({ spec, timeoutMs }) =>
      registerTool(spec.name, { ...spec, ...(timeoutMs && { timeoutMs }) }, { kind: "plugin", pluginId: manifest.id }),
    ),
  );
  const pooled = await Promise.all(
    setup.poolTools.map(async ({ name, module, timeoutMs }) =>
      registerTool(
        name,
        { ...(await pool.describe(module)), ...(timeoutMs && { timeoutMs }) },
        { kind: "pool", module },
      ),
    ),
  );
  return [...host, ...plugins, ...pooled];
}
