import type {
  AbortTurn,
  CreateSession,
  EmitEvents,
  EmitTrace,
  EnqueuedMessage,
  EnqueueMessages,
  Json,
  JsonObject,
  PluginEvent,
  ReplaceToolArgs,
  SessionCreateRequest,
  ShortCircuitTool,
} from "../../kernel/index.js";

/** Ends the turn with outcome `plugin_abort`. */
export function abortTurn(code: string, message: string): AbortTurn {
  return { kind: "abort_turn", code, message };
}

/** Adds messages to the conversation, in this plugin's name. */
export function enqueueMessages(...messages: readonly EnqueuedMessage[]): EnqueueMessages {
  return { kind: "enqueue_messages", messages };
}

/** Runs the tool with other arguments; they are validated like the model's own. */
export function replaceToolArgs(args: Json): ReplaceToolArgs {
  return { kind: "replace_tool_args", args };
}

/** Answers a tool call with a value: before the call instead of running it, after it instead of its result. */
export function shortCircuitTool(value: Json): ShortCircuitTool {
  return { kind: "short_circuit_tool", output: { status: "success", value } };
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
