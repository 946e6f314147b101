import type { AnyErrorCode } from "../codes/index.js";
import type { AppendNode } from "../history/index.js";
import { isRecord, type Json, type JsonObject } from "../json.js";
import { invalidTool } from "../refusals.js";
import { problemWithContent, type ToolContentPart, wordsOfContent } from "./tool-content.js";
import { wordsOf } from "./words.js";

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
  readonly code: AnyErrorCode;
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
  | { readonly kind: "fail"; readonly code: AnyErrorCode; readonly message: string; readonly value?: Json }
  | {
      readonly kind: "switch_agent_frame";
      readonly frameId: string;
      readonly task: string;
      readonly initialNodes: readonly AppendNode[];
    };

/** How a call ended. The model sees all three; only the turn's machine decides what follows. */
export type ToolOutput =
  | {
      readonly status: "success";
      readonly value: Json;
      /** What the model is given instead of the value, when the result has parts: texts, JSON, images, files. */
      readonly content?: readonly ToolContentPart[];
      readonly control?: ToolControl;
    }
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
  /** The same, when a plugin projects a result to parts. */
  readonly modelContent?: readonly ToolContentPart[];
}

export function toolFailure(kind: ToolFailureKind, code: AnyErrorCode, message: string): ToolOutput {
  return { status: "failure", failure: { kind, code, message } };
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

/** What the model reads: strings as they are, other values as compact JSON, parts, failures and cancellations in words. */
export function renderToolOutput(output: ToolOutput): string {
  switch (output.status) {
    case "success":
      return output.content === undefined ? wordsOf(output.value) : wordsOfContent(output.content);
    case "failure":
      return `[Tool execution failed]\n${output.failure.code}: ${output.failure.message}`;
    case "cancelled":
      return `[Tool execution cancelled]\n${output.message}`;
  }
}

/** Is what came from outside a tool's output? */
export function isToolOutput(output: unknown): output is ToolOutput {
  if (!isRecord(output)) return false;
  if (output.status === "success")
    return "value" in output && (output.content === undefined || problemWithContent(output.content) === undefined);
  if (output.status === "cancelled") return typeof output.message === "string";
  const { failure } = output;
  return (
    output.status === "failure" &&
    isRecord(failure) &&
    typeof failure.code === "string" &&
    typeof failure.message === "string"
  );
}

/**
 * When a failed call is made again. `safe`: when the tool itself says that nothing was done. `idempotent`: also when
 * nobody can know whether something was done (it was late, its thread died), because doing it twice does no harm.
 */
export interface ToolRetryPolicy {
  readonly policy: "safe" | "idempotent";
  /** The first attempt included. */
  readonly maxAttempts: number;
  readonly baseDelayMs: number;
  /** 0: no cap. */
  readonly maxDelayMs: number;
}

/** Failures after which nobody knows what was done. */
const UNCERTAIN: readonly string[] = ["tool_timeout", "tool_worker_lost"];

/**
 * How long to wait before the next attempt; undefined when there is none. `attempt` is the one that ended, from 1.
 *
 * @example
 * delayBeforeRetry({ policy: "safe", maxAttempts: 3, baseDelayMs: 100, maxDelayMs: 0 }, 2, output); // 200
 */
export function delayBeforeRetry(
  policy: ToolRetryPolicy | undefined,
  attempt: number,
  output: ToolOutput,
): number | undefined {
  if (policy === undefined || attempt >= policy.maxAttempts || output.status !== "failure") return undefined;
  const { failure } = output;
  if (!mayRepeat(policy, failure)) return undefined;
  const asked = failure.retry?.kind === "safe" ? failure.retry.afterMs : undefined;
  const delayMs = asked ?? policy.baseDelayMs * 2 ** (attempt - 1);
  return policy.maxDelayMs > 0 ? Math.min(delayMs, policy.maxDelayMs) : delayMs;
}

/** A failure that would have been tried again, had there been attempts left, says so. */
export function exhaustedRetries(policy: ToolRetryPolicy | undefined, attempt: number, output: ToolOutput): ToolOutput {
  if (policy === undefined || attempt === 1 || output.status !== "failure" || !mayRepeat(policy, output.failure))
    return output;
  return { ...output, failure: { ...output.failure, retry: { kind: "exhausted", attempts: attempt } } };
}

function mayRepeat({ policy }: ToolRetryPolicy, { code, retry }: ToolFailure): boolean {
  return retry?.kind === "safe" || (policy === "idempotent" && UNCERTAIN.includes(code));
}

/** A policy as a tool's author writes it. */
export type ToolRetry = "never" | "safe" | "idempotent" | (Pick<ToolRetryPolicy, "policy"> & Partial<ToolRetryPolicy>);

const DEFAULTS = { maxAttempts: 3, baseDelayMs: 100, maxDelayMs: 10_000 };

/** A policy as a host or plugin writes it, checked and completed; undefined for `never`. */
export function checkRetryPolicy(what: string, given: unknown): ToolRetryPolicy | undefined {
  if (given === undefined || given === "never") return undefined;
  const { policy, ...rest } =
    typeof given === "string" ? { policy: given } : ((given ?? {}) as Partial<ToolRetryPolicy>);
  const whole = { ...DEFAULTS, ...rest };
  const numbers = [whole.maxAttempts, whole.baseDelayMs, whole.maxDelayMs];
  const usable = numbers.every((number) => Number.isSafeInteger(number) && number >= 0) && whole.maxAttempts >= 1;
  if ((policy === "safe" || policy === "idempotent") && usable) return { policy, ...whole };
  throw invalidTool(
    what,
    'retry must be "never", "safe", "idempotent", or { policy, maxAttempts?, baseDelayMs?, maxDelayMs? }',
  );
}
