import { type Clock, inTime } from "../../async/index.js";
import { duplicatePlugin, type TroupeError, toolIdOf, toolUnavailable } from "../../kernel/index.js";
import {
  loadModel,
  type Model,
  type ModelFactory,
  ModelInstances,
  type ModelSource,
  modelLoadTimeout,
} from "../../model/index.js";
import { type LoadedPlugin, loadPlugin, pluginLoadTimeout } from "../../plugin/index.js";
import { StoreClient } from "../../store/index.js";
import {
  type ArgumentChecks,
  type NoteTaker,
  type RegisteredTool,
  registerTool,
  ToolLimits,
  type ToolPools,
} from "../../tools/index.js";
import { type EventSink, firstTokenPhase, type PhaseProbe, recordMs } from "../../trace/index.js";
import { Deadlines, importDefault, type Lane } from "../../wire/index.js";
import type {
  FloatingNote,
  GroupSetup,
  HostDownNote,
  HostToolCall,
  PluginSetup,
  SecretsCall,
  SessionWorkerSetup,
  TraceNote,
  WantedNote,
} from "../calls/index.js";
import { Suspects } from "../journal/index.js";
import { type HostGate, InlineLink, PluginGroup, type PluginLink, Surfaces, WorkerLink } from "../plugins/index.js";
import { STANDARD_PROTOCOL_ID, standardProtocol } from "../protocol/index.js";
import { type Agents, type Session, type SessionServices, TenantAccounts, TokenCounts } from "../state/index.js";
import { checkAgent } from "./check-agent.js";

/** What of a worker's setup is code, loaded. */
export interface LoadedSetup extends Pick<SessionServices, "surfaces"> {
  readonly models: Map<string, Model | ModelFactory>;
  readonly load: (source: ModelSource | undefined) => Promise<Model | ModelFactory>;
  /** By number. */
  readonly groups: PluginGroup[];
  readonly newGroup: (setup: GroupSetup, number: number) => PluginGroup;
}

interface LinkParts {
  readonly clock: Clock;
  readonly probe: PhaseProbe;
  readonly host: HostGate;
  /** Asks for a lane to a plugin host. */
  readonly want: (host: WantedNote) => void;
  /** Tells that a plugin host's thread must not go on. */
  readonly down: (note: HostDownNote) => void;
  /** Tells of a rejection in a plugin that nobody handled. */
  readonly floating: (note: FloatingNote) => void;
  /** Tells that a tool of a plugin said something before it answered. */
  readonly noted: NoteTaker;
  readonly events: EventSink | undefined;
}

export async function loadSetup(
  setup: SessionWorkerSetup,
  { pool, ...parts }: LinkParts & { readonly pool: ToolPools },
): Promise<LoadedSetup> {
  const { modelLoadMs } = setup;
  const load: LoadedSetup["load"] = (source) => {
    const loading = loadModel(source, parts.clock);
    if (source?.kind !== "module") return loading;
    return inTime(parts.clock, modelLoadMs, loading, () => modelLoadTimeout(source.url, modelLoadMs));
  };
  const models = new Map([["", await load(setup.model)]]);
  for (const [name, source] of Object.entries({ ...setup.models, ...setup.agents.models }))
    models.set(name, await load(source));
  const newGroup = (group: GroupSetup, number: number) => new PluginGroup({ ...group, ...parts, number });
  const groups = setup.groups.map(newGroup);
  const links = await makeLinks(setup, parts, groups);
  checkPluginIds(links);
  const surfaces = new Surfaces(links, await otherTools(setup, pool), {
    dispatch: setup.hookDispatch,
    protocols: protocolsOf(setup, links),
  });
  for (const agent of setup.agents.agents) checkAgent(agent, { surfaces, models });
  return { models, load, groups, newGroup, surfaces };
}

/** The plugins of the options, and the standard protocol unless one of them brings its own or takes its name. */
async function makeLinks(
  setup: SessionWorkerSetup,
  given: LinkParts,
  groups: readonly PluginGroup[],
): Promise<PluginLink[]> {
  const parts = { ...given, development: setup.development };
  const inline = (plugin: LoadedPlugin, { deadlineMs, optionalInChildren, onFailure, optional }: InlineSettings) =>
    new InlineLink({ plugin, deadlineMs, optionalInChildren, onFailure, optional, ...parts });
  const links = await Promise.all(
    setup.plugins.map(async (plugin) => {
      if (plugin.tier === "worker")
        return new WorkerLink({ ...plugin, ...parts, group: groups[plugin.group] as PluginGroup });
      const { module, options, loadMs } = plugin;
      const loading = importDefault(module, "plugin").then((exported) => loadPlugin(exported, options, module));
      return inline(await inTime(parts.clock, loadMs, loading, () => pluginLoadTimeout(module, loadMs)), plugin);
    }),
  );
  if (setup.standardProtocol === "none" || links.some(({ manifest }) => manifest.id === STANDARD_PROTOCOL_ID))
    return links;
  const standard = await loadPlugin(standardProtocol, undefined, STANDARD_PROTOCOL_ID);
  return [...links, inline(standard, OWN_PROTOCOL)];
}

/** By id, the default first. */
function protocolsOf({ plugins, standardProtocol }: SessionWorkerSetup, links: readonly PluginLink[]): string[] {
  const given = links.flatMap(({ manifest }, index) => (plugins[index]?.isProtocol ? [manifest.id] : []));
  const ownIsThere = links.length > plugins.length;
  if (!ownIsThere) return given;
  return standardProtocol === "default" ? [STANDARD_PROTOCOL_ID, ...given] : [...given, STANDARD_PROTOCOL_ID];
}

type InlineSettings = Pick<PluginSetup, "deadlineMs" | "optionalInChildren" | "onFailure" | "optional">;

/** The standard protocol's methods are the runtime's own. */
const OWN_PROTOCOL: InlineSettings = {
  deadlineMs: 2 ** 31 - 1,
  optionalInChildren: false,
  onFailure: {},
  optional: false,
};

function checkPluginIds(links: readonly PluginLink[]): void {
  const ids = links.map(({ manifest }) => manifest.id);
  const pluginId = ids.find((id, index) => ids.indexOf(id) < index);
  if (pluginId === undefined) return;
  throw duplicatePlugin(`Two plugins have the id ${pluginId}`, "Give one of them another.", { pluginId });
}

/** The tools that are not of plugins: the host's, and those of the pool. */
async function otherTools(setup: SessionWorkerSetup, pool: ToolPools): Promise<RegisteredTool[]> {
  const host = setup.hostTools.map(({ spec, ...policy }) =>
    registerTool(spec.name, { ...spec, ...policy }, { kind: "host" }),
  );
  const pooled = await Promise.all(
    setup.poolTools.map(async ({ name, module, timeoutMs }) =>
      registerTool(
        name,
        { ...(await pool.describe(name)), ...(timeoutMs !== undefined && { timeoutMs }) },
        { kind: "pool", module, entry: name },
      ),
    ),
  );
  return [...host, ...pooled];
}

export interface ServiceParts extends LoadedSetup {
  readonly setup: SessionWorkerSetup;
  readonly clock: Clock;
  /** To the main thread. */
  readonly lane: Lane;
  readonly pool: ToolPools;
  readonly checks: ArgumentChecks;
  readonly probe: PhaseProbe;
  /** A session that is open on this worker. */
  readonly sessionOf: (sessionId: string) => Session | undefined;
  readonly host: HostGate;
  readonly onStoreLost: (error: TroupeError) => void;
  readonly events: EventSink | undefined;
  readonly agents: Agents;
}

/** What every session of a worker shares. */
export function workerServices({ setup, clock, lane, pool, events, ...parts }: ServiceParts): SessionServices {
  const {
    prompt,
    calling,
    budget,
    prices,
    config,
    turnLimit,
    mailboxLimit,
    journals,
    onMismatch,
    attachments,
    development,
  } = setup;
  return {
    clock,
    deadlines: new Deadlines(clock),
    store: new StoreClient({
      ...setup.store,
      clock,
      onLost: parts.onStoreLost,
      onSlow: events && (({ sessionId, ...slow }) => events.emit({ type: "store_slow", session: sessionId, ...slow })),
    }),
    models: parts.models,
    agents: parts.agents,
    firstToken: (modelId, ms) => recordMs(parts.probe.phase(firstTokenPhase(modelId)), ms),
    instances: new ModelInstances({
      clock,
      max: setup.modelInstances,
      loadMs: setup.modelLoadMs,
      ttlMs: setup.secretsTtlMs,
      secrets: setup.secrets ? (tenant) => lane.call("secrets", { tenant } satisfies SecretsCall) : undefined,
    }),
    prompt,
    calling,
    turnLimit,
    budget,
    prices,
    tenants: setup.tenantBudgets ? new TenantAccounts() : undefined,
    surfaces: parts.surfaces,
    checks: parts.checks,
    homes: {
      pool,
      // Tools that are closures of the host run on the main thread.
      host: {
        run: (tool, args, { sessionId, turnId, callId, asks, signal, cancelGraceMs: graceMs }) => {
          const call: HostToolCall = [tool.spec.name, args, { sessionId, turnId, callId, ...(asks && { asks }) }];
          return lane.call("tool", call, { signal, graceMs });
        },
      },
      // Tools of plugins run where their session's instance of the plugin is.
      plugin: {
        run: (tool, args, context) => {
          const session = parts.sessionOf(context.sessionId);
          if (tool.home.kind !== "plugin" || session === undefined)
            throw toolUnavailable(`${tool.spec.name} cannot be reached`);
          return session.hooks.tool(tool.home.pluginId, { toolId: toolIdOf(tool.spec), args, context });
        },
      },
    },
    config,
    mailboxLimit,
    attachments,
    limits: new ToolLimits(),
    host: parts.host,
    relay: (method, argument) => lane.call("relay", [method, argument]),
    journals,
    onMismatch,
    development,
    suspects: new Suspects(),
    events,
    tokens: new TokenCounts(),
    trace: { listening: setup.tracing, emit: (event) => lane.note("trace", event satisfies TraceNote) },
  };
}
