import type {
  AbortTurn,
  ApprovalDemand,
  CreateSession,
  EmitEvents,
  EmitTrace,
  EnqueuedMessage,
  EnqueueMessages,
  Json,
  JsonObject,
  ModelOptions,
  NextModelCall,
  PluginEvent,
  ReplaceInput,
  ReplaceToolArgs,
  RequireApproval,
  SessionCreateRequest,
  ShortCircuitTool,
  ToolContentPart,
} from "../../kernel/index.js";

/** Ends the turn with outcome `plugin_abort`. */
export function abortTurn(code: string, message: string): AbortTurn {
  return { kind: "abort_turn", code, message };
}

/** Adds messages to the conversation, in this plugin's name. */
export function enqueueMessages(...messages: readonly EnqueuedMessage[]): EnqueueMessages {
  return { kind: "enqueue_messages", messages };
}

/**
 * Says how the next model call of this turn is made, over what runtime, session and turn say. The call behind it is as
 * they say again.
 *
 * @example
 * beforeTurn: () => nextModelCall({ toolChoice: { tool: "search" } }) // first a search, then as the model likes
 */
export function nextModelCall(options: ModelOptions): NextModelCall {
  return { kind: "next_model_call", options };
}

/**
 * Asks the turn with another text than the input has; attachments stay. For `beforeTurn` hooks that are declared with
 * `replacesInput: true`: of such an input nothing is written before the hook has seen it, so what the hook replaces is
 * stored nowhere.
 *
 * @example
 * beforeTurn: { replacesInput: true, run: ({ input }) => replaceInput(input.replace(/\d{16}/g, "[card]")) }
 */
export function replaceInput(text: string): ReplaceInput {
  return { kind: "replace_input", text };
}

/** Runs the tool with other arguments; they are validated like the model's own. */
export function replaceToolArgs(args: Json): ReplaceToolArgs {
  return { kind: "replace_tool_args", args };
}

/**
 * Answers a tool call with a value: before the call instead of running it, after it instead of its result. The model is
 * given `content` instead of the value, when there is any.
 */
export function shortCircuitTool(
  value: Json,
  { content }: { readonly content?: readonly ToolContentPart[] } = {},
): ShortCircuitTool {
  return { kind: "short_circuit_tool", output: { status: "success", value, ...(content && { content }) } };
}

/**
 * Refuses one tool call; the model sees why. No later plugin can undo it.
 *
 * @example
 * beforeToolCall: ({ call }) => call.toolName === "shell" ? deny("no_shell", "The shell is off limits.") : undefined
 */
export function deny(code: string, message: string): ShortCircuitTool {
  return {
    kind: "short_circuit_tool",
    output: { status: "failure", failure: { kind: "permission_denied", code, message } },
  };
}

/**
 * Has somebody outside asked before the tool runs: the host sees it in `troupe.pending()` and answers with
 * `troupe.approve` or `troupe.deny`. No later plugin can undo it; a denial beats it. Also the `approval` of a tool may be
 * one.
 *
 * @example
 * beforeToolCall: ({ call }) =>
 *   call.toolName === "refund"
 *     ? requireApproval({ announcement: "A refund", allowEdit: true, deadlineMs: 3_600_000 })
 *     : undefined
 */
export function requireApproval(demand: ApprovalDemand = {}): RequireApproval {
  return { kind: "require_approval", demand };
}

/** Tells the host something: it arrives as `plugin_event` activities. */
export function emitEvents(...events: readonly PluginEvent[]): EmitEvents {
  return { kind: "emit_events", events };
}

/** Makes a session, by default an empty child of this one. It is not started: the host or a tool does that. */
export function createSession(request: SessionCreateRequest = {}): CreateSession {
  return { kind: "create_session", request };
}

/** Leaves a trace `plugin.<id>.<name>` for whoever watches. */
export function emitTrace(name: string, payload?: Json, context?: JsonObject): EmitTrace {
  return { kind: "emit_trace", name, ...(payload !== undefined && { payload }), ...(context && { context }) };
}

/** What one plugin offers to another that it knows only by the extension's id. */
export interface Extension {
  readonly extensionId: string;
  readonly payload: Json;
}

/** Extensions by id, in the order of the plugins that bring them. */
export type Extensions = Readonly<Record<string, readonly Json[]>>;

export function mergeExtensions(extensions: readonly Extension[]): Extensions {
  const merged: Record<string, Json[]> = {};
  for (const { extensionId, payload } of extensions) {
    if (!Object.hasOwn(merged, extensionId)) merged[extensionId] = [];
    merged[extensionId]?.push(payload);
  }
  return merged;
}
