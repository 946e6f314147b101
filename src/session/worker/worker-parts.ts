import type { Clock } from "../../async/index.js";
import { TroupeError, toolIdOf } from "../../kernel/index.js";
import { loadModel } from "../../model/index.js";
import { type LoadedPlugin, loadPlugin } from "../../plugin/index.js";
import { StoreClient } from "../../store/index.js";
import { type RegisteredTool, registerTool, ToolLimits, type ToolPool } from "../../tools/index.js";
import type { PhaseProbe } from "../../trace/index.js";
import { Deadlines, importDefault, type Lane } from "../../wire/index.js";
import type { HostToolCall, PluginSetup, SessionWorkerSetup, TraceNote } from "../calls/index.js";
import { Suspects } from "../journal/index.js";
import { type HostGate, InlineLink, type PluginLink, Surfaces, WorkerLink } from "../plugins/index.js";
import { STANDARD_PROTOCOL_ID, standardProtocol } from "../protocol/index.js";
import type { Session, SessionServices } from "../state/index.js";

/** What of a worker's setup is code, loaded. */
export type LoadedSetup = Pick<SessionServices, "models" | "surfaces">;

interface LinkParts {
  readonly clock: Clock;
  readonly probe: PhaseProbe;
  readonly host: HostGate;
  /** Asks for a lane to a plugin's thread, by the plugin's place in the options. */
  readonly want: (plugin: number) => void;
}

export async function loadSetup(
  setup: SessionWorkerSetup,
  { pool, ...parts }: LinkParts & { readonly pool: ToolPool },
): Promise<LoadedSetup> {
  const models = new Map([["", await loadModel(setup.model, parts.clock)]]);
  for (const [name, source] of Object.entries(setup.models)) models.set(name, await loadModel(source, parts.clock));
  const links = await makeLinks(setup, parts);
  checkPluginIds(links);
  return { models, surfaces: new Surfaces(links, await otherTools(setup, pool), setup.hookDispatch) };
}

/** The plugins of the options, and the standard protocol unless one of them brings its own or takes its name. */
async function makeLinks(setup: SessionWorkerSetup, given: LinkParts): Promise<PluginLink[]> {
  const parts = { ...given, development: setup.development };
  const inline = (
    plugin: LoadedPlugin,
    { deadlineMs, optionalInChildren }: Pick<PluginSetup, "deadlineMs" | "optionalInChildren">,
  ) => new InlineLink({ plugin, deadlineMs, optionalInChildren, ...parts });
  const links = await Promise.all(
    setup.plugins.map(async (plugin, index) => {
      if (plugin.tier === "worker") return new WorkerLink({ ...plugin, ...parts, onWanted: () => given.want(index) });
      const { module, options } = plugin;
      return inline(await loadPlugin(await importDefault(module, "plugin"), options, module), plugin);
    }),
  );
  if (!setup.standardProtocol || links.some(({ manifest }) => manifest.id === STANDARD_PROTOCOL_ID)) return links;
  const standard = await loadPlugin(standardProtocol, undefined, STANDARD_PROTOCOL_ID);
  return [...links, inline(standard, { deadlineMs: NO_DEADLINE_MS, optionalInChildren: false })];
}

/** The standard protocol's methods are the runtime's own. */
const NO_DEADLINE_MS = 2 ** 31 - 1;

function checkPluginIds(links: readonly PluginLink[]): void {
  const ids = links.map(({ manifest }) => manifest.id);
  const pluginId = ids.find((id, index) => ids.indexOf(id) < index);
  if (pluginId === undefined) return;
  throw new TroupeError("duplicate_plugin", `Two plugins have the id ${pluginId}. Give one of them another.`, {
    details: { pluginId },
  });
}

/** The tools that are not of plugins: the host's, and those of the pool. */
async function otherTools(setup: SessionWorkerSetup, pool: ToolPool): Promise<RegisteredTool[]> {
  const host = setup.hostTools.map(({ spec, ...policy }) =>
    registerTool(spec.name, { ...spec, ...policy }, { kind: "host" }),
  );
  const pooled = await Promise.all(
    setup.poolTools.map(async ({ name, module, ...policy }) =>
      registerTool(name, { ...(await pool.describe(module)), ...policy }, { kind: "pool", module }),
    ),
  );
  return [...host, ...pooled];
}

export interface ServiceParts extends LoadedSetup {
  readonly setup: SessionWorkerSetup;
  readonly clock: Clock;
  /** To the main thread. */
  readonly lane: Lane;
  readonly pool: ToolPool;
  /** A session that is open on this worker. */
  readonly sessionOf: (sessionId: string) => Session | undefined;
  readonly host: HostGate;
  readonly onStoreLost: (error: TroupeError) => void;
}

/** What every session of a worker shares. */
export function workerServices({ setup, clock, lane, pool, ...parts }: ServiceParts): SessionServices {
  const { prompt, budget, prices, config, mailboxLimit, journals } = setup;
  return {
    clock,
    deadlines: new Deadlines(clock),
    store: new StoreClient({ ...setup.store, clock, onLost: parts.onStoreLost }),
    models: parts.models,
    prompt,
    budget,
    prices,
    surfaces: parts.surfaces,
    homes: {
      pool,
      // Tools that are closures of the host run on the main thread.
      host: {
        run: (tool, args, { sessionId, turnId, callId, signal, cancelGraceMs: graceMs }) => {
          const call: HostToolCall = [tool.spec.name, args, { sessionId, turnId, callId }];
          return lane.call("tool", call, { signal, graceMs });
        },
      },
      // Tools of plugins run where their session's instance of the plugin is.
      plugin: {
        run: (tool, args, context) => {
          const session = parts.sessionOf(context.sessionId);
          if (tool.home.kind !== "plugin" || session === undefined)
            throw new TroupeError("tool_unavailable", `${tool.spec.name} cannot be reached.`);
          const { link, slot } = session.hooks.of(tool.home.pluginId);
          return link.tool(slot, toolIdOf(tool.spec), args, context);
        },
      },
    },
    config,
    mailboxLimit,
    limits: new ToolLimits(),
    host: parts.host,
    relay: (method, argument) => lane.call("relay", [method, argument]),
    journals,
    suspects: new Suspects(),
    trace: { listening: setup.tracing, emit: (event) => lane.note("trace", event satisfies TraceNote) },
  };
}
