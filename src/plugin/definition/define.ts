import type { Extension } from "../host/index.js";
import type { Action, Command, Hooks, Protocol, Query, TriggerSpec } from "../kinds/index.js";
import type { InferSchema, Schema } from "../schema/index.js";
import type { PluginTool } from "../tool/index.js";
import type { Register } from "./registrar.js";

/** Schemas by name: of tools, queries, commands, tasks. */
type Schemas = Record<string, Schema>;

export interface PluginDefinition<
  State,
  O extends Schema,
  T extends Schemas = Schemas,
  Q extends Schemas = Schemas,
  C extends Schemas = Schemas,
  J extends Schemas = Schemas,
  A extends Schemas = Schemas,
  Id extends string = string,
> {
  /** Unique among the plugins of a runtime: `acme.budget`. */
  readonly id: Id;
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
  readonly actions?: { readonly [K in keyof A]: Action<A[K], State, InferSchema<O>> };
  readonly triggers?: readonly (Omit<TriggerSpec, "payloadSchema"> & { readonly payloadSchema?: Schema })[];
  /** For other plugins of the runtime, which know them by id; the same for every session. */
  readonly extensions?: readonly Extension[] | ((options: InferSchema<O>) => readonly Extension[]);
  /** How turns talk to the model: inline plugins only. A function makes the pieces of one session. */
  readonly protocol?: Protocol | ((init: { readonly sessionId: string; readonly options: InferSchema<O> }) => Protocol);
  /**
   * Contributions that depend on the session, beside those declared here. It costs a round trip when a session is
   * opened; what is declared costs none.
   */
  readonly register?: Register<State, O>;
}

/** Where a definition has its operations, by kind. */
type OperationField = "queries" | "commands" | "tasks" | "actions";

/**
 * The operations of a definition as they were written: with their schemas and with what their functions return, which
 * {@link PluginDefinition} does not keep. Only known fields are taken, so that a misspelt one is still an error.
 */
type AsWritten<D> = {
  readonly [F in keyof D & OperationField]: {
    readonly [Name in keyof D[F]]: {
      readonly [Field in keyof D[F][Name] & keyof Query<Schema, unknown, unknown>]: D[F][Name][Field];
    };
  };
};

/** Has `register` as a required key when the definition has one. */
type Registering<R> = { readonly [F in keyof R & "register"]: unknown };

/**
 * A plugin as {@link definePlugin} gives it back. Its type has what `session.plugin<typeof plugin>(id)` is typed from:
 * the id, the operations, and whether the plugin registers more of them for a session.
 */
export type Plugin<Definition, Operations, Registers> = Omit<Definition, OperationField> &
  Operations &
  Registering<Registers>;

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
  const O extends Schema,
  const T extends Schemas,
  const Q extends Schemas,
  const C extends Schemas,
  const J extends Schemas,
  const A extends Schemas,
  const Id extends string,
  Operations,
  Registers,
>(
  definition: PluginDefinition<State, O, T, Q, C, J, A, Id> & AsWritten<Operations> & Registering<Registers>,
): Plugin<PluginDefinition<State, O, T, Q, C, J, A, Id>, Operations, Registers> {
  // The same object: the type says more of its operations than the compiler can see here.
  return definition as never;
}
