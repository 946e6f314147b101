import { ignore, onAbort } from "../../async/index.js";
import {
  completionKeyOf,
  type Json,
  messageOf,
  type ToolCall,
  type ToolFailureKind,
  type ToolOutput,
  TroupeError,
  toolFailure,
} from "../../kernel/index.js";
import { type PendingTool, readAnswer, type ToolContext, validateArgs } from "../../plugin/index.js";
import type { Deadlines } from "../../wire/index.js";
import { isThenable, plainResult } from "../tool-code/index.js";
import type { RegisteredTool, ToolHomeRef } from "./registry.js";

/** A call as its home sees it. The signal aborts when the turn does or the time limit passes. */
export interface HomeContext extends ToolContext {
  readonly timeoutMs: number;
  readonly cancelGraceMs: number;
}

/**
 * Where tools of one kind run. A home may answer synchronously. When `ctx.signal` aborts it tells the tool, and ends it
 * by force, where it can, when the grace is over; the call is settled by then at the latest.
 */
export interface ToolHome {
  run(tool: RegisteredTool, args: Json, ctx: HomeContext): Promise<unknown> | unknown;
}

export type ToolHomes = { readonly [K in ToolHomeRef["kind"]]: ToolHome };

/** Why a name cannot be called: nobody knows it, the session may not call it now, or its source is missing. */
export type ToolAbsence = "unknown" | "unavailable" | "orphaned";

/** Where a call's tool is looked up: a registry, or the tools of one session over it. */
export interface ToolLookup {
  get(name: string): RegisteredTool | undefined;
  /** Asked about a name that `get` did not find. */
  whyNot?(name: string): ToolAbsence | undefined;
}

export interface ToolRequest {
  readonly registry: ToolLookup;
  readonly homes: ToolHomes;
  /** One of the thread: limits repeat across sessions, so a few timers serve every call. */
  readonly deadlines: Deadlines;
  readonly call: ToolCall;
  /** Names the session may not call, whatever is registered. */
  readonly hidden: ReadonlySet<string>;
  readonly sessionId: string;
  readonly turnId: string;
  /** The turn's signal. */
  readonly signal: AbortSignal;
}

export interface ToolExecution {
  readonly output: ToolOutput;
  /** The tool answered that the answer comes later; `output` is not it. */
  readonly pending?: PendingTool;
  /** False when the call was refused before it got to its tool: no such tool, wrong arguments, a turn that is over. */
  readonly ran: boolean;
}

/**
 * Runs one call at its tool's home and says how it ended. Never rejects: whatever a tool or its home does becomes an
 * output the model can read.
 *
 * @example
 * const { output } = await executeTool({ registry, homes, deadlines, call, hidden, sessionId, turnId, signal });
 * if (output.status === "failure") output.failure.code; // "tool_timeout"
 */
export function executeTool(request: ToolRequest): Promise<ToolExecution> {
  const { registry, homes, call, hidden, signal } = request;
  if (signal.aborted) return notRun(cancelled(call));
  if (hidden.has(call.toolName)) return notRun(refused(call, "unknown"));
  const tool = registry.get(call.toolName);
  if (tool === undefined) return notRun(refused(call, registry.whyNot?.(call.toolName) ?? "unknown"));
  const problem = problemWith(tool, call.args);
  if (problem !== undefined) return notRun(toolFailure("invalid_request", "invalid_tool_args", problem));

  const stop = new Stop();
  let answer: unknown;
  try {
    answer = homes[tool.home.kind].run(tool, call.args, homeContext(request, tool, stop));
    if (!isThenable(answer)) return Promise.resolve(executionOf({ status: "success", value: plainResult(answer) }));
  } catch (thrown) {
    return Promise.resolve({ output: failureOf(thrown), ran: true });
  }
  return settled(answer, { request, tool, stop });
}

/** One code for all three: none can be called, and the model can act on none by itself. */
function refused({ toolName }: ToolCall, why: ToolAbsence): ToolOutput {
  return toolFailure("unavailable", "tool_unavailable", ABSENCES[why](toolName));
}

const ABSENCES: Readonly<Record<ToolAbsence, (name: string) => string>> = {
  unknown: (name) => `There is no tool called ${name}.`,
  unavailable: (name) => `The tool ${name} is not available to this session now.`,
  orphaned: (name) => `The tool ${name} cannot run because its source is missing.`,
};

/** The schema the model saw comes first: its complaint is the one the model can act on. */
function problemWith({ shownSchema, spec }: RegisteredTool, args: Json): string | undefined {
  const shown = shownSchema === undefined ? undefined : validateArgs(shownSchema, args);
  return shown ?? validateArgs(spec.inputSchema, args);
}

/**
 * Waits for the answer, the time limit or the turn's abort, whichever comes first. Who is told to stop may still finish
 * within the grace; failing then is only its way of stopping.
 */
function settled(
  answer: PromiseLike<unknown>,
  {
    request: { call, signal, deadlines },
    tool: { timeoutMs, cancelGraceMs },
    stop,
  }: { request: ToolRequest; tool: RegisteredTool; stop: Stop },
): Promise<ToolExecution> {
  return new Promise((resolve) => {
    /** What the call comes to unless it still finishes; set when it was told to stop. */
    let stopped: ToolOutput | undefined;
    let letGo = ignore;
    const end = (output: ToolOutput) => {
      deadlines.cancel(deadline);
      letGo();
      resolve(executionOf(stopped === undefined || output.status === "success" ? output : stopped));
    };
    const stopWith = (output: ToolOutput, reason: unknown) => {
      if (stopped !== undefined) return;
      stopped = output;
      deadlines.cancel(deadline);
      if (cancelGraceMs === 0) end(output);
      // First the home, whose own grace so ends no later than ours.
      stop.abort(reason);
      if (cancelGraceMs > 0) deadline = deadlines.add(cancelGraceMs, end, output);
    };
    let deadline = deadlines.add(timeoutMs, () => {
      const message = `${call.toolName} did not finish within ${timeoutMs} ms.`;
      const reason = new TroupeError("tool_timeout", message, { details: { timeoutMs } });
      stopWith(toolFailure("timeout", "tool_timeout", message), reason);
    });
    letGo = onAbort(signal, () => stopWith(cancelled(call), signal.reason));
    // Through a real promise: a foreign thenable may throw, or answer twice.
    Promise.resolve(answer).then(
      (value) => end(successOf(value)),
      (thrown) => end(failureOf(thrown)),
    );
  });
}

/** An answer may be more than a value: that it comes later, or that the turn ends with it. */
function executionOf(output: ToolOutput): ToolExecution {
  const answer = output.status === "success" ? readAnswer(output.value) : undefined;
  switch (answer?.kind) {
    case undefined:
      return { output, ran: true };
    case "pending":
      return { output, pending: answer.pending, ran: true };
    case "control":
      return { output: { status: "success", value: answer.value, control: answer.control }, ran: true };
    case "value":
      return { output: { status: "success", value: answer.value }, ran: true };
  }
}

function successOf(answer: unknown): ToolOutput {
  try {
    return { status: "success", value: plainResult(answer) };
  } catch (thrown) {
    return failureOf(thrown);
  }
}

/** Own, enumerable properties, the signal included: a tool may spread its context. */
function homeContext(
  { call, sessionId, turnId }: ToolRequest,
  { timeoutMs, cancelGraceMs }: RegisteredTool,
  stop: Stop,
): HomeContext {
  return {
    callId: call.callId,
    sessionId,
    turnId,
    timeoutMs,
    cancelGraceMs,
    get completionKey() {
      return completionKeyOf(sessionId, turnId, call.callId);
    },
    get signal() {
      return stop.signal;
    },
  };
}

/** The call's own abort. The signal is made on first use, because most inline tools never look at it. */
class Stop {
  #controller: AbortController | undefined;
  #stopped: { readonly reason: unknown } | undefined;

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#stopped !== undefined) this.#controller.abort(this.#stopped.reason);
    }
    return this.#controller.signal;
  }

  abort(reason: unknown): void {
    this.#stopped = { reason };
    this.#controller?.abort(reason);
  }
}

function cancelled(call: ToolCall): ToolOutput {
  return { status: "cancelled", message: `The call of ${call.toolName} was cancelled.` };
}

function notRun(output: ToolOutput): Promise<ToolExecution> {
  return Promise.resolve({ output, ran: false });
}

/** How codes a home may throw are shown to the model. Any other `tool_…` code is kept, as an execution failure. */
const SHOWN: Readonly<Record<string, readonly [kind: ToolFailureKind, code: string]>> = {
  invalid_tool_args: ["invalid_request", "invalid_tool_args"],
  tool_unavailable: ["unavailable", "tool_unavailable"],
  tool_module_not_found: ["unavailable", "tool_module_not_found"],
  tool_module_invalid: ["unavailable", "tool_module_invalid"],
  tool_pool_closed: ["unavailable", "tool_pool_closed"],
  tool_worker_lost: ["unavailable", "tool_worker_lost"],
  tool_out_of_memory: ["resource_limit", "tool_out_of_memory"],
  tool_timeout: ["timeout", "tool_timeout"],
  // What the wire says of a home on another thread, in the words of a tool call.
  worker_lost: ["unavailable", "tool_worker_lost"],
  call_timeout: ["timeout", "tool_timeout"],
  unserialisable: ["execution", "tool_result_unserialisable"],
};

/** The output of a call whose home threw: its own code when that is a tool's, otherwise `tool_failed`. Never throws. */
export function failureOf(thrown: unknown): ToolOutput {
  try {
    return shownFailure(thrown);
  } catch {
    // A getter or a proxy of the tool's own.
    return toolFailure("execution", "tool_failed", "Something was thrown that cannot be read.");
  }
}

function shownFailure(thrown: unknown): ToolOutput {
  const message = messageOf(thrown);
  if (!(thrown instanceof TroupeError)) return toolFailure("execution", "tool_failed", message);
  const shown = Object.hasOwn(SHOWN, thrown.code) ? SHOWN[thrown.code] : undefined;
  if (shown !== undefined) return toolFailure(shown[0], shown[1], message);
  const output = toolFailure("execution", thrown.code.startsWith("tool_") ? thrown.code : "tool_failed", message);
  // Only a tool's own word: what the runtime calls retryable says nothing of what the tool has done.
  if (thrown.code !== "tool_retry" || output.status !== "failure") return output;
  const { afterMs } = thrown.details;
  const retry = { kind: "safe" as const, ...(typeof afterMs === "number" && { afterMs }) };
  return { ...output, failure: { ...output.failure, retry } };
}
