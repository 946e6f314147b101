/** What the host gives the plugin. */
export interface SubagentsOptions {
  /** How deep agents may have agents: 1, only the session's own. Default 2. */
  readonly maxDepth?: number;
  /** How many agents a session and all its agents may have at a time, those included that wait to be asked. Default 8. */
  readonly maxAgents?: number;
  /**
   * The runtime's `agents` that may be spawned, by name, and what each is for. Default: none, and agents are what the
   * session is. One with more tools or plugins than the session that spawns it is refused.
   */
  readonly agents?: Readonly<Record<string, string>>;
  /** How the answer of an agent that was not waited for reaches the session: in the running turn or else the next (`steer`, the default), or as a turn of its own. */
  readonly deliver?: "steer" | "turn";
}

export const OPTIONS_SCHEMA = {
  type: "object",
  properties: {
    maxDepth: { type: "integer", minimum: 1, maximum: 8 },
    maxAgents: { type: "integer", minimum: 1, maximum: 64 },
    agents: { type: "object", additionalProperties: { type: "string" } },
    deliver: { enum: ["steer", "turn"] },
  },
  additionalProperties: false,
} as const;

/** The same with its defaults. */
export function withDefaults(options: unknown): Required<SubagentsOptions> {
  return { maxDepth: 2, maxAgents: 8, agents: {}, deliver: "steer", ...(options as SubagentsOptions | undefined) };
}
