import {
  type Agent,
  agentUnknown,
  chooseAgent,
  readAgentName,
  sameAgent,
  type TroupeError,
} from "../../kernel/index.js";

/** What becomes of a session whose agent's version is gone. */
export type OnMissingAgent = "refuse" | "newest";

/** The agent of a session: what it is called, and what it is, unless that is gone. */
export interface AgentInForce {
  /** With its version; undefined for a session with the runtime's own settings. */
  readonly name: string | undefined;
  readonly agent: Agent | undefined;
}

export const NO_AGENT: AgentInForce = Object.freeze({ name: undefined, agent: undefined });

/** The agents of a worker, as the host registered them last. */
export class Agents {
  readonly #onMissing: OnMissingAgent;
  #byName: ReadonlyMap<string, Agent>;

  constructor(agents: readonly Agent[] = [], onMissing: OnMissingAgent = "refuse") {
    this.#onMissing = onMissing;
    this.#byName = new Map(agents.map((agent) => [agent.name, agent]));
  }

  /** Others from now on. One that says what it said before stays the same object: its sessions go on as they are. */
  replace(agents: readonly Agent[]): void {
    const before = this.#byName;
    this.#byName = new Map(
      agents.map((agent) => {
        const known = before.get(agent.name);
        return [agent.name, known !== undefined && sameAgent(known, agent) ? known : agent];
      }),
    );
  }

  /** The agent for a name that a host or a plugin says; `agent_unknown` when there is none. */
  choose(asked: string, sessionId: string): Agent {
    const agent = chooseAgent(this.#byName.values(), asked, sessionId);
    if (agent === undefined) throw agentUnknown(asked, this.#names);
    return agent;
  }

  /** What a session has now that was stored with this name. Where the host wants it, a version that is gone is the newest. */
  inForce(stored: string | undefined, sessionId: string): AgentInForce {
    if (stored === undefined) return NO_AGENT;
    const agent =
      this.#byName.get(stored) ?? (this.#onMissing === "newest" ? this.#newest(stored, sessionId) : undefined);
    return { name: agent?.name ?? stored, agent };
  }

  /** Exactly the agent of this name, for a turn that was begun with it. */
  exactly(stored: string | undefined): AgentInForce {
    return stored === undefined ? NO_AGENT : { name: stored, agent: this.#byName.get(stored) };
  }

  /** Why a session cannot go on with an agent that is gone. */
  missing(name: string, sessionId: string): TroupeError {
    const advice = ` Session ${sessionId} was begun with it: register it again, give the session another with session.setAgent(), or create the runtime with onMissingAgent: "newest".`;
    return agentUnknown(name, this.#names, advice);
  }

  #newest(stored: string, sessionId: string): Agent | undefined {
    return chooseAgent(this.#byName.values(), readAgentName(stored).agent, sessionId);
  }

  get #names(): string[] {
    return [...this.#byName.keys()];
  }
}

/** May a session with the first agent be asked for by the second name? Without a version any of the agent will do. */
export function isCalled(stored: string, asked: string): boolean {
  if (stored === asked) return true;
  const { agent, version } = readAgentName(asked);
  return version === undefined && readAgentName(stored).agent === agent;
}
