import type { Authority, Json, SubagentContext } from "../../kernel/index.js";
import type { Extension, Extensions, SharedDefinition } from "../host/index.js";
import type { Action, Command, HookEntry, HookName, Hooks, Job, Protocol, Query, TriggerSpec } from "../kinds/index.js";
import type { InferSchema, PluginOptions, Schema } from "../schema/index.js";
import type { PluginTool } from "../tool/index.js";

/** What a plugin is told of the session it registers for. */
export interface PluginSessionContext<Options> {
  readonly sessionId: string;
  /** Absent for a root. */
  readonly parentSessionId: string | undefined;
  readonly isRootSession: boolean;
  /** The plugin's own options, as its schema read them. */
  readonly options: Options;
  /** What was given for this session. */
  readonly pluginOptions: PluginOptions;
  readonly toolAccess: Pick<Authority, "tools" | "hiddenTools">;
  readonly subagent: SubagentContext | undefined;
  readonly extensions: Extensions;
}

/** Collects what a plugin contributes to one session. Called once, at once; what comes later is refused. */
export interface PluginRegistrar<State, Options, Shared = unknown> {
  /** A kind may have several hooks; they run in the order they were added. */
  hook<N extends HookName>(name: N, hook: HookEntry<N, State, Options, Shared>): void;
  tool<S extends Schema>(name: string, tool: PluginTool<S, State, Options, Shared>): void;
  query<S extends Schema>(name: string, query: Query<S, State, Options, Shared>): void;
  command<S extends Schema>(name: string, command: Command<S, State, Options, Shared>): void;
  task<S extends Schema>(name: string, task: Command<S, State, Options, Shared>): void;
  action<S extends Schema>(name: string, action: Action<S, State, Options, Shared>): void;
  trigger(trigger: Omit<TriggerSpec, "payloadSchema"> & { readonly payloadSchema?: Schema }): void;
  /** Inline plugins only. */
  protocol(pieces: Protocol): void;
}

/** Takes large pieces of a snapshot. The same name twice keeps both; reading gives the first. */
export interface SnapshotWriter {
  writeBlob(name: string, data: Uint8Array): void;
}

export interface SnapshotReader {
  readBlob(name: string): Uint8Array | undefined;
}

export interface SnapshotMeta {
  readonly pluginId: string;
  /** The version that captured it. */
  readonly pluginVersion: string;
  readonly revision: bigint;
  /** Undefined when nothing was captured: begin as new. */
  readonly state: Json | undefined;
}

/** What a registered plugin keeps for itself. Without `snapshot` it has nothing to keep beyond its `state`. */
export interface SessionPlugin {
  /** Must change whenever the state does: with the same revision nothing is captured again. */
  snapshotRevision?(): number | bigint;
  /** Small state as the return value, large pieces as blobs. */
  // biome-ignore lint/suspicious/noConfusingVoidType: one with only blobs returns nothing
  snapshot?(writer: SnapshotWriter): Json | void;
  /** Called for every session that was stored before, also when it has nothing of this plugin yet. */
  restore?(meta: SnapshotMeta, reader: SnapshotReader): void;
  /** After this plugin has registered, before its state is restored. Plugins behind it register later. */
  sessionReady?(session: { readonly sessionId: string }): void;
}

export type Register<State, O extends Schema, Shared = unknown> = (
  registrar: PluginRegistrar<State, InferSchema<O>, Shared>,
  context: PluginSessionContext<InferSchema<O>>,
  // biome-ignore lint/suspicious/noConfusingVoidType: a plugin that keeps nothing returns nothing
) => SessionPlugin | void;

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
  Shared = unknown,
  W extends Schemas = Schemas,
> {
  /** Unique among the plugins of a runtime: `acme.budget`. */
  readonly id: Id;
  /** Semantic version; kept with captured state. */
  readonly version: string;
  /** Any Standard Schema or a JSON Schema; the host's options are checked against it when the plugin is loaded. */
  readonly options?: O;
  /** The state of one session: plain data that is captured with every turn, restored and forked for you. */
  readonly state?: (init: { readonly sessionId: string; readonly options: InferSchema<O> }) => State;
  /** State that sessions share by a key, such as their tenant: `context.shared` of hooks, tools and operations. */
  readonly shared?: SharedDefinition<Shared, Schema>;
  /** Turns state that another version captured into this version's. Needed across major versions. */
  readonly migrate?: (state: unknown, fromVersion: string) => State;
  /**
   * Fields of its session options that are never stored. After a crash a turn goes on without them, unless the host gives
   * them again by opening the session.
   */
  readonly secretOptions?: readonly string[];
  readonly hooks?: Hooks<State, InferSchema<O>, Shared>;
  readonly tools?: { readonly [K in keyof T]: PluginTool<T[K], State, InferSchema<O>, Shared> };
  /** Functions the host can call: `session.query("notes.list", {})`. Names are unique over all plugins and kinds. */
  readonly queries?: { readonly [K in keyof Q]: Query<Q[K], State, InferSchema<O>, Shared> };
  readonly commands?: { readonly [K in keyof C]: Command<C[K], State, InferSchema<O>, Shared> };
  readonly tasks?: { readonly [K in keyof J]: Command<J[K], State, InferSchema<O>, Shared> };
  readonly actions?: { readonly [K in keyof A]: Action<A[K], State, InferSchema<O>, Shared> };
  /** Work that goes on beside turns, begun by `host.spawnManagedTask({ job, input })`. Names are the plugin's own. */
  readonly jobs?: { readonly [K in keyof W]: Job<W[K], InferSchema<O>> };
  readonly triggers?: readonly (Omit<TriggerSpec, "payloadSchema"> & { readonly payloadSchema?: Schema })[];
  /** For other plugins of the runtime, which know them by id; the same for every session. */
  readonly extensions?: readonly Extension[] | ((options: InferSchema<O>) => readonly Extension[]);
  /** How turns talk to the model: inline plugins only. A function makes the pieces of one session. */
  readonly protocol?: Protocol | ((init: { readonly sessionId: string; readonly options: InferSchema<O> }) => Protocol);
  /**
   * Contributions that depend on the session, beside those declared here. It costs a round trip when a session is
   * opened; what is declared costs none.
   */
  readonly register?: Register<State, O, Shared>;
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
  Shared,
  const W extends Schemas,
>(
  definition: PluginDefinition<State, O, T, Q, C, J, A, Id, Shared, W> & AsWritten<Operations> & Registering<Registers>,
): Plugin<PluginDefinition<State, O, T, Q, C, J, A, Id, Shared, W>, Operations, Registers> {
  // The same object: the type says more of its operations than the compiler can see here.
  return definition as never;
}
