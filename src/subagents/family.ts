import { toolError } from "../plugin/index.js";

/** An agent that was spawned and not closed. */
export interface Agent {
  /** What the model calls it, among those of the session that spawned it. */
  readonly name: string;
  readonly session: string;
  /** The session that spawned it. */
  readonly parent: string;
  /** The tool call that spawned it: made again after a crash, it spawns no other. */
  readonly call: string;
  /** The runtime's agent it is, when it is another than its parent. */
  readonly kind?: string;
}

/** The agents of a session and of all its agents: what they share, so that they are counted together. */
export interface Family {
  agents: Agent[];
}

const MARK = "/agent:";
/** Of the id of the session at the top, as far as ids of agents have it. */
const MAX_ROOT = 128;

/** The session whose agents a session's are counted with. */
export function rootOf(sessionId: string): string {
  return (sessionId.split(MARK)[0] as string).slice(0, MAX_ROOT);
}

/** The id of the agent that a call spawns: the same when the call is made again. */
export function agentSessionOf(sessionId: string, callId: string): string {
  const place = sessionId.includes(MARK) ? sessionId.slice(sessionId.indexOf(MARK)) : "";
  return `${rootOf(sessionId)}${place}${MARK}${tailOf(callId)}`;
}

/** Enough of a call's id to tell it from others of the session. */
function tailOf(callId: string): string {
  return callId.replaceAll(/[^A-Za-z0-9]/g, "").slice(-12) || "call";
}

/** An agent that was given no name is called by the end of its session's id. */
export function nameOf(asked: string | undefined, session: string): string {
  return asked === undefined ? `agent-${session.slice(session.lastIndexOf(MARK) + MARK.length).slice(-6)}` : asked;
}

export function agentsOf(family: Family, parent: string): readonly Agent[] {
  return family.agents.filter((agent) => agent.parent === parent);
}

/** An agent of a session, by name; throws what the model reads when there is none. */
export function agentNamed(family: Family, parent: string, name: string): Agent {
  const own = agentsOf(family, parent);
  const found = own.find((agent) => agent.name === name);
  if (found !== undefined) return found;
  const known = own.length === 0 ? "You have none." : `You have ${own.map((agent) => agent.name).join(", ")}.`;
  throw toolError(`There is no agent ${name}. ${known}`, { code: "subagent_unknown" });
}

/** An agent, those it spawned, and theirs: one that is closed has what goes on in those below ended. */
export function subtreeOf(family: Family, top: Agent): readonly Agent[] {
  return [top, ...agentsOf(family, top.session).flatMap((agent) => subtreeOf(family, agent))];
}

/** Why another agent cannot be had; undefined: it can, or is there already because this call has spawned it before. */
export function whyNot(
  family: Family,
  asked: Pick<Agent, "name" | "parent" | "session">,
  maxAgents: number,
): { readonly code: string; readonly message: string } | undefined {
  const { agents } = family;
  if (agents.some(({ session }) => session === asked.session)) return undefined;
  const own = agentsOf(family, asked.parent);
  if (own.some(({ name }) => name === asked.name))
    return {
      code: "subagent_exists",
      message: `There is an agent ${asked.name} already. Ask it, or choose another name.`,
    };
  if (agents.length < maxAgents) return undefined;
  const closing =
    own.length === 0 ? "" : ` Close one that you need no more: ${own.map(({ name }) => name).join(", ")}.`;
  const message = `${agents.length} agents are there already, and there may be no more than ${maxAgents}.${closing}`;
  return { code: "subagent_limit", message };
}
