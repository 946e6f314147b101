import type { AppendNode } from "../history/index.js";
import { isRecord, type Json, type JsonObject } from "../json.js";

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
  /** The turn cannot go on without this call: it ends with this failure. */
  readonly endsTurn?: true;
}

/** How a tool ends its turn; said with a result that is a success. */
export type ToolControl =
  /** `text`: the turn's answer in words; without one the value's own. */
  | { readonly kind: "finish"; readonly value: Json; readonly text?: string }
  | { readonly kind: "fail"; readonly code: string; readonly message: string; readonly value?: Json }
  | {
      readonly kind: "switch_agent_frame";
      readonly frameId: string;
      readonly task: string;
      readonly initialNodes: readonly AppendNode[];
    };

/** How a call ended. The model sees all three; only the turn's machine decides what follows. */
export type ToolOutput =
  | { readonly status: "success"; readonly value: Json; readonly control?: ToolControl }
  | { readonly status: "failure"; readonly failure: ToolFailure }
  | { readonly status: "cancelled"; readonly message: string };

/** A call together with its end, as recorded in the turn's result. `args` are those the tool really got. */
export interface ToolRecord extends ToolCall {
  readonly output: ToolOutput;
  readonly durationMs: number;
  /** How many calls of the same step had ended before this one: records stand in call order, these say the other. */
  readonly completed: number;
  /** What the model reads, when a plugin projects results; otherwise the output as {@link renderToolOutput} words it. */
  readonly modelText?: string;
}

export function toolFailure(kind: ToolFailureKind, code: string, message: string): ToolOutput {
  return { status: "failure", failure: { kind, code, message } };
}

/** A value in words: a string is its own, anything else is compact JSON. */
export function wordsOf(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value ?? null);
}

/** The first call, in call order, whose result ends the turn, and how. */
export function turnEndOf(
  records: readonly Pick<ToolRecord, "toolName" | "output">[],
): { readonly toolName: string; readonly control: ToolControl } | undefined {
  for (const { toolName, output } of records) {
    if (output.status === "success" && output.control !== undefined) return { toolName, control: output.control };
    if (output.status === "failure" && output.failure.endsTurn === true) {
      const { code, message } = output.failure;
      return { toolName, control: { kind: "fail", code, message } };
    }
  }
  return undefined;
}

/** What the model reads: strings as they are, other values as compact JSON, failures and cancellations in words. */
export function renderToolOutput(output: ToolOutput): string {
  switch (output.status) {
    case "success":
      return wordsOf(output.value);
    case "failure":
      return `[Tool execution failed]\n${output.failure.code}: ${output.failure.message}`;
    case "cancelled":
      return `[Tool execution cancelled]\n${output.message}`;
  }
}

/** Is what came from outside a tool's output? */
export function isToolOutput(output: unknown): output is ToolOutput {
  if (!isRecord(output)) return false;
  if (output.status === "success") return "value" in output;
  if (output.status === "cancelled") return typeof output.message === "string";
  const { failure } = output;
  return (
    output.status === "failure" &&
    isRecord(failure) &&
    typeof failure.code === "string" &&
    typeof failure.message === "string"
  );
}
