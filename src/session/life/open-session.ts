import {
  type Authority,
  canonicalJson,
  type Head,
  NO_AUTHORITY,
  type PendingInput,
  type SessionBudget,
  type StoredAuthority,
  sessionExists,
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
import type { OpenedSession } from "../../store/index.js";
import { SessionTools } from "../../tools/index.js";
import {
  NO_PLUGIN_OPTIONS,
  type OpeningOptions,
  type SessionMaking,
  type SessionPluginOptions,
} from "../calls/index.js";
import { awaitedCalls, leavesNoExecution, unfinishedTurn } from "../journal/index.js";
import { describeCaptured } from "../plugin-thread/index.js";
import { type PluginLink, PluginSlot, type Surface } from "../plugins/index.js";
import { SessionProtocol } from "../protocol/index.js";
import type { LifeChart, NewFrame, SessionServices } from "../state/index.js";
import { Session, SessionInputs, storedConfig, viewOf } from "../state/index.js";
import {
  COMPONENT,
  ComponentReader,
  KeptOpening,
  optionsOfOpening,
  pluginComponent,
  withoutSecrets,
} from "../stored/index.js";
import { planChild, type SessionSnapshot } from "./fork.js";

interface Opening extends OpeningOptions {
  readonly chart: LifeChart;
  /** `always`: somebody else who has the session loses it. */
  readonly take: "always" | "free";
}

/**
 * Opens a session from the store, or a new one when the store has none. From then on it is this worker's: whoever had it
 * is refused by the store.
 */
export async function openSession(
  services: SessionServices,
  id: string,
  { chart, take, pluginOptions, tenant, metadata }: Opening,
): Promise<Session> {
  const { store, journals } = services;
  // A stranger must not take the session from its owner before it is refused.
  if (tenant !== undefined) checkTenant(id, await store.head(id), tenant);
  const opened = await store.open(id, { take, journal: journals });
  try {
    const { head } = opened;
    if (tenant !== undefined) checkTenant(id, head, tenant);
    const reader = new ComponentReader(store, head, opened.components);
    const identity = { ...(tenant !== undefined && { tenant }), ...(metadata && { metadata }) };
    const session = await restore(services, {
      id,
      chart,
      opened,
      pluginOptions,
      identity,
      reader,
      keepsOpening: journals,
    });
    if (head !== undefined && metadata !== undefined) await orClosed(session, renameFor(session, metadata));
    return session;
  } catch (error) {
    store.release(id, opened.epoch);
    throw error;
  }
}

/** A session that is open and still cannot be given out leaves nothing of itself with its plugins. */
async function orClosed(session: Session, storing: Promise<void>): Promise<void> {
  try {
    await storing;
  } catch (error) {
    session.hooks.close();
    throw error;
  }
}

/** Throws unless the session is this tenant's, or is not there yet. */
export function checkTenant(sessionId: string, head: Pick<Head, "tenant"> | undefined, tenant: string): void {
  if (head === undefined || head.tenant === tenant) return;
  throw new TroupeError("tenant_mismatch", `Session ${sessionId} is not one of tenant ${tenant}.`, {
    details: { sessionId, tenant },
  });
}

/** Stores what the host finds the session by, when that is something else than before. */
export async function renameFor({ stored }: Session, metadata: Readonly<Record<string, string>>): Promise<void> {
  if (canonicalJson(stored.head?.metadata ?? {}) === canonicalJson(metadata)) return;
  await stored.write(() => ({ operation: "metadata", head: { metadata } }));
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
  const { store } = services;
  // Looked at before it is claimed: a session that exists stays with whoever has it.
  if ((await store.head(id)) !== undefined) throw sessionExists(id);
  const { head, ...planned } = await planChild(services, id, { snapshot, making });
  const unsaved = new Map(planned.components.map(({ hash, bytes }) => [hash, bytes]));
  const reader = new ComponentReader(store, head, unsaved);
  const { epoch, journal } = await store.open(id, { take: "free", journal: services.journals });
  const opened = { epoch, head, journal, opening: undefined };
  const { pluginOptions } = making.authority ?? {};
  try {
    const given = { pluginOptions, identity: {}, keepsOpening: services.journals };
    const session = await restore(services, { id, chart, opened, reader, ...given });
    await orClosed(session, session.stored.found(planned));
    return session;
  } catch (error) {
    store.release(id, epoch);
    throw error;
  }
}

interface Restoring {
  readonly id: string;
  readonly chart: LifeChart;
  readonly opened: Omit<OpenedSession, "components">;
  readonly reader: ComponentReader;
  readonly pluginOptions: SessionPluginOptions | undefined;
  readonly identity: Pick<Head, "tenant" | "metadata">;
  /** What it is opened with is kept for who takes up what it begins. */
  readonly keepsOpening?: boolean;
}

async function restore(
  services: SessionServices,
  { id, chart, opened, reader, identity, keepsOpening = false, ...given }: Restoring,
): Promise<Session> {
  const { head, epoch, journal } = opened;
  // The turn a crash left behind, if one did.
  const unfinished = journal.length === 0 ? undefined : unfinishedTurn(journal, turnIdOf((head?.turnIndex ?? 0) + 1));
  // What the opening before left to be done is done with what that one was given, unless this one is given something.
  const before = journal.length === 0 ? undefined : optionsOfOpening(opened.opening);
  const options = given.pluginOptions ?? before ?? unfinished?.start.pluginOptions ?? NO_PLUGIN_OPTIONS;
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
      epoch,
      identity,
      opening: keepsOpening ? keptOpening(services, { id, options, stored: opened.opening }) : undefined,
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

function keptOpening(
  { store, surfaces }: SessionServices,
  { id, options, stored }: { id: string; options: SessionPluginOptions; stored: OpenedSession["opening"] },
): KeptOpening | undefined {
  if (stored === undefined && options === NO_PLUGIN_OPTIONS) return undefined;
  return new KeptOpening({ store, sessionId: id }, stored, withoutSecrets(options, surfaces.manifests));
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
  { id, head, reader, authority }: Pick<Restoring, "id" | "reader"> & { head: Head | undefined; authority: Authority },
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
