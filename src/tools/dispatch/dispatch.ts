import { ignore, onAbort } from "../../async/index.js";
import {
  completionKeyOf,
  type Json,
  type JsonObject,
  problemWithContent,
  type ToolCall,
  type ToolContentPart,
  type ToolFailureKind,
  type ToolOutput,
  TroupeError,
  toolFailure,
} from "../../kernel/index.js";
import {
  isCostlySchema,
  isForModel,
  isThrownByTool,
  type PendingTool,
  readAnswer,
  readContent,
  type StartedTask,
  toolAnswerInvalid,
  validateArgs,
} from "../../plugin/index.js";
import type { Deadlines } from "../../wire/index.js";
import { type CallContext, isThenable, plainResult } from "../tool-code/index.js";
import type { RegisteredTool, ToolHomeRef } from "./registry.js";

/** A call as its home sees it. The signal aborts when the turn does or the time limit passes. */
export interface HomeContext extends CallContext {
  readonly timeoutMs: number;
  readonly cancelGraceMs: number;
  /** The tool is not to run: only what its own code says of the call before it runs is wanted. */
  readonly asks?: true;
  /** Which attempt of the call it is; the first one does not say so. */
  readonly attempt?: number;
  /** Nobody waits for it any more, whether or not its tool has ended. */
  readonly isOver?: boolean;
}

/**
 * Where tools of one kind run. A home may answer synchronously. When `ctx.signal` aborts it tells the tool, and ends it
 * by force, where it can, when the grace is over; the call is settled by then at the latest.
 */
export interface ToolHome {
  run(tool: RegisteredTool, args: Json, ctx: HomeContext): Promise<unknown> | unknown;
}

export type ToolHomes = { readonly [K in ToolHomeRef["kind"]]: ToolHome };

/**
 * Why a name cannot be called: nobody knows it, the session may not call it now, its source is missing, or it went since
 * the turn was asked with it.
 */
export type ToolAbsence = "unknown" | "unavailable" | "orphaned" | "gone";

/** Where a call's tool is looked up: a registry, or the tools of one session over it. */
export interface ToolLookup {
  get(name: string): RegisteredTool | undefined;
  /** Asked about a name that `get` did not find. */
  whyNot?(name: string): ToolAbsence | undefined;
}

/** Arguments to be checked by a schema. */
export interface ArgumentsToCheck {
  readonly sessionId: string;
  readonly toolName: string;
  readonly schema: JsonObject;
  readonly args: Json;
  readonly signal: AbortSignal;
}

/** Checks arguments by a schema that may take for ever, away from this thread and with an end. */
export interface ArgumentChecks {
  /** A sentence the model can act on when they do not fit. Rejects when it could not be found out. */
  check(request: ArgumentsToCheck): Promise<string | undefined>;
}

export interface ToolRequest {
  readonly registry: ToolLookup;
  readonly homes: ToolHomes;
  /** Asked about schemas that may take for ever. Without it, those are checked here. */
  readonly checks?: ArgumentChecks;
  /** One of the thread: limits repeat across sessions, so a few timers serve every call. */
  readonly deadlines: Deadlines;
  readonly call: ToolCall;
  /** Names the session may not call, whatever is registered. */
  readonly hidden: ReadonlySet<string>;
  readonly sessionId: string;
  readonly turnId: string;
  /** The turn's signal. */
  readonly signal: AbortSignal;
  /** What the tool's own code says of the call is wanted, not the call; the arguments are looked at as for the call. */
  readonly asks?: true;
  /** Which attempt of the call it is, from 1. */
  readonly attempt?: number;
  /** Told what was thrown, whole: the output has only what the model may read. */
  readonly onThrown?: ((thrown: unknown) => void) | undefined;
}

export interface ToolExecution {
  readonly output: ToolOutput;
  /** The tool answered that the answer comes later; `output` is not it. */
  readonly pending?: PendingTool;
  /** What it was asked for goes on as a task. */
  readonly started?: StartedTask;
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
  const { registry, call, hidden, signal } = request;
  if (signal.aborted) return notRun(cancelled(call));
  if (hidden.has(call.toolName)) return notRun(refused(call, "unknown"));
  const tool = registry.get(call.toolName);
  if (tool === undefined) return notRun(refused(call, registry.whyNot?.(call.toolName) ?? "unknown"));
  const problem = problemWith(request, tool);
  if (problem instanceof Promise) {
    return problem.then(
      (found) => (found === undefined ? runAtHome(request, tool) : notRun(unfit(found))),
      (thrown) => notRun(signal.aborted ? cancelled(call) : failureOf(thrown, request)),
    );
  }
  return problem === undefined ? runAtHome(request, tool) : notRun(unfit(problem));
}

function unfit(problem: string): ToolOutput {
  return toolFailure("invalid_request", "invalid_tool_args", problem);
}

function runAtHome(request: ToolRequest, tool: RegisteredTool): Promise<ToolExecution> {
  const { homes, call, signal } = request;
  // The turn may have ended while its arguments were checked.
  if (signal.aborted) return notRun(cancelled(call));
  if (request.asks && !hasToBeAsked(tool)) return notRun(NOTHING_SAID);
  const stop = new Stop();
  let answer: unknown;
  try {
    answer = homes[tool.home.kind].run(tool, call.args, homeContext(request, tool, stop));
    if (!isThenable(answer)) return Promise.resolve(executionOf(successOf(answer, request)));
  } catch (thrown) {
    return Promise.resolve({ output: failureOf(thrown, request), ran: true });
  }
  return settled(answer, { request, tool, stop });
}

const NOTHING_SAID: ToolOutput = { status: "success", value: null };

/** A plugin's arguments are checked on the plugin's thread. */
function hasToBeAsked({ approval, home }: RegisteredTool): boolean {
  return approval === "by_code" || home.kind === "plugin";
}

/** One code for all three: none can be called, and the model can act on none by itself. */
function refused({ toolName }: ToolCall, why: ToolAbsence): ToolOutput {
  return toolFailure("unavailable", "tool_unavailable", ABSENCES[why](toolName));
}

const ABSENCES: Readonly<Record<ToolAbsence, (name: string) => string>> = {
  unknown: (name) => `There is no tool called ${name}.`,
  unavailable: (name) => `The tool ${name} is not available to this session now.`,
  orphaned: (name) => `The tool ${name} cannot run because its source is missing.`,
  gone: (name) => `The tool ${name} is not there any more.`,
};

/**
 * The schema the model saw comes first: its complaint is the one the model can act on. A plugin's own schema is checked
 * by the plugin on its own thread, and any other that may take for ever on a thread for that: neither may hold the sessions
 * of this one.
 */
function problemWith(
  { call, checks, sessionId, signal }: ToolRequest,
  { shownSchema, spec, home }: RegisteredTool,
): string | undefined | Promise<string | undefined> {
  const { toolName, args } = call;
  const problemBy = (schema: JsonObject | undefined) => {
    if (schema === undefined) return undefined;
    if (checks === undefined || !isCostlySchema(schema)) return validateArgs(schema, args);
    return checks.check({ sessionId, toolName, schema, args, signal });
  };
  const shown = problemBy(shownSchema);
  const isCheckedByPlugin = home.kind === "plugin" && !(home.isHere && isCostlySchema(spec.inputSchema));
  const own = isCheckedByPlugin ? undefined : spec.inputSchema;
  return shown instanceof Promise ? shown.then((found) => found ?? problemBy(own)) : (shown ?? problemBy(own));
}

/**
 * Waits for the answer, the time limit or the turn's abort, whichever comes first. Who is told to stop may still finish
 * within the grace; failing then is only its way of stopping.
 */
function settled(
  answer: PromiseLike<unknown>,
  { request, tool, stop }: { request: ToolRequest; tool: RegisteredTool; stop: Stop },
): Promise<ToolExecution> {
  const { call, signal, deadlines } = request;
  const { timeoutMs, cancelGraceMs } = tool;
  return new Promise((resolve) => {
    /** What the call comes to unless it still finishes; set when it was told to stop. */
    let stopped: ToolOutput | undefined;
    let letGo = ignore;
    const end = (output: ToolOutput) => {
      deadlines.cancel(deadline);
      letGo();
      stop.isOver = true;
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
      (value) => end(successOf(value, request)),
      (thrown) => end(failureOf(thrown, request)),
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
    case "started":
      return { output: { status: "success", value: answer.value }, started: answer.started, ran: true };
    case "value":
    case "content":
      return { output: { status: "success", value: answer.value }, ran: true };
  }
}

function successOf(answer: unknown, request: ToolRequest): ToolOutput {
  try {
    const parts = readContent(answer);
    return parts === undefined ? { status: "success", value: plainResult(answer) } : contentOf(parts);
  } catch (thrown) {
    return failureOf(thrown, request);
  }
}

/** Looked at again here: the thread it comes from may be a plugin's. */
function contentOf({ content, value }: NonNullable<ReturnType<typeof readContent>>): ToolOutput {
  const problem = problemWithContent(content);
  if (problem !== undefined) throw toolAnswerInvalid(problem);
  const parts = (content as readonly ToolContentPart[]).map((part) =>
    part.type === "json" ? { ...part, value: plainResult(part.value) } : part,
  );
  return { status: "success", value: plainResult(value), content: parts };
}

/** Own, enumerable properties, the signal included: a tool may spread its context. */
function homeContext(
  { call, sessionId, turnId, asks, attempt = 1 }: ToolRequest,
  { timeoutMs, cancelGraceMs }: RegisteredTool,
  stop: Stop,
): HomeContext {
  return {
    callId: call.callId,
    sessionId,
    turnId,
    timeoutMs,
    cancelGraceMs,
    ...(asks && { asks }),
    ...(attempt > 1 && { attempt }),
    get completionKey() {
      return completionKeyOf(sessionId, turnId, call.callId);
    },
    get signal() {
      return stop.signal;
    },
    get isOver() {
      return stop.isOver;
    },
  };
}

/** The call's own abort. The signal is made on first use, because most inline tools never look at it. */
class Stop {
  isOver = false;
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
  tool_check_timeout: ["timeout", "tool_check_timeout"],
  // What the wire says of a home on another thread, in the words of a tool call.
  worker_lost: ["unavailable", "tool_worker_lost"],
  plugin_unavailable: ["unavailable", "plugin_unavailable"],
  // What a plugin's tool did to its thread, or did too often.
  plugin_blocked: ["timeout", "plugin_blocked"],
  plugin_out_of_memory: ["resource_limit", "plugin_out_of_memory"],
  plugin_too_many_timers: ["resource_limit", "plugin_too_many_timers"],
  plugin_patched_builtins: ["execution", "plugin_patched_builtins"],
  plugin_malformed_message: ["execution", "plugin_malformed_message"],
  session_quarantined: ["unavailable", "session_quarantined"],
  call_timeout: ["timeout", "tool_timeout"],
  unserialisable: ["execution", "tool_result_unserialisable"],
};

/**
 * The output of a call whose home threw: its own code when that is a tool's, otherwise `tool_failed`. The model reads what
 * the runtime says, and what the tool wrote for it; of any other exception only that there was one. Never throws.
 */
export function failureOf(thrown: unknown, { call: { toolName }, onThrown }: FailedCall): ToolOutput {
  try {
    onThrown?.(thrown);
    return shownFailure(thrown, toolName);
  } catch {
    // A getter or a proxy of the tool's own.
    return toolFailure("execution", "tool_failed", `${toolName} failed`);
  }
}

type FailedCall = Pick<ToolRequest, "onThrown"> & { readonly call: Pick<ToolCall, "toolName"> };

function shownFailure(thrown: unknown, toolName: string): ToolOutput {
  const failed = `${toolName} failed`;
  if (!(thrown instanceof TroupeError)) return toolFailure("execution", "tool_failed", failed);
  if (isThrownByTool(thrown)) return toolFailure("execution", thrown.code, failed);
  const shown = Object.hasOwn(SHOWN, thrown.code) ? SHOWN[thrown.code] : undefined;
  if (shown !== undefined) return toolFailure(shown[0], shown[1], thrown.message);
  if (!isForModel(thrown) && !thrown.code.startsWith("tool_")) return toolFailure("execution", "tool_failed", failed);
  const output = toolFailure("execution", thrown.code, thrown.message);
  // Only a tool's own word: what the runtime calls retryable says nothing of what the tool has done.
  if (thrown.code !== "tool_retry" || output.status !== "failure") return output;
  const { afterMs } = thrown.details;
  const retry = { kind: "safe" as const, ...(typeof afterMs === "number" && { afterMs }) };
  return { ...output, failure: { ...output.failure, retry } };
}
