import {
  type Authority,
  type Head,
  NO_AUTHORITY,
  type PendingInput,
  type SessionBudget,
  type StoredAuthority,
  type ToolState,
  TroupeError,
  turnIdOf,
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
import { NO_PLUGIN_OPTIONS, type SessionMaking, type SessionPluginOptions } from "../calls/index.js";
import { awaitedCalls, leavesNoExecution, unfinishedTurn } from "../journal/index.js";
import { describeCaptured } from "../plugin-thread/index.js";
import { type PluginLink, PluginSlot, type Surface } from "../plugins/index.js";
import { SessionProtocol } from "../protocol/index.js";
import type { LifeChart, NewFrame, SessionServices } from "../state/index.js";
import { Session, SessionInputs, storedConfig, viewOf } from "../state/index.js";
import { COMPONENT, ComponentReader, pluginComponent } from "../stored/index.js";
import { planChild, type SessionSnapshot } from "./fork.js";

/** Opens a session from the store, or a new one when the store has none. */
export async function openSession(
  services: SessionServices,
  id: string,
  { chart, pluginOptions }: { readonly chart: LifeChart; readonly pluginOptions?: SessionPluginOptions | undefined },
): Promise<Session> {
  const head = await services.store.head(id);
  return restore(services, { id, chart, head, pluginOptions, reader: new ComponentReader(services.store, head) });
}

/** Builds a session from another one: writes its head, never that one's history, and only once its plugins have taken it on. */
export async function adoptSession(
  services: SessionServices,
  id: string,
  {
    chart,
    snapshot,
    making,
  }: { readonly chart: LifeChart; readonly snapshot: SessionSnapshot; readonly making: SessionMaking },
): Promise<Session> {
  if ((await services.store.head(id)) !== undefined) {
    throw new TroupeError("session_exists", `There is already a session ${id}.`, { details: { sessionId: id } });
  }
  const { head, ...planned } = await planChild(services, id, { snapshot, making });
  const unsaved = new Map(planned.components.map(({ hash, bytes }) => [hash, bytes]));
  const reader = new ComponentReader(services.store, head, unsaved);
  const session = await restore(services, { id, chart, head, reader, pluginOptions: making.authority?.pluginOptions });
  try {
    await session.stored.found(planned);
  } catch (error) {
    session.hooks.close();
    throw error;
  }
  return session;
}

interface Restoring {
  readonly id: string;
  readonly chart: LifeChart;
  readonly head: Head | undefined;
  readonly reader: ComponentReader;
  readonly pluginOptions: SessionPluginOptions | undefined;
}

async function restore(services: SessionServices, { id, chart, head, reader, ...given }: Restoring): Promise<Session> {
  const rows = services.journals ? await services.store.journal(id) : [];
  // The turn a crash left behind, if one did.
  const unfinished = rows.length === 0 ? undefined : unfinishedTurn(rows, turnIdOf((head?.turnIndex ?? 0) + 1));
  // A turn that goes on does so with what its session was opened with; what this opening was given counts more.
  const options = { ...unfinished?.start.pluginOptions, ...given.pluginOptions };
  const hasOptions = Object.keys(options).length > 0;
  const pluginOptions = hasOptions ? options : NO_PLUGIN_OPTIONS;
  const stored = (await reader.value<StoredAuthority>(COMPONENT.authority)) ?? NO_AUTHORITY;
  const authority: Authority = hasOptions
    ? { ...stored.authority, pluginOptions: { ...stored.authority.pluginOptions, ...options } }
    : stored.authority;
  const { links } = services.surfaces;
  const slots: (PluginSlot | undefined)[] = [];
  try {
    for (const link of links) slots.push(await openSlot(services, { id, head, reader, authority }, link));
    const surface = await surfaceOf(services, slots);
    const protocol = new SessionProtocol(links, slots, {
      sessionId: id,
      turnOptions: await reader.value<ProtocolTurnOptions>(COMPONENT.protocol),
    });
    await protocol.initialize();
    const tools = await toolsOf(surface, stored, reader);
    const budget = await reader.value<{ readonly budget: SessionBudget | null }>(COMPONENT.budget);
    const session = new Session({
      id,
      chart,
      services,
      head,
      surface,
      slots,
      tools,
      config: await storedConfig(services, reader),
      budget: budget === undefined ? services.budget : budget.budget,
      authority,
      protocol,
      pluginOptions,
      inputs: new SessionInputs(await reader.value<readonly PendingInput[]>(COMPONENT.inputs)),
    });
    const execution = unfinished !== undefined && leavesNoExecution(unfinished) ? undefined : COMPONENT.execution;
    await protocol.restore(() => viewOf(session), execution && (await reader.bytes(execution)));
    // What waited for a turn that is no more waits for the next; for one that goes on it goes on waiting.
    if (unfinished === undefined) session.inputs.turnFailed();
    else {
      session.life.found(unfinished);
      // Its calls that wait for an answer can be answered at once.
      for (const key of awaitedCalls(id, unfinished)) session.completions.expect(key);
    }
    await enterLeftFor(session, await reader.value<NewFrame>(COMPONENT.entering));
    await announceRestored(session, head === undefined);
    protocol.materialize({
      pluginOptions: new PluginOptions(authority.pluginOptions),
      isRootSession: head?.parent === undefined,
    });
    return session;
  } catch (error) {
    links.forEach((link, index) => {
      const slot = slots[index];
      if (slot !== undefined) link.closeSession(slot);
    });
    throw error;
  }
}

/** The last turn left for a frame, and a crash came between. One that cannot be entered is left alone, as the turn would have. */
async function enterLeftFor(session: Session, frame: NewFrame | undefined): Promise<void> {
  if (frame === undefined) return;
  try {
    await session.graph.openFrame(frame);
  } catch (error) {
    if (session.life.isStale) throw error;
  }
}

async function openSlot(
  services: SessionServices,
  { id, head, reader, authority }: Omit<Restoring, "pluginOptions" | "chart"> & { readonly authority: Authority },
  { manifest }: PluginLink,
): Promise<PluginSlot | undefined> {
  if (authority.withoutPlugins?.includes(manifest.id)) return undefined;
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
  });
  slot.stateful = manifest.stateful;
  return slot;
}

/**
 * Has plugins that register do so again, and tools, catalog and prompt made of that. When one cannot, the session goes on
 * with what was registered before.
 */
export async function refreshTools({ services, hooks, catalog }: Session): Promise<void> {
  await hooks.renew();
  const surface = await surfaceOf(services, hooks.slots);
  hooks.rebind(surface.table);
  catalog.refresh(surface);
}

/** Plugins register one after another; the first that cannot ends it. */
async function surfaceOf(services: SessionServices, slots: readonly (PluginSlot | undefined)[]): Promise<Surface> {
  const { surfaces } = services;
  const contributions: Contributions[] = [];
  for (const [index, link] of surfaces.links.entries()) {
    const slot = slots[index];
    if (slot === undefined) contributions.push(NO_CONTRIBUTIONS);
    else contributions.push(link.manifest.registers ? await link.register(slot) : link.manifest.contributions);
  }
  return surfaces.of(contributions);
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

async function announceRestored(session: Session, fresh: boolean): Promise<void> {
  const facts = { sessionId: session.id, turnIndex: session.stored.turnIndex, fresh };
  const [issue] = await session.hooks.announce("session_restored", facts);
  if (issue === undefined) return;
  throw new TroupeError("session_restore_failed", `Session ${session.id} could not be opened: ${issue.message}`, {
    details: { pluginId: issue.pluginId },
  });
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
