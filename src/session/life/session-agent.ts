import {
  canonicalJson,
  checkWithin,
  configOf,
  configuredOver,
  type Head,
  NO_AUTHORITY,
  pluginUnknown,
  type StoredAuthority,
  TroupeError,
} from "../../kernel/index.js";
import type { UnfinishedTurn } from "../journal/index.js";
import type { AgentInForce, Session, SessionServices } from "../state/index.js";
import { isCalled, NO_AGENT, saveSession, viewOf } from "../state/index.js";
import { COMPONENT } from "../stored/index.js";
import { announceRestored, authorityWith, equipmentOf, isBound, materialize } from "./equipment.js";
import { droppable } from "./fork.js";

/**
 * The agent a session is opened with. A turn that a crash left behind goes on with the one it was begun with, or where
 * that is gone and the host wants it with the newest, asked with what it was asked with; `asked` is for a new session, one that has none yet, and one whose agent is gone. Any other has its own: `agent_mismatch`.
 */
export function agentOf(
  { agents }: SessionServices,
  {
    id,
    head,
    unfinished,
    asked,
  }: { id: string; head: Head | undefined; unfinished: UnfinishedTurn | undefined; asked: string | undefined },
): AgentInForce {
  const stored = head?.agent ?? unfinished?.start.identity?.agent;
  if (stored !== undefined && asked !== undefined && !isCalled(stored, asked)) {
    if (agents.exactly(stored).agent !== undefined || unfinished !== undefined) throw agentMismatch(id, stored, asked);
    return { agent: agents.choose(asked, id), name: agents.choose(asked, id).name };
  }
  if (stored !== undefined || unfinished !== undefined) return agents.inForce(stored, id);
  if (asked === undefined) return NO_AGENT;
  const agent = agents.choose(asked, id);
  return { agent, name: agent.name };
}

export function agentMismatch(sessionId: string, stored: string, asked: string): TroupeError {
  return new TroupeError(
    "agent_mismatch",
    `Session ${sessionId} has the agent ${stored}, not ${asked}. Open it without an agent, and give it another with session.setAgent("${asked}").`,
    { details: { sessionId, agent: stored } },
  );
}

/**
 * Gives a session another equipment: its agent is another one, or says something else by now. What it had is stored
 * first. When it cannot be made, the next message opens the session from the store.
 */
async function renewSession(session: Session, agent: AgentInForce): Promise<void> {
  const { id, services, stored, hooks, protocol: before } = session;
  await saveSession(session, { always: true });
  const set = configuredOver(configOf(services.config, session.agent.agent), session.settings.config);
  hooks.close();
  try {
    const reader = stored.reader();
    const kept = (await reader.value<StoredAuthority>(COMPONENT.authority)) ?? NO_AUTHORITY;
    const authority = authorityWith(kept, session.pluginOptions);
    const sources = { id, head: stored.head, own: stored.identity, reader, stored: kept, authority, agent };
    const config = { ...configOf(services.config, agent.agent), ...set };
    session.equip(await equipmentOf(services, sources, config));
    const { protocol } = session;
    // What the protocol before it executed is nothing to another one.
    const same = before.ownerOf("codeExecutor") === protocol.ownerOf("codeExecutor");
    await protocol.restore(() => viewOf(session), same ? await reader.bytes(COMPONENT.execution) : undefined);
    await announceRestored(session, false);
    materialize(session, authority);
    await storeAgent(session);
  } catch (error) {
    session.life.giveUp(error);
    throw error;
  }
}

/** Another agent for a session, between turns; stored when it resolves. Says what it is called with its version. */
export async function setAgent(session: Session, asked: string): Promise<string> {
  const { id, services, stored } = session;
  const agent = services.agents.choose(asked, id);
  const kept = (await stored.reader().value<StoredAuthority>(COMPONENT.authority)) ?? NO_AUTHORITY;
  if (isBound(stored.head, kept))
    checkWithin(agent, { tools: kept.agentTools, plugins: stored.identity.plugins }, droppable(services));
  if (agent !== session.agent.agent) await renewSession(session, { agent, name: agent.name });
  await storeAgent(session);
  return agent.name;
}

/** Before a turn: the agent as it is registered now. Throws `agent_unknown` when its version is gone. */
export async function bringUpToDate(session: Session): Promise<void> {
  const { services, id } = session;
  const { agents } = services;
  const inForce = agents.inForce(session.stored.identity.agent, id);
  if (inForce.name !== undefined && inForce.agent === undefined) throw agents.missing(inForce.name, id);
  if (inForce.agent !== session.agent.agent) await renewSession(session, inForce);
}

/** Throws `plugin_unknown` when the runtime has no such plugin. */
export function checkPlugins({ surfaces }: SessionServices, plugins: readonly string[]): readonly string[] {
  const stranger = plugins.find((id) => !surfaces.plugins.includes(id));
  if (stranger === undefined) return plugins;
  throw pluginUnknown(`plugin ${stranger}`, surfaces.plugins);
}

/** Plugins are given when a session is made: another list later would take away what watches over it. */
export function checkSamePlugins(sessionId: string, head: Pick<Head, "plugins">, plugins: readonly string[]): void {
  if (head.plugins !== undefined && canonicalJson([...head.plugins].sort()) === canonicalJson([...plugins].sort()))
    return;
  const own = head.plugins === undefined ? "all of its agent or the runtime" : head.plugins.join(", ") || "none";
  throw new TroupeError(
    "plugins_mismatch",
    `Session ${sessionId} was made with other plugins: ${own}. Plugins are given when a session is made; leave them out to open it.`,
    { details: { sessionId } },
  );
}

/** Another agent than the stored one is in force: the session is its from now on. */
export async function storeAgent({ stored, settings, agent: { name } }: Session): Promise<void> {
  if (name === undefined || name === stored.identity.agent) return;
  // What was stored without an agent says everything; with one only what was set is kept.
  if (stored.identity.agent === undefined && stored.head?.components[COMPONENT.config] !== undefined)
    settings.change(settings.config);
  await stored.write(() => ({ operation: "agent", head: { agent: name } }));
}
