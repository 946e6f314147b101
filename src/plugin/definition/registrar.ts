import type { Authority, Json, SubagentContext } from "../../kernel/index.js";
import type { Extensions } from "../host/index.js";
import type { Action, Command, HookEntry, HookName, Protocol, Query, TriggerSpec } from "../kinds/index.js";
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
export interface PluginRegistrar<State, Options> {
  /** A kind may have several hooks; they run in the order they were added. */
  hook<N extends HookName>(name: N, hook: HookEntry<N, State, Options>): void;
  tool<S extends Schema>(name: string, tool: PluginTool<S, State, Options>): void;
  query<S extends Schema>(name: string, query: Query<S, State, Options>): void;
  command<S extends Schema>(name: string, command: Command<S, State, Options>): void;
  task<S extends Schema>(name: string, task: Command<S, State, Options>): void;
  action<S extends Schema>(name: string, action: Action<S, State, Options>): void;
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

export type Register<State, O extends Schema> = (
  registrar: PluginRegistrar<State, InferSchema<O>>,
  context: PluginSessionContext<InferSchema<O>>,
  // biome-ignore lint/suspicious/noConfusingVoidType: a plugin that keeps nothing returns nothing
) => SessionPlugin | void;
