import type {
  AfterToolDirective,
  AfterTurnDirective,
  AppendNode,
  BeforeToolDirective,
  BeforeTurnDirective,
  CheckpointKind,
  Json,
  ModelResponse,
  PluginEvent,
  PreparedContext,
  PromptContribution,
  SessionConfig,
  SubagentContext,
  ToolAvailability,
  ToolCall,
  ToolContentPart,
  ToolOutput,
  TurnDirective,
  TurnSummary,
} from "../../kernel/index.js";
import type { Extensions, SharedState } from "../host/index.js";
import {
  CHECKPOINT_HOOK_HOST,
  HISTORY_HOST,
  type HostInterface,
  type HostOf,
  NO_HOST,
  PROMPT_HOOK_HOST,
  TASK_HOST,
  TOOL_HOOK_HOST,
  TURN_HOOK_HOST,
  TURN_RESULT_HOOK_HOST,
} from "../host/index.js";

/** Hook kinds by the names they have in probes, statistics and messages. */
export const HOOK_KINDS = {
  turnContextTransform: "context_transform",
  beforeTurn: "before_turn",
  toolCatalogContributor: "tool_catalog_contributor",
  promptContributor: "prompt_contributor",
  assistantStream: "assistant_stream",
  assistantResponse: "assistant_response",
  proseProjector: "assistant_prose_projector",
  streamFinished: "stream_finished",
  beforeToolCall: "before_tool_call",
  afterToolCall: "after_tool_call",
  toolResultProjector: "tool_result_projector",
  checkpoint: "checkpoint",
  afterTurn: "after_turn",
  turnFinalized: "turn_finalized",
  turnPersisted: "turn_persisted",
  sessionRestored: "session_restored",
  sessionConfigMutator: "session_config_mutator",
  sessionConfigChanged: "session_config_changed",
  contextCompactor: "context_compactor",
} as const;

export type HookName = keyof typeof HOOK_KINDS;
export type HookKind = (typeof HOOK_KINDS)[HookName];

const NAMES = new Map(Object.entries(HOOK_KINDS).map(([name, kind]) => [kind as HookKind, name as HookName]));

/** A hook kind as its plugin's author writes it: `beforeTurn`. */
export function hookNameOf(kind: HookKind): HookName {
  return NAMES.get(kind) as HookName;
}

/** What every hook of a turn is told. The history is never shipped; ask for less, get it faster. */
export interface TurnFacts {
  readonly sessionId: string;
  readonly turnId: string;
  readonly turnIndex: number;
}

/** What hooks are told at a turn's beginning. */
export interface TurnBeginning extends TurnFacts {
  /** The text of the turn's input. */
  readonly input: string;
  /** What the host brought along for this plugin, this turn; null when nothing. */
  readonly pluginInput: Json;
}

/** An input is asked as a turn of its own, or waits: for the next turn, or for the running one. */
export type InputArrival = "turn" | "enqueue" | "steer";

/** What the runtime sends for each kind: plain data, the same for both tiers. */
export interface HookFacts {
  context_transform: TurnBeginning & {
    readonly messageCount: number;
    /** Tokens the last model call of this session read, when known. */
    readonly promptTokens: number | null;
    readonly maxContextTokens: number | null;
    /** As the transform before left it. */
    readonly prepared: PreparedContext;
  };
  /** `arrival`: of hooks that may replace the input. */
  before_turn: TurnBeginning & { readonly messageCount: number; readonly arrival?: InputArrival };
  tool_catalog_contributor: TurnFacts & {
    readonly tools: readonly string[];
    readonly hiddenTools: readonly string[];
    readonly subagent: SubagentContext | undefined;
    readonly extensions: Extensions;
  };
  prompt_contributor: TurnBeginning & { readonly tools: readonly string[] };
  assistant_stream: TurnFacts & {
    readonly step: number;
    readonly blockId: string;
    readonly chunk: string;
    /** The block is over: said once for it, to hooks that ask for it. */
    readonly final: boolean;
  };
  assistant_response: TurnFacts & { readonly step: number; readonly response: ModelResponse };
  /** A text that was not streamed. */
  assistant_prose_projector: TurnFacts & { readonly step: number; readonly text: string };
  stream_finished: TurnFacts & { readonly step: number; readonly reason: StreamEnd };
  before_tool_call: TurnFacts & {
    readonly call: ToolCall;
    /** What the tool wants done with references in its arguments, when it says so. */
    readonly argumentProjection?: Json | undefined;
  };
  after_tool_call: TurnFacts & { readonly call: ToolCall; readonly output: ToolOutput; readonly durationMs: number };
  tool_result_projector: HookFacts["after_tool_call"];
  checkpoint: TurnFacts & { readonly checkpoint: CheckpointKind; readonly step: number };
  after_turn: TurnFacts & { readonly turn: TurnSummary };
  turn_finalized: TurnFacts & { readonly turn: TurnSummary };
  turn_persisted: TurnFacts & { readonly turn: TurnSummary; readonly revision: number };
  session_restored: { readonly sessionId: string; readonly turnIndex: number; readonly fresh: boolean };
  /** `config` is what the mutator before made of it. */
  session_config_mutator: ConfigFacts & { readonly config: SessionConfig };
  session_config_changed: ConfigFacts;
  context_compactor: {
    readonly sessionId: string;
    readonly turnIndex: number;
    readonly messageCount: number;
    readonly maxContextTokens: number | null;
    readonly instructions: string | null;
  };
}

/** A change of a session's configuration: as it was, and as it is asked to be. */
export interface ConfigFacts {
  readonly sessionId: string;
  readonly previous: SessionConfig;
  readonly current: SessionConfig;
}

/** What a new frame begins with; without any nodes the next compactor is asked. */
export interface Compaction {
  readonly initialNodes: readonly AppendNode[];
  /**
   * Messages of the conversation's beginning that stay as they are, before the nodes: the provider reads them from its
   * cache. Cut back to where a turn begins. Default 0.
   */
  readonly keep?: number;
}

/** How a model call ended. Said once for every call that was begun, so that a stream hook can start afresh. */
export type StreamEnd = "complete" | "aborted" | "cancelled" | "provider_error";

/**
 * Tools the model is not to have: by name, or by an availability below `callable`. Names nobody knows are ignored; what
 * is hidden stays hidden. Asked again when tools, overlay or any plugin's state changed, or when a plugin with state was
 * called since, not for every model call.
 */
export interface CatalogContribution {
  readonly remove?: readonly string[];
  readonly overrides?: readonly { readonly toolName: string; readonly availability?: ToolAvailability }[];
}

/** What a stream hook may do with a chunk. A plain string replaces the chunk. */
export interface StreamTransform {
  readonly chunk?: string;
  readonly reasoning?: readonly string[];
  readonly events?: readonly PluginEvent[];
  /** End the model call here; what has been streamed so far is the answer. */
  readonly abortStream?: boolean;
}

export interface ResponseTransform {
  readonly response?: ModelResponse;
  readonly events?: readonly PluginEvent[];
}

type OneOrMany<T> = T | readonly T[] | undefined;

/** What a hook of each kind may return. A directive a kind does not allow does not compile, and is refused at run time. */
export interface HookResults {
  /** The context as this turn is to have it; nothing leaves it as it is. */
  context_transform: Partial<PreparedContext> | undefined;
  before_turn: OneOrMany<TurnDirective>;
  tool_catalog_contributor: CatalogContribution | undefined;
  prompt_contributor: OneOrMany<PromptContribution>;
  assistant_stream: StreamTransform | string | undefined;
  assistant_response: ResponseTransform | undefined;
  assistant_prose_projector: string | undefined;
  stream_finished: undefined;
  before_tool_call: OneOrMany<BeforeToolDirective>;
  after_tool_call: OneOrMany<AfterToolDirective>;
  /** What the model is given instead of the result, a text or parts; the record keeps the result itself. */
  tool_result_projector: string | readonly ToolContentPart[] | undefined;
  checkpoint: OneOrMany<TurnDirective>;
  after_turn: OneOrMany<AfterTurnDirective>;
  turn_finalized: undefined;
  turn_persisted: undefined;
  session_restored: undefined;
  session_config_mutator: Partial<SessionConfig> | undefined;
  session_config_changed: undefined;
  context_compactor: Compaction | undefined;
}

/** Which host services the hooks of a kind are given. */
export const HOOK_HOSTS = {
  context_transform: HISTORY_HOST,
  before_turn: TURN_HOOK_HOST,
  tool_catalog_contributor: NO_HOST,
  prompt_contributor: PROMPT_HOOK_HOST,
  assistant_stream: NO_HOST,
  assistant_response: NO_HOST,
  assistant_prose_projector: NO_HOST,
  stream_finished: NO_HOST,
  before_tool_call: TOOL_HOOK_HOST,
  after_tool_call: TOOL_HOOK_HOST,
  tool_result_projector: NO_HOST,
  checkpoint: CHECKPOINT_HOOK_HOST,
  after_turn: TURN_RESULT_HOOK_HOST,
  turn_finalized: NO_HOST,
  turn_persisted: HISTORY_HOST,
  session_restored: NO_HOST,
  session_config_mutator: TASK_HOST,
  session_config_changed: TASK_HOST,
  context_compactor: HISTORY_HOST,
} as const satisfies Record<HookKind, readonly HostInterface[]>;

/** The context a hook gets: the facts, this session's state, the plugin's options, and a signal that aborts when nobody waits any more. */
export type HookContext<K extends HookKind, State, Options, Shared = unknown> = HookFacts[K] & {
  readonly state: State;
  /** What sessions of the same key share; only of a plugin that declares `shared`, and not yet in `sessionRestored`. */
  readonly shared: SharedState<Shared>;
  readonly options: Options;
  readonly signal: AbortSignal;
  /** The host services this kind of hook is given. */
  readonly host: HostOf<(typeof HOOK_HOSTS)[K]>;
};

// biome-ignore lint/suspicious/noConfusingVoidType: a hook that returns nothing is the common case
type HookReturn<K extends HookKind> = HookResults[K] | void;

export type Hook<K extends HookKind, State, Options, Shared = unknown> = (
  context: HookContext<K, State, Options, Shared>,
) => HookReturn<K> | Promise<HookReturn<K>>;

/** Hooks around tool calls may name the tools they are for (`"shell"`, `"fs_*"`); others cost them nothing. */
export interface MatchedHook<K extends HookKind, State, Options, Shared = unknown> {
  readonly tools: readonly string[];
  readonly run: Hook<K, State, Options, Shared>;
}

/** Context transforms and compactors run by priority, the highest first; equals in registration order. Default 0. */
export interface PrioritisedHook<K extends HookKind, State, Options, Shared = unknown> {
  readonly priority: number;
  readonly run: Hook<K, State, Options, Shared>;
}

/** A stream hook that is called once more when a block of text is over, with `final: true`: what it held back goes there. */
export interface FinalHook<K extends HookKind, State, Options, Shared = unknown> {
  readonly final: true;
  readonly run: Hook<K, State, Options, Shared>;
}

/**
 * A `beforeTurn` hook that may return `replaceInput`. It runs ahead of every other hook of the turn, and before anything
 * is written; and once for each input that is to wait, before it waits.
 */
export interface ReplacingHook<State, Options, Shared = unknown> {
  readonly replacesInput: true;
  readonly run: (
    context: HookContext<"before_turn", State, Options, Shared> & { readonly arrival: InputArrival },
    // biome-ignore lint/suspicious/noConfusingVoidType: a hook that returns nothing is the common case
  ) => OneOrMany<BeforeTurnDirective> | void | Promise<OneOrMany<BeforeTurnDirective> | void>;
}

type ToolHookName = "beforeToolCall" | "afterToolCall" | "toolResultProjector";
type PrioritisedName = "turnContextTransform" | "contextCompactor";

export type HookEntry<N extends HookName, State, Options, Shared = unknown> =
  | Hook<(typeof HOOK_KINDS)[N], State, Options, Shared>
  | (N extends ToolHookName ? MatchedHook<(typeof HOOK_KINDS)[N], State, Options, Shared> : never)
  | (N extends PrioritisedName ? PrioritisedHook<(typeof HOOK_KINDS)[N], State, Options, Shared> : never)
  | (N extends "assistantStream" ? FinalHook<"assistant_stream", State, Options, Shared> : never)
  | (N extends "beforeTurn" ? ReplacingHook<State, Options, Shared> : never);

export type Hooks<State, Options, Shared = unknown> = {
  readonly [N in HookName]?: HookEntry<N, State, Options, Shared>;
};

/** Kinds of which a session can have only one: two plugins with it do not start. */
export const SINGLETON_KINDS: readonly HookKind[] = ["tool_result_projector", "assistant_prose_projector"];
/** Kinds that may name tools. */
export const MATCHED_KINDS: readonly HookKind[] = ["before_tool_call", "after_tool_call", "tool_result_projector"];
/** Kinds that may have a priority. */
export const PRIORITISED_KINDS: readonly HookKind[] = ["context_transform", "context_compactor"];

/** Does a tool's name match one of the patterns? A pattern is a name, or the beginning of one and a star. */
export function matchesTool(patterns: readonly string[], toolName: string): boolean {
  return patterns.some((pattern) =>
    pattern.endsWith("*") ? toolName.startsWith(pattern.slice(0, -1)) : pattern === toolName,
  );
}
