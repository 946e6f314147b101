import type { Hooks } from "./hooks.js";
import type { Command, Query } from "./operations.js";
import type { InferSchema, Schema } from "./schema.js";
import type { ToolContext } from "./tool.js";

/** Schemas by name: of tools, queries, commands, tasks. */
type Schemas = Record<string, Schema>;

/** A tool a plugin brings along: it runs on the plugin's thread, with the session's state at hand. */
export interface PluginTool<S extends Schema, State, Options> {
  readonly description: string;
  readonly inputSchema: S;
  readonly timeoutMs?: number;
  execute(args: InferSchema<S>, context: ToolContext & { readonly state: State; readonly options: Options }): unknown;
}

export interface PluginDefinition<
  State,
  O extends Schema,
  T extends Schemas = Schemas,
  Q extends Schemas = Schemas,
  C extends Schemas = Schemas,
  J extends Schemas = Schemas,
> {
  /** Unique among the plugins of a runtime: `acme.budget`. */
  readonly id: string;
  /** Semantic version; kept with captured state. */
  readonly version: string;
  /** Any Standard Schema or a JSON Schema; the host's options are checked against it when the plugin is loaded. */
  readonly options?: O;
  /** The state of one session: plain data that is captured with every turn, restored and forked for you. */
  readonly state?: (init: { readonly sessionId: string; readonly options: InferSchema<O> }) => State;
  /** Turns state that another version captured into this version's. Needed across major versions. */
  readonly migrate?: (state: unknown, fromVersion: string) => State;
  readonly hooks?: Hooks<State, InferSchema<O>>;
  readonly tools?: { readonly [K in keyof T]: PluginTool<T[K], State, InferSchema<O>> };
  /** Functions the host can call: `session.query("notes.list", {})`. Names are unique over all plugins and kinds. */
  readonly queries?: { readonly [K in keyof Q]: Query<Q[K], State, InferSchema<O>> };
  readonly commands?: { readonly [K in keyof C]: Command<C[K], State, InferSchema<O>> };
  readonly tasks?: { readonly [K in keyof J]: Command<J[K], State, InferSchema<O>> };
}

/**
 * A plugin, declared. The module default-exports what this returns.
 *
 * @example
 * export default definePlugin({
 *   id: "acme.budget",
 *   version: "1.0.0",
 *   options: z.object({ max: z.number().int() }),
 *   state: () => ({ calls: 0 }),
 *   hooks: {
 *     beforeToolCall({ call, state, options }) {
 *       if (++state.calls > options.max) return deny("budget_exhausted", `${call.toolName} refused`);
 *     },
 *   },
 * });
 */
export function definePlugin<
  State,
  O extends Schema,
  const T extends Schemas,
  const Q extends Schemas,
  const C extends Schemas,
  const J extends Schemas,
>(definition: PluginDefinition<State, O, T, Q, C, J>): PluginDefinition<State, O, T, Q, C, J> {
  return definition;
}
