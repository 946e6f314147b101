import {
  type AppendNode,
  checkNodes,
  type Json,
  messageOf,
  refusal,
  type ToolControl,
  TroupeError,
} from "../../kernel/index.js";

/**
 * What a tool can answer besides a value: that the answer comes later, or that the turn ends with it. Only what these
 * functions made counts: data that looks like it, say from a server a tool asked, is data. The mark is a symbol, which
 * neither JSON nor a thread hop can carry; see {@link sealAnswer}.
 */
export type SpecialAnswer =
  | { readonly kind: "pending"; readonly pending: PendingTool }
  | { readonly kind: "control"; readonly value: Json; readonly control: ToolControl }
  /** A value of the tool's that would read as one of the others. */
  | { readonly kind: "value"; readonly value: Json };

const KEY = "$troupe";
/** Registered, because a tool may have its own copy of this module. */
const MADE_HERE = Symbol.for("troupe.tool_answer");

/** What becomes of a call whose answer comes later. */
export interface PendingTool {
  /** How long to wait for the answer. Default: as long as the turn. */
  readonly deadlineMs?: number;
  /**
   * When nobody has answered by then: `fail_call` (default) lets the model read `tool_completion_timeout` and go on,
   * `fail_turn` ends the turn with it.
   */
  readonly onTimeout?: "fail_call" | "fail_turn";
  /**
   * When the turn is cancelled meanwhile: `cancel` (default) ends the call with it; `wait` lets the cancellation wait for
   * the answer, for what is under way outside and must be recorded. It needs a `deadlineMs`, and ends when the runtime
   * closes.
   */
  readonly onCancel?: "cancel" | "wait";
  /** For whoever is to answer: told with the activity `tool_call_pending`. */
  readonly announcement?: Json;
}

/**
 * What a tool returns when the answer comes later, from outside: a person who approves, a job that ends. The host gives
 * it with `troupe.completeTool(key, output)`; the tool knows the key as `context.completionKey`.
 *
 * @example
 * execute: (args, { completionKey }) => {
 *   askForApproval(completionKey, args);
 *   return pendingTool({ deadlineMs: 3_600_000, onTimeout: "fail_turn" });
 * }
 */
export function pendingTool(pending: PendingTool = {}): Json {
  const { deadlineMs, onTimeout = "fail_call", onCancel = "cancel" } = pending;
  if (deadlineMs !== undefined && !(Number.isSafeInteger(deadlineMs) && deadlineMs >= 1))
    throw invalid("the deadlineMs of pendingTool must be a whole number from 1");
  if (onTimeout !== "fail_call" && onTimeout !== "fail_turn")
    throw invalid('the onTimeout of pendingTool is "fail_call" or "fail_turn"');
  if (onCancel !== "cancel" && onCancel !== "wait") throw invalid('the onCancel of pendingTool is "cancel" or "wait"');
  if (onCancel === "wait" && deadlineMs === undefined)
    throw invalid('pendingTool with onCancel "wait" needs a deadlineMs: its turn could never be cancelled');
  return special({ kind: "pending", pending: { ...pending } });
}

/**
 * What a tool throws when nothing was done and it may be asked again: under a retry policy it is, otherwise the model
 * reads the message.
 *
 * @example
 * if (response.status === 503) throw retryTool("The service is busy.", { afterMs: 500 });
 */
export function retryTool(message: string, { afterMs }: { readonly afterMs?: number } = {}): TroupeError {
  return new TroupeError("tool_retry", message, { retryable: true, details: afterMs === undefined ? {} : { afterMs } });
}

/**
 * What a tool returns to end the turn with a value: the outcome is `finished`, with the value and the tool's name. The
 * model is not asked again. `text` is the turn's answer in words; by default the value's own.
 *
 * @example
 * execute: (report) => finishTurn(report, { text: report.title })
 */
export function finishTurn(value: Json, { text }: { readonly text?: string } = {}): Json {
  if (value === undefined) throw invalid("finishTurn needs a value");
  if (text !== undefined && typeof text !== "string") throw invalid("the text of finishTurn must be a string");
  const control: ToolControl = { kind: "finish", value, ...(text !== undefined && { text }) };
  return special({ kind: "control", value, control });
}

/**
 * What a tool returns to end the turn as a failure: the outcome is `stopped` with the reason `tool_error`, this code and
 * message, and the tool's name. To fail the call alone, and let the model read why, throw.
 *
 * @example
 * execute: ({ reason }) => failTurn("not_possible", reason)
 */
export function failTurn(code: string, message: string, { value }: { readonly value?: Json } = {}): Json {
  if (typeof code !== "string" || code === "" || typeof message !== "string")
    throw invalid("failTurn needs a code and a message");
  const control: ToolControl = { kind: "fail", code, message, ...(value !== undefined && { value }) };
  return special({ kind: "control", value: value ?? `${code}: ${message}`, control });
}

/** Where a session goes on, and with what. */
export interface FrameStart {
  /** A name the session has had no frame under. */
  readonly frameId: string;
  /** What is to be done there. Blank: the turn goes on where it is. */
  readonly task: string;
  /** What the new frame begins with. */
  readonly initialNodes?: readonly AppendNode[];
}

/**
 * What a tool returns to end the turn and have the session go on in another frame: the outcome is `frame_switch`. A name
 * that is taken fails the call with `frame_exists`.
 *
 * @example
 * execute: ({ task }, { callId }) => switchFrame({ frameId: `work-${callId}`, task })
 */
export function switchFrame({ frameId, task, initialNodes = [] }: FrameStart): Json {
  if (typeof frameId !== "string" || frameId === "") throw invalid("switchFrame needs a frameId");
  if (typeof task !== "string") throw invalid("switchFrame needs a task");
  const nodes = nodesOf(initialNodes);
  const control: ToolControl = { kind: "switch_agent_frame", frameId, task, initialNodes: nodes };
  return special({ kind: "control", value: { frameId, task }, control });
}

/** The answer as it leaves the thread of its tool: only what was made here stays special. `plain` is the same as data. */
export function sealAnswer(returned: unknown, plain: Json): Json {
  if (!isMarked(plain) || MADE_HERE in (returned as object)) return plain;
  return { [KEY]: { kind: "value", value: plain } satisfies SpecialAnswer };
}

/** What a sealed answer is when it is no plain value. */
export function readAnswer(sealed: Json): SpecialAnswer | undefined {
  // Made by the functions above, or by `sealAnswer`.
  return isMarked(sealed) ? (sealed[KEY] as unknown as SpecialAnswer) : undefined;
}

function special(answer: SpecialAnswer): Json {
  return { [KEY]: answer as unknown as Json, [MADE_HERE]: true } as Json;
}

function isMarked(value: Json): value is { readonly [KEY]: Json } {
  return typeof value === "object" && value !== null && Object.hasOwn(value, KEY);
}

function nodesOf(nodes: unknown): readonly AppendNode[] {
  try {
    return checkNodes(nodes);
  } catch (error) {
    throw invalid(messageOf(error));
  }
}

/** Thrown inside the tool that made the mistake, which so fails its call with this code. */
const invalid = refusal("tool_answer_invalid", "The tool's answer cannot be used");
