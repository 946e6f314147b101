import type { Json, JsonObject } from "./json.js";

/** What the model is told about a tool. */
export interface ToolSpec {
  /** Who the tool is, across renames and restarts; its name unless said otherwise. See {@link toolIdOf}. */
  readonly id?: string;
  /** What the model calls it by. */
  readonly name: string;
  readonly description: string;
  /** JSON Schema (draft 2020-12 or draft-07) of the arguments. */
  readonly inputSchema: JsonObject;
}

/**
 * A tool's identity. Names are only aliases of it: a tool of the same name under another id is another tool.
 *
 * @example
 * toolIdOf({ name: "weather", description: "…", inputSchema: {} }); // "weather"
 * toolIdOf({ id: "acme.weather", name: "weather", description: "…", inputSchema: {} }); // "acme.weather"
 */
export function toolIdOf({ id, name }: Pick<ToolSpec, "id" | "name">): string {
  return id ?? name;
}

/** One call the model asked for. */
export interface ToolCall {
  readonly callId: string;
  readonly toolName: string;
  readonly args: Json;
}

export type ToolFailureKind =
  | "invalid_request"
  | "unavailable"
  | "permission_denied"
  | "timeout"
  | "execution"
  | "external"
  | "resource_limit"
  | "internal";

export interface ToolFailure {
  readonly kind: ToolFailureKind;
  /** Stable, snake_case: `tool_unavailable`, `invalid_tool_args`, `tool_timeout`, `tool_failed`, … */
  readonly code: string;
  readonly message: string;
  /** `safe`: nothing was done, it may be tried again. `exhausted`: it was, as often as allowed. */
  readonly retry?:
    | { readonly kind: "safe"; readonly afterMs?: number }
    | { readonly kind: "exhausted"; readonly attempts: number };
}

/** How a call ended. The model sees all three; only the turn's machine decides what follows. */
export type ToolOutput =
  | { readonly status: "success"; readonly value: Json }
  | { readonly status: "failure"; readonly failure: ToolFailure }
  | { readonly status: "cancelled"; readonly message: string };

/** A call together with its end, as recorded in the turn's result. `args` are those the tool really got. */
export interface ToolRecord extends ToolCall {
  readonly output: ToolOutput;
  readonly durationMs: number;
  /** What the model reads, when a plugin projects results; otherwise the output as {@link renderToolOutput} words it. */
  readonly modelText?: string;
}

export function toolFailure(kind: ToolFailureKind, code: string, message: string): ToolOutput {
  return { status: "failure", failure: { kind, code, message } };
}

/** What the model reads: strings as they are, other values as compact JSON, failures and cancellations in words. */
export function renderToolOutput(output: ToolOutput): string {
  switch (output.status) {
    case "success":
      return typeof output.value === "string" ? output.value : JSON.stringify(output.value ?? null);
    case "failure":
      return `[Tool execution failed]\n${output.failure.code}: ${output.failure.message}`;
    case "cancelled":
      return `[Tool execution cancelled]\n${output.message}`;
  }
}
