import { addUsageSaturating, NO_USAGE, type Usage } from "../../kernel/index.js";
import type { SessionWorkerStats } from "../calls/index.js";

/** Agents that are counted by name; further ones are counted together, so that the list stays bounded. */
const MAX_AGENTS = 1_000;
const OTHER_AGENTS = "others";

/** Counts tokens by model and by agent, for statistics: a sum in memory, nothing that is stored. */
export class TokenCounts {
  readonly #byModel = new Map<string, Usage>();
  readonly #byAgent = new Map<string, Usage>();

  count({ model, agent }: { readonly model: string; readonly agent: string | undefined }, usage: Usage): void {
    add(this.#byModel, model, usage);
    if (agent === undefined) return;
    const isFull = this.#byAgent.size >= MAX_AGENTS && !this.#byAgent.has(agent);
    add(this.#byAgent, isFull ? OTHER_AGENTS : agent, usage);
  }

  get counted(): SessionWorkerStats["tokens"] {
    return { byModel: Object.fromEntries(this.#byModel), byAgent: Object.fromEntries(this.#byAgent) };
  }
}

function add(sums: Map<string, Usage>, name: string, usage: Usage): void {
  sums.set(name, addUsageSaturating(sums.get(name) ?? NO_USAGE, usage).usage);
}
