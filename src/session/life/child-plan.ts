import {
  type Commit,
  changeConfig,
  checkNodes,
  type Head,
  isConversation,
  isUnlimited,
  NO_AUTHORITY,
  NO_USAGE,
  narrowAuthority,
  type StoredAuthority,
} from "../../kernel/index.js";
import { encode } from "../../wire/index.js";
import type { SessionMaking } from "../calls/index.js";
import type { SessionServices, SessionSnapshot } from "../state/index.js";
import { segmentOf, storedConfig } from "../state/index.js";
import {
  applyComponents,
  COMPONENT,
  ComponentReader,
  MAX_TURN_KEYS,
  pluginComponent,
  turnKeyComponent,
} from "../stored/index.js";

/** The first write of a session that is made of another one. */
export type ChildPlan = Pick<Commit, "head" | "components" | "segment">;

/** The child's first head: what it inherits, narrowed and changed as it was asked for. */
export async function planChild(
  services: SessionServices,
  id: string,
  { snapshot, making }: { readonly snapshot: SessionSnapshot; readonly making: SessionMaking },
): Promise<ChildPlan> {
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
  // A plugin that is not there is not missed.
  const mayDrop = (pluginId: string) =>
    services.surfaces.links.find(({ manifest }) => manifest.id === pluginId)?.optionalInChildren !== false;
  const narrowed = narrowAuthority(parent, making, mayDrop);
  const change = (name: string, value: unknown) => inherited.set(name, value === undefined ? null : encode(value));
  change(COMPONENT.authority, isUnlimited(narrowed) ? undefined : narrowed);
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
  const origin = { kind: "creator", sessionId: createdBy } as const;
  const segment = segmentOf(id, 1, { parent: from, nodes, origin });
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
    ...(relation === "child" && { parent: { sessionId: createdBy, leaf } }),
  };
  return { head, components: bytes, ...(nodes.length > 0 && { segment: { id: segment.id, bytes: encode(segment) } }) };
}

function dropPluginState(stored: Readonly<Record<string, string>>, changes: Map<string, Uint8Array | null>): void {
  for (const name of [...Object.keys(stored), ...changes.keys()]) {
    if (name.startsWith(pluginComponent("")) || name === COMPONENT.tools || name === COMPONENT.execution)
      changes.set(name, null);
  }
}
