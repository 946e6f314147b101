import type { Clock } from "../../async/index.js";
import { TroupeError } from "../../kernel/index.js";
import { loadModel } from "../../model/index.js";
import { type LoadedPlugin, loadPlugin } from "../../plugin/index.js";
import { type RegisteredTool, registerTool, type ToolPool } from "../../tools/index.js";
import type { PhaseProbe } from "../../trace/index.js";
import { importDefault } from "../../wire/index.js";
import type { PluginSetup, SessionWorkerSetup } from "../calls/index.js";
import type { HostGate, PluginLink } from "../plugins/index.js";
import { InlineLink, WorkerLink } from "../plugins/index.js";
import { STANDARD_PROTOCOL_ID, standardProtocol } from "../protocol/index.js";
import type { SessionServices } from "../state/index.js";

export function checkPluginIds(links: readonly PluginLink[]): void {
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

interface LinkParts {
  readonly clock: Clock;
  readonly probe: PhaseProbe;
  readonly host: HostGate;
  readonly development: boolean;
}

/** The plugins of the options, and the standard protocol unless one of them brings its own or takes its name. */
export async function makeLinks(
  { plugins, standardProtocol: standard }: SessionWorkerSetup,
  parts: LinkParts,
): Promise<PluginLink[]> {
  const links = await Promise.all(plugins.map((plugin) => makeLink(plugin, parts)));
  if (!standard || links.some(({ manifest }) => manifest.id === STANDARD_PROTOCOL_ID)) return links;
  const plugin = await loadPlugin(standardProtocol, undefined, STANDARD_PROTOCOL_ID);
  return [...links, inlineLink(plugin, { deadlineMs: NO_DEADLINE_MS, optionalInChildren: false }, parts)];
}

async function makeLink(setup: PluginSetup, parts: LinkParts): Promise<PluginLink> {
  if (setup.tier === "worker") return new WorkerLink({ ...setup, ...parts });
  const plugin = await loadPlugin(await importDefault(setup.module, "plugin"), setup.options, setup.module);
  return inlineLink(plugin, setup, parts);
}

function inlineLink(
  plugin: LoadedPlugin,
  { deadlineMs, optionalInChildren }: Pick<PluginSetup, "deadlineMs" | "optionalInChildren">,
  parts: LinkParts,
): InlineLink {
  return new InlineLink({ plugin, deadlineMs, optionalInChildren, ...parts });
}

export async function loadModels(
  { model, models }: SessionWorkerSetup,
  clock: Clock,
): Promise<SessionServices["models"]> {
  const loaded = new Map([["", await loadModel(model, clock)]]);
  for (const [name, source] of Object.entries(models)) loaded.set(name, await loadModel(source, clock));
  return loaded;
}

/** The tools that are not of plugins: the host's, and those of the pool. */
export async function otherTools(setup: SessionWorkerSetup, pool: ToolPool): Promise<RegisteredTool[]> {
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

/** The standard protocol's methods are the runtime's own. */
const NO_DEADLINE_MS = 2 ** 31 - 1;
