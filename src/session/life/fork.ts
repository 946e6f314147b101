import {
  bothAllow,
  type Commit,
  changeConfig,
  checkNodes,
  checkWithin,
  configOf,
  configuredOver,
  type Head,
  hasPlugin,
  isConversation,
  isUnlimited,
  type Message,
  NO_AUTHORITY,
  NO_USAGE,
  NOTHING_UNSTORED,
  narrowAuthority,
  narrowBudget,
  nodeUnknown,
  parseNodeId,
  type SessionBudget,
  type StoredAuthority,
  TroupeError,
  textOf,
  turnOfMessage,
  type UnstoredMessage,
} from "../../kernel/index.js";
import type { MessageNode, StoreClient } from "../../store/index.js";
import { encode } from "../../wire/index.js";
import type { SessionMaking, TreeMessage } from "../calls/index.js";
import { type AgentInForce, type Session, type SessionServices, segmentOf, storedConfig } from "../state/index.js";
import {
  applyComponents,
  COMPONENT,
  ComponentReader,
  formerComponentOf,
  formerTurnKey,
  MAX_TURN_KEYS,
  pluginComponent,
  TABLE,
  withoutSecrets,
} from "../stored/index.js";

/** What a fork takes along: references to what is stored, and the bytes of what is not. */
export interface SessionSnapshot {
  readonly parent: { readonly sessionId: string; readonly leaf: string | null };
  readonly turnIndex: number;
  /** Of the parent's history up to that leaf, when it was counted. */
  readonly messageCount: number | undefined;
  readonly components: Readonly<Record<string, string>>;
  /** Component name → bytes, for state that changed since the last commit. */
  readonly unsaved: Readonly<Record<string, Uint8Array>>;
  /** Whose session it is: a session that is made of it is the same one's. */
  readonly tenant: string | undefined;
  /** The agent it has, with its version, and so has one that is made of it unless that is given another. */
  readonly agent: string | undefined;
  /** The plugins it may have; undefined: all. */
  readonly plugins: readonly string[] | undefined;
  /** It was made by another session. */
  readonly isMade: boolean;
  /** See {@link Head.family}. */
  readonly family: string;
  /** What its last requests had beside that history. */
  readonly unstored: readonly UnstoredMessage[];
}

/** How much of a message a tree shows. */
const PREVIEW = 120;
/** Messages read at once on the way back to the last one of a turn. */
const STRIDE = 32;

/**
 * The turn a node belongs to: whoever goes on from there counts on from it. Throws `node_unknown` for a node the
 * session does not lead to, and `node_unanswered` inside a step, where a tool call has no result yet: no model takes
 * such a conversation.
 */
async function turnAtNode(store: StoreClient, head: Head | undefined, node: string): Promise<number> {
  if (head === undefined || !(await leadsTo(store, head, node))) {
    throw nodeUnknown(
      `The session does not lead to a node ${node}. session.tree() lists its nodes.`,
      head?.sessionId,
      node,
    );
  }
  await checkAnswered(store, node);
  for (let at: string | null = node; at !== null; ) {
    const end: Awaited<ReturnType<StoreClient["tail"]>> = await store.tail(at, STRIDE);
    for (const { id } of [...end.messages].reverse()) {
      const turn = turnOfMessage(id);
      if (turn !== undefined) return turn;
    }
    at = end.before;
  }
  return 0;
}

/** Throws `node_unanswered` inside a step. */
export async function checkAnswered(store: StoreClient, node: string): Promise<void> {
  const { index } = parseNodeId(node);
  const { messages } = await store.tail(node, index + 1);
  if (hasUnanswered(messages))
    throw new TroupeError("node_unanswered", `At node ${node} a tool call has no result yet.`, { details: { node } });
}

/**
 * What a fork needs. State is captured now unless a turn is running: then the child gets the last commit's. Only of the
 * head is it kept, so that a fork `at` a node of the past gets it too.
 */
export async function snapshotOf(
  session: Session,
  { live, at }: { readonly live: boolean; readonly at?: string | undefined },
): Promise<SessionSnapshot> {
  if (live) await Promise.all([session.hooks.captureBehind(), session.protocol.captureExecution()]);
  const { stored, past, services, id: sessionId } = session;
  const unsaved: Record<string, Uint8Array> = {};
  const components = { ...stored.head?.components };
  if (live) {
    for (const { name, bytes } of stored.changes()) {
      delete components[name];
      if (bytes !== null) unsaved[name] = bytes;
    }
  }
  return {
    parent: { sessionId, leaf: at ?? stored.leaf },
    messageCount: at === undefined ? stored.head?.messageCount : undefined,
    turnIndex: at === undefined ? stored.turnIndex : await turnAtNode(services.store, stored.head, at),
    components,
    unsaved,
    tenant: stored.identity.tenant,
    agent: stored.identity.agent,
    plugins: stored.identity.plugins,
    isMade: stored.head?.parent !== undefined,
    family: stored.family,
    unstored: at === undefined ? past.unstored : NOTHING_UNSTORED,
  };
}

/** Most forks are of what the session leads to itself; only for others is every session looked at. */
async function leadsTo(store: StoreClient, head: Head, node: string): Promise<boolean> {
  for (const leaf of [head.leaf, ...(head.frames ?? []).map((frame) => frame.leaf)]) {
    if (leaf !== null && (await store.onPath(leaf, node))) return true;
  }
  return (await store.tree(head.sessionId)).some((known) => known.node === node);
}

function hasUnanswered(messages: readonly Message[]): boolean {
  const open = new Set<string>();
  for (const { parts } of messages) {
    for (const part of parts) {
      if (part.type === "tool_call") open.add(part.callId);
      if (part.type === "tool_result") open.delete(part.callId);
    }
  }
  return open.size > 0;
}

export function treeMessage({ node, parent, active, message }: MessageNode): TreeMessage {
  const text = textOf(message);
  return {
    node,
    parent,
    active,
    role: message.role,
    text: text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text,
  };
}

/** What plugins call secret is given to the new session's plugins, and not stored. */
function withoutSecretOptions(
  { authority, ...rest }: StoredAuthority,
  plugins: Parameters<typeof withoutSecrets>[1],
): StoredAuthority {
  const { pluginOptions, ...others } = authority;
  if (pluginOptions === undefined) return { authority, ...rest };
  return { authority: { ...others, pluginOptions: withoutSecrets(pluginOptions, plugins) }, ...rest };
}

/**
 * The agent of a session that is made of another one: that one's, or one that has no more tools and plugins. What that
 * one's agent has is the most it can have, whichever agent it is given later and whatever that says by then.
 */
function withinAgent(
  services: SessionServices,
  { id, snapshot, making }: { readonly id: string; readonly snapshot: SessionSnapshot; readonly making: SessionMaking },
  parent: StoredAuthority,
): {
  readonly agent: AgentInForce;
  readonly plugins: readonly string[] | undefined;
  readonly authority: StoredAuthority;
} {
  const { agents } = services;
  const inherited = agents.inForce(snapshot.agent, id);
  // Nobody knows any more what it may have.
  if (inherited.name !== undefined && inherited.agent === undefined)
    throw agents.missing(inherited.name, snapshot.parent.sessionId);
  const agentTools = bothAllow(parent.agentTools, inherited.agent?.tools);
  const plugins = pluginsOf(services, snapshot, { parent, agent: inherited.agent });
  const isChild = making.relation !== "root";
  const bounds = {
    ...parent,
    ...(agentTools && { agentTools }),
    ...(!isChild && making.agent && { bound: true as const }),
  };
  if (making.agent === undefined) return { agent: inherited, plugins, authority: bounds };
  const agent = agents.choose(making.agent, id);
  checkWithin(agent, { tools: agentTools, plugins }, droppable(services));
  return { agent: { agent, name: agent.name }, plugins, authority: bounds };
}

/** The plugins that the session a new one is made of has; undefined when these are all. */
function pluginsOf(
  services: SessionServices,
  { plugins, isMade }: SessionSnapshot,
  { parent, agent }: { readonly parent: StoredAuthority; readonly agent: AgentInForce["agent"] },
): readonly string[] | undefined {
  if (plugins === undefined && agent?.plugins === undefined) return undefined;
  const { all, mayDrop } = droppable(services);
  const choice = { plugins, agent, bound: isMade || parent.bound === true };
  return all.filter((id) => hasPlugin(choice, id, mayDrop(id)));
}

/** Which plugins a session that was made by another one may do without. One that is not there is not missed. */
export function droppable({ surfaces }: Pick<SessionServices, "surfaces">): Parameters<typeof checkWithin>[2] {
  const mayDrop = (pluginId: string) =>
    surfaces.links.find(({ manifest }) => manifest.id === pluginId)?.optionalInChildren !== false;
  return { all: surfaces.plugins, mayDrop };
}

/** The first write of a session that is made of another one: what it inherits, narrowed and changed as it was asked for. */
export async function planChild(
  services: SessionServices,
  id: string,
  { snapshot, making }: { readonly snapshot: SessionSnapshot; readonly making: SessionMaking },
): Promise<Pick<Commit, "head" | "components" | "segment">> {
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
  const narrowed = withinAgent(
    services,
    { id, snapshot, making },
    narrowAuthority(parent, making, droppable(services).mayDrop),
  );
  const { agent, plugins } = narrowed;
  const change = (name: string, value: unknown) => inherited.set(name, value === undefined ? null : encode(value));
  const kept = withoutSecretOptions(narrowed.authority, services.surfaces.manifests);
  change(COMPONENT.authority, isUnlimited(kept) ? undefined : kept);
  change(COMPONENT.firstInput, firstTurnInput);
  // What waits for the parent is the parent's.
  inherited.set(COMPONENT.inputs, null);
  inherited.set(COMPONENT.entering, null);
  // What was asked of that session by a key was not asked of this one. Only older releases kept it in components.
  inherited.set(formerComponentOf({ table: TABLE.receipts, key: "" }) as string, null);
  for (let place = 0; place < MAX_TURN_KEYS; place++) inherited.set(formerTurnKey(place), null);
  if (making.budget !== undefined) {
    const stored = await reader.value<{ readonly budget: SessionBudget | null }>(COMPONENT.budget);
    const own = stored === undefined ? (agent.agent?.budget ?? services.budget) : stored.budget;
    change(COMPONENT.budget, { budget: narrowBudget(own, making.budget) });
  }
  if (config !== undefined) {
    const changed = changeConfig(await storedConfig(services, reader, agent.agent), config);
    const base = configOf(services.config, agent.agent);
    change(COMPONENT.config, agent.name === undefined ? changed : configuredOver(base, changed));
  }
  if (pluginSource === "fresh") {
    for (const name of [...Object.keys(snapshot.components), ...inherited.keys()])
      if (name.startsWith(pluginComponent("")) || name === COMPONENT.tools || name === COMPONENT.execution)
        inherited.set(name, null);
  }
  // What begins empty has run no code and asked no model, and its protocol defaults its options for a child.
  if (start.kind === "empty") for (const name of NOT_OF_EMPTY) inherited.set(name, null);
  const { components, bytes } = applyComponents(snapshot.components, changes());
  const nodes = checkNodes(making.initialNodes ?? []);
  const from = start.kind === "empty" ? null : leaf;
  const origin = { kind: "creator", sessionId: createdBy } as const;
  const segment = segmentOf(id, 1, { parent: from, nodes, origin, at: services.clock.wallNow() });
  const { messages } = segment;
  const counted = from === null ? 0 : snapshot.messageCount;
  const head: Head = {
    sessionId: id,
    revision: 1,
    leaf: messages.at(-1)?.id ?? from,
    turnIndex: start.kind === "empty" ? 0 : snapshot.turnIndex,
    ...(counted !== undefined && { messageCount: counted + messages.filter(isConversation).length }),
    usage: NO_USAGE,
    components,
    operation: `create:${createdBy}:${services.clock.uuid()}`,
    ...(snapshot.tenant !== undefined && { tenant: snapshot.tenant }),
    ...(agent.name !== undefined && { agent: agent.name }),
    ...(plugins !== undefined && { plugins }),
    ...(from !== null && { family: snapshot.family }),
    ...(relation === "child" && { parent: { sessionId: createdBy, leaf } }),
  };
  return { head, components: bytes, ...(nodes.length > 0 && { segment: { id: segment.id, bytes: encode(segment) } }) };
}

const NOT_OF_EMPTY: readonly string[] = [
  COMPONENT.execution,
  COMPONENT.protocol,
  COMPONENT.askedSystem,
  COMPONENT.askedTools,
  COMPONENT.askedOffered,
];
