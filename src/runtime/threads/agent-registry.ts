import { Serial } from "../../async/index.js";
import {
  agentUnknown,
  checkVersions,
  chooseAgent,
  invalidAgent,
  isRecord,
  readAgentName,
  TroupeError,
} from "../../kernel/index.js";
import type { AgentsSetup } from "../../session/index.js";
import { type AgentDefinition, type ResolvedOptions, resolveAgent, unsayableNames } from "../options/index.js";
import type { SessionWorker } from "./session-worker.js";

/** An agent as it is registered. */
export interface RegisteredAgent {
  /** With its version: `support@3`. */
  readonly name: string;
  readonly agent: string;
  /** Left out by an agent that was registered without one. */
  readonly version?: string;
  readonly definition: AgentDefinition;
}

/**
 * The agents of a runtime while it runs: what each is, and that every session worker has them as they are here. One
 * change at a time, and one that is refused anywhere changes nothing.
 */
export class AgentRegistry {
  readonly #options: Pick<ResolvedOptions, "worker">;
  readonly #workers: () => readonly SessionWorker[];
  readonly #changes = new Serial();
  readonly #nameModel = unsayableNames("put");
  #definitions: ReadonlyMap<string, AgentDefinition>;
  #setup: AgentsSetup;
  /** Something was changed since the start: workers that start meanwhile may have been told the agents before. */
  #changed = false;

  constructor(options: ResolvedOptions, workers: () => readonly SessionWorker[]) {
    this.#options = options;
    this.#workers = workers;
    this.#definitions = new Map(Object.entries(options.agentDefinitions));
    this.#setup = options.agents;
  }

  /** What a worker that starts is told. */
  get setup(): AgentsSetup {
    return this.#setup;
  }

  list(): RegisteredAgent[] {
    return [...this.#definitions].map(([name, definition]) => {
      const { agent, version } = readAgentName(name);
      return { name, agent, ...(version !== undefined && { version }), definition };
    });
  }

  /** Throws `agent_unknown` when no new session could have an agent of this name. */
  check(name: string): void {
    const { agents } = this.#setup;
    if (chooseAgent(agents, name, "") !== undefined) return;
    throw agentUnknown(
      name,
      agents.map((agent) => agent.name),
    );
  }

  /** Resolves when the next turn of every session finds it. */
  put(name: string, definition: AgentDefinition): Promise<void> {
    return this.#changes.run(async () => {
      const kept = structuredCloneOf(name, definition);
      const { models } = this.#options.worker;
      const { agent, models: own } = resolveAgent(name, kept, { models, nameModel: this.#nameModel });
      const definitions = new Map([...this.#definitions, [name, kept]]);
      checkVersions([...definitions.keys()]);
      const others = this.#setup.agents.filter((each) => each.name !== name);
      const agents = [...others, agent];
      await this.#adopt({ agents, models: usedBy(agents, { ...this.#setup.models, ...own }) }, definitions);
    });
  }

  /** False when there was none. */
  remove(name: string): Promise<boolean> {
    return this.#changes.run(async () => {
      readAgentName(name);
      if (!this.#definitions.has(name)) return false;
      const agents = this.#setup.agents.filter((each) => each.name !== name);
      const definitions = new Map([...this.#definitions].filter(([each]) => each !== name));
      await this.#adopt({ agents, models: usedBy(agents, this.#setup.models) }, definitions);
      return true;
    });
  }

  /** A worker that was just configured has the agents as they are now. */
  async tell(worker: SessionWorker): Promise<void> {
    if (this.#changed) await tellTo(worker, this.#setup);
  }

  async #adopt(setup: AgentsSetup, definitions: ReadonlyMap<string, AgentDefinition>): Promise<void> {
    const workers = this.#workers();
    await Promise.all(workers.map(({ configured }) => configured?.caller.to.prepareAgents(setup).catch(unlessLost)));
    // From here on a worker that starts is told the new ones.
    this.#setup = setup;
    this.#definitions = definitions;
    this.#changed = true;
    await Promise.all(this.#workers().map((worker) => tellTo(worker, this.#setup)));
  }
}

/** A worker that is lost meanwhile, or just starts, is told when its thread is there. */
async function tellTo({ configured }: SessionWorker, setup: AgentsSetup): Promise<void> {
  const to = configured?.caller.to;
  await to?.prepareAgents(setup).catch(unlessLost);
  await to?.setAgents(setup).catch(unlessLost);
}

function unlessLost(error: unknown): void {
  const isLost = error instanceof TroupeError && (error.code === "worker_lost" || error.code === "closed");
  if (!isLost) throw error;
}

function usedBy(agents: AgentsSetup["agents"], models: AgentsSetup["models"]): AgentsSetup["models"] {
  const used = new Set(agents.flatMap(({ model, calling }) => [model, ...(calling?.fallbackModels ?? [])]));
  return Object.fromEntries(Object.entries(models).filter(([name]) => used.has(name)));
}

/** Later changes of the caller's object change nothing here. */
function structuredCloneOf(name: string, definition: AgentDefinition): AgentDefinition {
  if (!isRecord(definition as unknown))
    throw invalidAgent(`${name} must be an object such as { instructions: "Be brief." }`);
  try {
    const { model, ...data } = definition;
    return { ...structuredClone(data), ...(model !== undefined && { model }) };
  } catch {
    throw invalidAgent(`${name} must be plain data: it crosses to other threads`);
  }
}
