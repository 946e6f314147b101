import type {
  AfterToolDirective,
  AfterTurnDirective,
  BeforeToolDirective,
  CheckpointKind,
  ModelResponse,
  PluginEvent,
  PromptContribution,
  ToolCall,
  ToolOutput,
  TurnDirective,
  TurnSummary,
} from "../kernel/index.js";

/** Hook kinds by the names they have in probes, statistics and messages. */
export const HOOK_KINDS = {
  beforeTurn: "before_turn",
  toolCatalogContributor: "tool_catalog_contributor",
  promptContributor: "prompt_contributor",
  assistantStream: "assistant_stream",
  assistantResponse: "assistant_response",
  streamFinished: "stream_finished",
  beforeToolCall: "before_tool_call",
  afterToolCall: "after_tool_call",
  toolResultProjector: "tool_result_projector",
  checkpoint: "checkpoint",
  afterTurn: "after_turn",
  turnFinalized: "turn_finalized",
  turnPersisted: "turn_persisted",
  sessionRestored: "session_restored",
} as const;

export type HookName = keyof typeof HOOK_KINDS;
export type HookKind = (typeof HOOK_KINDS)[HookName];

/** What every hook of a turn is told. The history is never shipped; ask for less, get it faster. */
export interface TurnFacts {
  readonly sessionId: string;
  readonly turnId: string;
  readonly turnIndex: number;
}

/** What the runtime sends for each kind: plain data, the same for both tiers. */
export interface HookFacts {
  before_turn: TurnFacts & { readonly input: string; readonly messageCount: number };
  tool_catalog_contributor: TurnFacts & { readonly tools: readonly string[] };
  prompt_contributor: TurnFacts & { readonly input: string; readonly tools: readonly string[] };
  assistant_stream: TurnFacts & { readonly step: number; readonly blockId: string; readonly chunk: string };
  assistant_response: TurnFacts & { readonly step: number; readonly response: ModelResponse };
  stream_finished: TurnFacts & { readonly step: number; readonly reason: StreamEnd };
  before_tool_call: TurnFacts & { readonly call: ToolCall };
  after_tool_call: TurnFacts & { readonly call: ToolCall; readonly output: ToolOutput; readonly durationMs: number };
  tool_result_projector: TurnFacts & {
    readonly call: ToolCall;
    readonly output: ToolOutput;
    readonly durationMs: number;
  };
  checkpoint: TurnFacts & { readonly checkpoint: CheckpointKind; readonly step: number };
  after_turn: TurnFacts & { readonly turn: TurnSummary };
  turn_finalized: TurnFacts & { readonly turn: TurnSummary };
  turn_persisted: TurnFacts & { readonly turn: TurnSummary; readonly revision: number };
  session_restored: { readonly sessionId: string; readonly turnIndex: number; readonly fresh: boolean };
}

/** How a model call ended. Said once for every call that was begun, so that a stream hook can start afresh. */
export type StreamEnd = "complete" | "aborted" | "cancelled" | "provider_error";

/** Tools the model is not to have in this turn. Names nobody knows are ignored; what is hidden stays hidden. */
export interface CatalogContribution {
  readonly remove: readonly string[];
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
  before_turn: OneOrMany<TurnDirective>;
  tool_catalog_contributor: CatalogContribution | undefined;
  prompt_contributor: OneOrMany<PromptContribution>;
  assistant_stream: StreamTransform | string | undefined;
  assistant_response: ResponseTransform | undefined;
  stream_finished: undefined;
  before_tool_call: OneOrMany<BeforeToolDirective>;
  after_tool_call: OneOrMany<AfterToolDirective>;
  /** What the model reads instead of the result; the record keeps the result itself. */
  tool_result_projector: string | undefined;
  checkpoint: OneOrMany<TurnDirective>;
  after_turn: OneOrMany<AfterTurnDirective>;
  turn_finalized: undefined;
  turn_persisted: undefined;
  session_restored: undefined;
}

/** The context a hook gets: the facts, this session's state, the plugin's options, and a signal that aborts when nobody waits any more. */
export type HookContext<K extends HookKind, State, Options> = HookFacts[K] & {
  readonly state: State;
  readonly options: Options;
  readonly signal: AbortSignal;
};

// biome-ignore lint/suspicious/noConfusingVoidType: a hook that returns nothing is the common case
type HookReturn<K extends HookKind> = HookResults[K] | void;

export type Hook<K extends HookKind, State, Options> = (
  context: HookContext<K, State, Options>,
) => HookReturn<K> | Promise<HookReturn<K>>;

/** Hooks around tool calls may name the tools they are for (`"shell"`, `"fs_*"`); others cost them nothing. */
export interface MatchedHook<K extends HookKind, State, Options> {
  readonly tools: readonly string[];
  readonly run: Hook<K, State, Options>;
}

type ToolHookName = "beforeToolCall" | "afterToolCall" | "toolResultProjector";

export type Hooks<State, Options> = {
  readonly [N in HookName]?:
    | Hook<(typeof HOOK_KINDS)[N], State, Options>
    | (N extends ToolHookName ? MatchedHook<(typeof HOOK_KINDS)[N], State, Options> : never);
};

/** Kinds of which a session can have only one: two plugins with it do not start. */
export const SINGLETON_KINDS: readonly HookKind[] = ["tool_result_projector"];

/** Does a tool's name match one of the patterns? A pattern is a name, or the beginning of one and a star. */
export function matchesTool(patterns: readonly string[], toolName: string): boolean {
  return patterns.some((pattern) =>
    pattern.endsWith("*") ? toolName.startsWith(pattern.slice(0, -1)) : pattern === toolName,
  );
}
