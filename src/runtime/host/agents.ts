import type { AgentDefinition } from "../options/index.js";
import type { Runtime } from "../places/index.js";
import type { RegisteredAgent } from "../threads/index.js";

/** The agents of a runtime, while it runs. */
export interface TroupeAgents {
  /**
   * Registers an agent, or changes it. When this resolves, the next turn of every session of it finds it as it is here. A
   * definition that cannot be used is refused with `invalid_agent`, and nothing is changed. Not stored: a runtime that is
   * created later is given it again.
   *
   * @example
   * await troupe.agents.put("support@4", { instructions: "Answer briefly.", canary: 0.1 });
   */
  put(name: string, definition: AgentDefinition): Promise<void>;
  /** Takes an agent away; false when there was none of this name. What becomes of its sessions says `onMissingAgent`. */
  remove(name: string): Promise<boolean>;
  list(): readonly RegisteredAgent[];
}

export function agentsOf(runtime: Runtime): TroupeAgents {
  const { agents } = runtime.crew;
  return {
    put: async (name, definition) => {
      runtime.checkOpen();
      await agents.put(name, definition);
    },
    remove: async (name) => {
      runtime.checkOpen();
      return agents.remove(name);
    },
    list: () => agents.list(),
  };
}
