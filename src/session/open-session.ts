import { isDeepStrictEqual } from "node:util";
import {
  type Authority,
  type CatalogOverlay,
  changeConfig,
  checkNodes,
  type Head,
  isConversation,
  messageOfNode,
  NO_USAGE,
  nodeId,
  type PendingInput,
  type SessionBudget,
  type SessionConfig,
  segmentId,
  type ToolSpec,
  type ToolState,
  TroupeError,
  toolIdOf,
  turnIdOf,
} from "../kernel/index.js";
import {
  type Contributions,
  NO_CONTRIBUTIONS,
  type PluginManifest,
  PluginOptions,
  type ProtocolTurnOptions,
  sameMajor,
} from "../plugin/index.js";
import { SessionTools } from "../tools/index.js";
import { encode } from "../wire/index.js";
import {
  applyComponents,
  COMPONENT,
  ComponentReader,
  NO_AUTHORITY,
  pluginComponent,
  type StoredAuthority,
  turnKeyComponent,
} from "./components.js";
import { describeCaptured } from "./plugin-instance.js";
import { type PluginLink, PluginSlot } from "./plugin-link.js";
import { NO_PLUGIN_OPTIONS, type SessionMaking, type SessionPluginOptions } from "./protocol.js";
import { Session } from "./session.js";
import { SessionInputs } from "./session-inputs.js";
import type { LifeChart } from "./session-life.js";
import type { NewFrame, SessionServices, SessionSnapshot } from "./session-parts.js";
import { SessionProtocol } from "./session-protocol.js";
import { viewOf } from "./session-view.js";
import type { Surface } from "./surface.js";
import { MAX_TURN_KEYS } from "./turn-keys.js";
import { awaitedCalls, leavesNoExecution, type UnfinishedTurn, unfinishedTurn } from "./unfinished-turn.js";

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
  const { head, bytes, segment } = await planChild(services, id, snapshot, making);
  const unsaved = new Map(bytes.map((component) => [component.hash, component.bytes]));
  const reader = new ComponentReader(services.store, head, unsaved);
  const session = await restore(services, { id, chart, head, reader, pluginOptions: making.authority?.pluginOptions });
  try {
    await session.stored.found({ components: bytes, ...(segment && { segment }) });
  } catch (error) {
    session.close();
    throw error;
  }
  return session;
}

/** The child's first head: what it inherits, narrowed and changed as it was asked for. */
async function planChild(services: SessionServices, id: string, snapshot: SessionSnapshot, making: SessionMaking) {
  const { start = { kind: "empty" }, pluginSource = "fork", relation = "child", firstTurnInput, config } = making;
  const inherited = new Map<string, Uint8Array | null>(Object.entries(snapshot.unsaved));
  const changes = () => [...inherited].map(([name, bytes]) => ({ name, bytes }));
  const { sessionId, leaf } = snapshot.parent;
  const { createdBy = sessionId } = making;
  const known = applyComponents(snapshot.components, changes());
  const reader = new ComponentReader(
    services.store,
    { sessionId, components: known.components },
    new Map(known.bytes.map((component) => [component.hash, component.bytes])),
  );
  const parent = (await reader.value<StoredAuthority>(COMPONENT.authority)) ?? NO_AUTHORITY;
  const narrowed = narrow(parent, making, services.surfaces.links);
  const change = (name: string, value: unknown) => inherited.set(name, value === undefined ? null : encode(value));
  change(COMPONENT.authority, isEmpty(narrowed) ? undefined : narrowed);
  change(COMPONENT.firstInput, firstTurnInput);
  // What waits for the parent is the parent's.
  inherited.set(COMPONENT.inputs, null);
  inherited.set(COMPONENT.entering, null);
  // What was asked of that session by a key was not asked of this one.
  change(COMPONENT.receipts, undefined);
  for (let place = 0; place < MAX_TURN_KEYS; place++) inherited.set(turnKeyComponent(place), null);
  if (config !== undefined) {
    change(COMPONENT.config, changeConfig(await storedConfig(services, reader), config));
  }
  if (pluginSource === "fresh") dropPluginState(snapshot.components, inherited);
  // What begins empty has run no code, and its protocol defaults its options for a child.
  if (start.kind === "empty") for (const name of [COMPONENT.execution, COMPONENT.protocol]) inherited.set(name, null);
  const { components, bytes } = applyComponents(snapshot.components, changes());
  const nodes = checkNodes(making.initialNodes ?? []);
  const from = start.kind === "empty" ? null : leaf;
  const first = segmentId(id, 1);
  const origin = { kind: "creator", sessionId: createdBy } as const;
  const messages = nodes.map((node, index) => messageOfNode(node, nodeId(first, index), origin));
  const segment = { id: first, parent: from, messages };
  const counted = from === null ? 0 : snapshot.messageCount;
  const head: Head = {
    sessionId: id,
    revision: 1,
    leaf: nodes.length === 0 ? from : nodeId(first, nodes.length - 1),
    turnIndex: start.kind === "empty" ? 0 : snapshot.turnIndex,
    ...(counted !== undefined && { messageCount: counted + messages.filter(isConversation).length }),
    usage: NO_USAGE,
    components,
    operation: `create:${createdBy}:${services.clock.uuid()}`,
    ...(relation === "child" && { parent: { sessionId: createdBy, leaf } }),
  };
  return { head, bytes, segment: nodes.length === 0 ? undefined : { id: first, bytes: encode(segment) } };
}

function dropPluginState(stored: Readonly<Record<string, string>>, changes: Map<string, Uint8Array | null>): void {
  for (const name of [...Object.keys(stored), ...changes.keys()]) {
    if (name.startsWith(pluginComponent("")) || name === COMPONENT.tools || name === COMPONENT.execution)
      changes.set(name, null);
  }
}

/** A child can narrow what its parent could do, never widen it. */
function narrow(
  parent: StoredAuthority,
  { authority = {}, catalog }: SessionMaking,
  links: readonly PluginLink[],
): StoredAuthority {
  const withoutPlugins = union(parent.authority.withoutPlugins, authority.withoutPlugins);
  for (const pluginId of authority.withoutPlugins ?? []) checkDroppable(pluginId, links);
  const tools = narrowTools(parent.authority.tools, authority.tools);
  const hiddenTools = union(parent.authority.hiddenTools, authority.hiddenTools);
  const { subagent = parent.authority.subagent, pluginOptions } = authority;
  const merged: Authority = {
    ...(hiddenTools.length > 0 && { hiddenTools }),
    ...(tools !== undefined && { tools }),
    ...(subagent !== undefined && { subagent }),
    ...(withoutPlugins.length > 0 && { withoutPlugins }),
    ...(pluginOptions !== undefined
      ? { pluginOptions: { ...parent.authority.pluginOptions, ...pluginOptions } }
      : parent.authority.pluginOptions !== undefined && { pluginOptions: parent.authority.pluginOptions }),
  };
  // The overlay is inherited, or replaced as a whole: unlike authority it is no promise.
  return { authority: merged, catalog: (catalog ?? parent.catalog) satisfies CatalogOverlay };
}

/** No definitions mean no limit, so an empty list must not lift the parent's. */
function narrowTools(parent: Authority["tools"] = [], asked: Authority["tools"] = []): Authority["tools"] {
  if (asked.length === 0) return parent.length === 0 ? undefined : parent;
  const stranger = parent.length === 0 ? undefined : asked.find((tool) => !parent.some((own) => sameTool(own, tool)));
  if (stranger === undefined) return asked;
  throw new TroupeError(
    "authority_widened",
    `The parent session has no such tool ${stranger.name} to give to a child: name, id and schema must be its own.`,
    { details: { tool: stranger.name } },
  );
}

/** Under another id a name is another tool, and under another schema it may be asked for more. */
function sameTool(a: ToolSpec, b: ToolSpec): boolean {
  return a.name === b.name && toolIdOf(a) === toolIdOf(b) && isDeepStrictEqual(a.inputSchema, b.inputSchema);
}

function union(a: readonly string[] = [], b: readonly string[] = []): string[] {
  return [...new Set([...a, ...b])].sort();
}

function isEmpty({ authority, catalog }: StoredAuthority): boolean {
  return Object.keys(authority).length === 0 && catalog.remove.length === 0;
}

/** What watches over the parent watches over the child, unless the host said that it need not. */
function checkDroppable(pluginId: string, links: readonly PluginLink[]): void {
  const link = links.find(({ manifest }) => manifest.id === pluginId);
  if (link === undefined || link.optionalInChildren) return;
  throw new TroupeError(
    "plugin_not_droppable",
    `A child session cannot do without plugin ${pluginId}. Mark its entry optionalInChildren to allow it.`,
    { details: { pluginId } },
  );
}

interface Restoring {
  readonly id: string;
  readonly chart: LifeChart;
  readonly head: Head | undefined;
  readonly reader: ComponentReader;
  readonly pluginOptions: SessionPluginOptions | undefined;
}

async function restore(services: SessionServices, { id, chart, head, reader, ...given }: Restoring): Promise<Session> {
  const unfinished = services.journals ? await findUnfinished(services, id, head) : undefined;
  // A turn that goes on does so with what its session was opened with; what this opening was given counts more.
  const options = { ...unfinished?.start.pluginOptions, ...given.pluginOptions };
  const pluginOptions = Object.keys(options).length === 0 ? NO_PLUGIN_OPTIONS : options;
  const stored = (await reader.value<StoredAuthority>(COMPONENT.authority)) ?? NO_AUTHORITY;
  const authority: Authority = withOptions(stored.authority, pluginOptions);
  const { links } = services.surfaces;
  const slots: (PluginSlot | undefined)[] = [];
  try {
    for (const link of links) slots.push(await openSlot(services, { id, head, reader, authority }, link));
    const surface = await surfaceOf(services, slots);
    const protocol = SessionProtocol.of(links, slots, {
      sessionId: id,
      turnOptions: await reader.value<ProtocolTurnOptions>(COMPONENT.protocol),
    });
    await protocol.initialize();
    const tools = await toolsOf(surface, stored, reader);
    const config = await storedConfig(services, reader);
    const session = new Session({
      id,
      chart,
      services,
      head,
      surface,
      slots,
      tools,
      config,
      budget: await storedBudget(services, reader),
      authority,
      overlay: stored.catalog,
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

/** The turn a crash left behind, if one did. */
async function findUnfinished(
  { store }: SessionServices,
  id: string,
  head: Head | undefined,
): Promise<UnfinishedTurn | undefined> {
  const rows = await store.journal(id);
  return rows.length === 0 ? undefined : unfinishedTurn(rows, turnIdOf((head?.turnIndex ?? 0) + 1));
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

/** What an older release did not store is as the runtime's options say. */
async function storedConfig(services: SessionServices, reader: ComponentReader): Promise<SessionConfig> {
  return { ...services.config, ...(await reader.value<SessionConfig>(COMPONENT.config)) };
}

async function storedBudget(services: SessionServices, reader: ComponentReader): Promise<SessionBudget | null> {
  const stored = await reader.value<{ readonly budget: SessionBudget | null }>(COMPONENT.budget);
  return stored === undefined ? services.budget : stored.budget;
}

function withOptions(authority: Authority, pluginOptions: SessionPluginOptions): Authority {
  if (Object.keys(pluginOptions).length === 0) return authority;
  return { ...authority, pluginOptions: { ...authority.pluginOptions, ...pluginOptions } };
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
