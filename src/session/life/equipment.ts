import {
  type Agent,
  type Authority,
  bothAllow,
  configOf,
  configuredOver,
  type Head,
  hasPlugin,
  type Identity,
  type SessionBudget,
  type SessionConfig,
  type StoredAuthority,
  type ToolState,
  TroupeError,
} from "../../kernel/index.js";
import {
  type Contributions,
  NO_CONTRIBUTIONS,
  type PluginManifest,
  PluginOptions,
  type ProtocolTurnOptions,
  sameMajor,
} from "../../plugin/index.js";
import { SessionTools } from "../../tools/index.js";
import type { SessionPluginOptions } from "../calls/index.js";
import { describeCaptured } from "../plugin-thread/index.js";
import { type PluginLink, PluginSlot, type Surface } from "../plugins/index.js";
import { SessionProtocol } from "../protocol/index.js";
import type { AgentInForce, Equipment, Session, SessionServices } from "../state/index.js";
import { storedConfig } from "../state/index.js";
import { COMPONENT, type ComponentReader, pluginComponent } from "../stored/index.js";

/** What a session's equipment is made of. */
export interface EquipmentSources {
  readonly id: string;
  readonly head: Head | undefined;
  /** What it was given when it was made. */
  readonly own: Identity;
  readonly reader: ComponentReader;
  readonly stored: StoredAuthority;
  readonly authority: Authority;
  readonly agent: AgentInForce;
}

export async function equipmentOf(
  services: SessionServices,
  { id, head, own, reader, stored, authority, agent }: EquipmentSources,
  config: SessionConfig,
): Promise<Equipment> {
  const { links } = services.surfaces;
  const slots: (PluginSlot | undefined)[] = [];
  const bound = isBound(head, stored);
  try {
    for (const link of links) {
      const has = isWanted(services, { plugins: own.plugins, agent: agent.agent, bound }, link);
      slots.push(has ? await openSlot(services, { id, head, own, reader, authority, agent }, link) : undefined);
    }
    const tools = bothAllow(agent.agent?.tools, stored.agentTools);
    const surface = await surfaceOf(services, slots, tools);
    const protocol = new SessionProtocol(links, slots, {
      sessionId: id,
      turnOptions: await reader.value<ProtocolTurnOptions>(COMPONENT.protocol),
    });
    await protocol.initialize();
    const budget = await reader.value<{ readonly budget: SessionBudget | null }>(COMPONENT.budget);
    return {
      agent,
      surface,
      slots,
      tools: await toolsOf(surface, stored, reader),
      config,
      budget: budget === undefined ? (agent.agent?.budget ?? services.budget) : budget.budget,
      authority,
      protocol,
    };
  } catch (error) {
    closeSlots(services, slots);
    throw error;
  }
}

/** Was the session made by another one, so that its agent can only narrow? */
export function isBound(head: Head | undefined, { bound }: StoredAuthority): boolean {
  return bound === true || head?.parent !== undefined;
}

function isWanted(
  { surfaces }: SessionServices,
  choice: Parameters<typeof hasPlugin>[0] & { readonly agent: Agent | undefined },
  { manifest, optionalInChildren }: PluginLink,
): boolean {
  const { protocols } = surfaces;
  if (protocols.includes(manifest.id)) return manifest.id === (choice.agent?.protocol ?? protocols[0]);
  return hasPlugin(choice, manifest.id, optionalInChildren);
}

/** A configuration that was stored before the session had an agent says everything: only what was set counts. */
export async function configFrom(
  services: SessionServices,
  { head, reader, agent }: Pick<EquipmentSources, "head" | "reader" | "agent">,
): Promise<SessionConfig> {
  if (agent.name === undefined || head?.agent !== undefined) return storedConfig(services, reader, agent.agent);
  const set = configuredOver(services.config, await storedConfig(services, reader));
  return { ...configOf(services.config, agent.agent), ...set };
}

export function closeSlots({ surfaces }: SessionServices, slots: readonly (PluginSlot | undefined)[]): void {
  surfaces.links.forEach((link, index) => {
    const slot = slots[index];
    if (slot !== undefined) link.closeSession(slot);
  });
}

async function openSlot(
  services: SessionServices,
  { id, head, own, reader, authority, agent }: Omit<EquipmentSources, "stored">,
  { manifest, optionalInChildren }: PluginLink,
): Promise<PluginSlot | undefined> {
  // What is stored may come from somebody else's file: only what this host made optional is left out.
  if (optionalInChildren && authority.withoutPlugins?.includes(manifest.id)) return undefined;
  const captured = manifest.stateful ? await reader.bytes(pluginComponent(manifest.id)) : undefined;
  if (captured !== undefined) checkVersion(id, manifest, describeCaptured(captured).version);
  const init = manifest.registers
    ? {
        parentSessionId: head?.parent?.sessionId,
        authority,
        extensions: services.surfaces.extensions,
        fresh: head === undefined,
      }
    : undefined;
  const slot = new PluginSlot(id, {
    number: services.surfaces.nextSlot(),
    component: pluginComponent(manifest.id),
    captured,
    init,
    ...(manifest.shared && { facts: { sessionId: id, tenant: own.tenant, agent: agent.name } }),
    version: manifest.version,
  });
  slot.stateful = manifest.stateful;
  return slot;
}

/**
 * Has plugins that register do so again, and tools, catalog and prompt made of that. When one cannot, the session goes on
 * with what was registered before.
 */
export async function refreshTools({ services, stored, agent, hooks, catalog }: Session): Promise<void> {
  await hooks.renew();
  const kept = await stored.reader().value<StoredAuthority>(COMPONENT.authority);
  const surface = await surfaceOf(services, hooks.slots, bothAllow(agent.agent?.tools, kept?.agentTools));
  hooks.rebind(surface.table);
  catalog.refresh(surface);
}

/** Plugins register one after another; the first that cannot ends it. */
async function surfaceOf(
  services: SessionServices,
  slots: readonly (PluginSlot | undefined)[],
  tools: readonly string[] | undefined,
): Promise<Surface> {
  const { surfaces } = services;
  const contributions: Contributions[] = [];
  for (const [index, link] of surfaces.links.entries()) {
    const slot = slots[index];
    if (slot === undefined) contributions.push(NO_CONTRIBUTIONS);
    else if (!link.manifest.registers) contributions.push(link.manifest.contributions);
    else
      contributions.push(
        await link.register(slot).catch((error: unknown) => {
          // A plugin that was given up contributes nothing to a session that can do without it.
          if (link.policy.doesWithout(error)) return NO_CONTRIBUTIONS;
          throw error;
        }),
      );
  }
  return surfaces.of(contributions, tools);
}

async function toolsOf(
  { registry }: Surface,
  { authority, catalog }: StoredAuthority,
  reader: ComponentReader,
): Promise<SessionTools> {
  const state = await reader.value<ToolState>(COMPONENT.tools);
  const tools = new SessionTools(registry, {
    ...(authority.hiddenTools && { hidden: authority.hiddenTools }),
    ...(authority.tools && { access: authority.tools }),
    ...(state && { state }),
  });
  if (catalog.remove.length > 0) tools.setRemoved(catalog.remove);
  return tools;
}

/** Before any plugin is called: state its plugin cannot read is left as it is. */
function checkVersion(sessionId: string, { id, version, migrates }: PluginManifest, stored: string): void {
  if (migrates || sameMajor(stored, version)) return;
  throw new TroupeError(
    "plugin_state_incompatible",
    `Session ${sessionId} has state of plugin ${id} ${stored}, which ${version} cannot read. Give the plugin a migrate(state, fromVersion), or run ${stored}.`,
    { details: { sessionId, pluginId: id, stored, current: version } },
  );
}

export function authorityWith({ authority }: StoredAuthority, options: SessionPluginOptions): Authority {
  if (Object.keys(options).length === 0) return authority;
  return { ...authority, pluginOptions: { ...authority.pluginOptions, ...options } };
}

export function materialize({ protocol, stored }: Session, authority: Authority): void {
  protocol.materialize({
    pluginOptions: new PluginOptions(authority.pluginOptions),
    isRootSession: stored.head?.parent === undefined,
  });
}

export async function announceRestored(session: Session, fresh: boolean): Promise<void> {
  const facts = { sessionId: session.id, turnIndex: session.stored.turnIndex, fresh };
  const causes: unknown[] = [];
  const [issue] = await session.hooks.announce("session_restored", facts, (error) => causes.push(error));
  if (issue === undefined) return;
  throw new TroupeError("session_restore_failed", `Session ${session.id} could not be opened: ${issue.message}`, {
    cause: causes[0],
    details: { pluginId: issue.pluginId },
  });
}
