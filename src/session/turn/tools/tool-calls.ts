import {
  asTroupeError,
  delayBeforeRetry,
  exhaustedRetries,
  foldTurnDirectives,
  NO_DIRECTIVES,
  type RowChange,
  type ToolCall,
  type ToolOutput,
  type ToolRecord,
  type TurnDirectives,
  type TurnEffect,
  type TurnEvent,
  type TurnIssue,
  toolFailure,
  toolIdOf,
} from "../../../kernel/index.js";
import { TASK_DELIVER } from "../../../plugin/index.js";
import { executeTool, type RegisteredTool, type ToolExecution, type ToolNote } from "../../../tools/index.js";
import type { Turn } from "../turn.js";
import { duringCall } from "../turn-deadline.js";
import { replayIssue } from "../turn-session.js";
import { BatchHooks } from "./batch-hooks.js";
import { type Prepared, Questions } from "./questions.js";
import { ToldNotes } from "./told-notes.js";
import { type AttachedBytes, attachAgain, bytesBesideOutputs, withKeptContent } from "./tool-content.js";
import { tellToolFailed } from "./tool-failed.js";
import { CANCELLED, notJson, ofTool, recordedOfAnother, withFrame } from "./tool-outputs.js";
import { pauseBeforeRetry } from "./tool-pause.js";
import { answerOfTool, rowsOfWaiting, type WaitingTool, waitingTool } from "./waiting.js";

/** The calls of one answer of the model. */
export async function runTools(
  turn: Turn,
  { calls, brokenArgs }: Extract<TurnEffect, { type: "tools" }>,
): Promise<TurnEvent> {
  try {
    const batch = { turn, calls, brokenArgs, signal: turn.request.signal };
    const { records, directives, issues } = await runToolBatch(batch);
    return { type: "tools_done", records, directives, ...(issues && { issues }) };
  } catch (error) {
    const issue = replayIssue(error);
    const output = toolFailure("internal", issue.code, issue.message);
    const records = calls.map((call, completed) => ({ ...call, output, durationMs: 0, completed }));
    return { type: "tools_done", records, directives: NO_DIRECTIVES, issue };
  }
}

interface ToolBatch {
  readonly turn: Turn;
  readonly calls: readonly ToolCall[];
  readonly brokenArgs: Readonly<Record<string, string>>;
  /** The turn's, or the one of the code that makes the calls. */
  readonly signal: AbortSignal;
}

export interface ToolBatchResult {
  readonly records: readonly ToolRecord[];
  /** What tool hooks asked of the turn: messages for the next model call, events, an abort. */
  readonly directives: TurnDirectives;
  /** Hooks that failed on the way. */
  readonly issues?: readonly TurnIssue[];
}

/** Prepares the calls one after another in call order, runs what may run at once, returns the results in call order. */
export function runToolBatch(batch: ToolBatch): Promise<ToolBatchResult> {
  return new BatchRun(batch).run();
}

/** A call's body as it ended; `at`: when, if that was in an earlier life of the turn. `since`: when it began to wait. */
type Executed = ToolExecution & { readonly at?: number; readonly since?: number };

/** A call as it was made, with what it came to. */
interface Ended {
  readonly call: ToolCall;
  readonly output: ToolOutput;
}

/** Each call of a batch is made once, whatever becomes of the turn's worker. */
class BatchRun {
  readonly #batch: ToolBatch;
  readonly #turn: Turn;
  readonly #hooks: BatchHooks;
  readonly #questions: Questions;
  #notes: ToldNotes | undefined;
  /** Calls that have ended. */
  #completed = 0;

  constructor(batch: ToolBatch) {
    const { turn, signal, calls } = batch;
    this.#batch = batch;
    this.#turn = turn;
    this.#hooks = new BatchHooks({ turn, signal, calls: calls.length });
    this.#questions = new Questions({ turn, hooks: this.#hooks });
  }

  async run(): Promise<ToolBatchResult> {
    const { session, facts } = this.#turn;
    const { calls } = this.#batch;
    const onNote = (callId: string, note: ToolNote) => {
      this.#notes ??= new ToldNotes(this.#turn, calls);
      this.#notes.add(callId, note);
    };
    const running = { facts, calls, onNote, open: () => calls.length - this.#completed };
    session.completions.begin(running);
    try {
      const prepared: Prepared[] = [];
      for (const call of calls) {
        const preparing = this.#prepare(call);
        prepared.push(preparing instanceof Promise ? await preparing : preparing);
      }
      const records = await Promise.all(prepared.map((item) => this.#finish(item)));
      const { issues } = this.#hooks;
      const directives = foldTurnDirectives(this.#hooks.directives);
      return issues.length === 0 ? { records, directives } : { records, directives, issues };
    } finally {
      session.completions.end(running);
    }
  }

  #prepare(call: ToolCall): Prepared | Promise<Prepared> {
    const { brokenArgs } = this.#batch;
    const turn = this.#turn;
    turn.request.emit({ type: "tool_call_started", callId: call.callId, toolName: call.toolName, args: call.args });
    if (this.#hooks.aborted) return { call, decided: CANCELLED };
    const broken = Object.hasOwn(brokenArgs, call.callId) ? brokenArgs[call.callId] : undefined;
    if (broken !== undefined) return { call, decided: notJson(call, broken) };
    // A tool the model cannot have never reaches a hook.
    if (turn.catalog.get(call.toolName) === undefined) return { call, decided: undefined };
    return this.#questions.prepare(call);
  }

  async #finish(prepared: Prepared): Promise<ToolRecord> {
    const { session, request } = this.#turn;
    const { clock } = session.services;
    const started = clock.now();
    const { call, output } = await duringCall(this.#turn, () => this.#ended(prepared));
    const durationMs = clock.now() - started;
    this.#notes?.end(call.callId);
    request.emit({ type: "tool_call_finished", callId: call.callId, toolName: call.toolName, output, durationMs });
    const { callId, toolName, args } = call;
    const record: ToolRecord = { callId, toolName, args, output, durationMs, completed: this.#completed++ };
    if (!session.hooks.has("tool_result_projector", call.toolName)) return record;
    return { ...record, ...(await this.#hooks.project(record)) };
  }

  #ended(prepared: Prepared): Promise<Ended> {
    const { call, decided, question } = prepared;
    return question === undefined && decided === undefined && !this.#hooks.aborted
      ? this.#attempts(call)
      : this.#decided(prepared);
  }

  /** A call that waits for somebody's yes, or that is not to be made. */
  async #decided(prepared: Prepared): Promise<Ended> {
    const { call, decided } = prepared.question === undefined ? prepared : await this.#questions.answered(prepared);
    if (decided !== undefined) return { call, output: await withKeptContent(this.#turn, decided) };
    return this.#hooks.aborted ? { call, output: CANCELLED } : this.#attempts(call);
  }

  /** Makes the call, and again when its tool's policy says so; every attempt is reviewed. An answer that comes later ends the ladder. */
  async #attempts(call: ToolCall): Promise<Ended> {
    const { request, catalog, session } = this.#turn;
    const { clock } = session.services;
    const retry = catalog.get(call.toolName)?.retry;
    for (let attempt = 1; ; attempt++) {
      const started = clock.now();
      const executed = await this.#executeOnce(call, attempt);
      const { ran, output, pending } = executed;
      // A call that never got to its tool has no result to review.
      if (!ran) return { call, output };
      const answer =
        pending === undefined ? withFrame(this.#turn, output) : await this.#answered(call, { ...executed, pending });
      const reviewing = this.#hooks.after(call, answer, clock.now() - started);
      const reviewed = reviewing instanceof Promise ? await reviewing : reviewing;
      const delayMs =
        pending === undefined && !this.#hooks.signal.aborted ? delayBeforeRetry(retry, attempt, reviewed) : undefined;
      if (delayMs === undefined || reviewed.status !== "failure")
        return { call, output: exhaustedRetries(retry, attempt, reviewed) };
      const { callId, toolName } = call;
      request.emit({ type: "tool_call_retry", callId, toolName, attempt, code: reviewed.failure.code, delayMs });
      const key = `${this.#keyOf(callId, attempt)}:sleep`;
      await pauseBeforeRetry(this.#turn, { key, delayMs, signal: this.#hooks.signal });
    }
  }

  /** A finished call is not made again when the turn is taken up again. One that was cancelled is not finished. */
  #executeOnce(call: ToolCall, attempt: number): Executed | Promise<Executed> {
    const { callId, toolName, args } = call;
    const turn = this.#turn;
    return turn.journal.once<Executed, Executed & AttachedBytes & { readonly callId: string }>({
      key: this.#keyOf(callId, attempt),
      envelope: () => ({ toolName, args }),
      // Of another tool it says nothing.
      counts: ofTool(toolName),
      otherwise: () => ({ output: recordedOfAnother(toolName), ran: false }),
      run: () => this.#execute(call, attempt),
      keep: (done) =>
        done.ran && done.output.status !== "cancelled"
          ? { callId, ...done, ...bytesBesideOutputs(turn, [done.output]) }
          : undefined,
      changes: () => this.#changedBy(toolName),
      rowsOf: ({ pending, since }) =>
        pending === undefined ? NO_ROWS : rowsOfWaiting(turn, waitingTool(turn, call, { pending, since })),
      found: ({ attached, ...recorded }, at) => {
        if (attached !== undefined) attachAgain(turn, { attached });
        return { ...recorded, at };
      },
    });
  }

  #keyOf(callId: string, attempt: number): string {
    return `tools:${this.#turn.state.step}:${callId}:${attempt}`;
  }

  /** A plugin's tool may have changed the plugin's state: not run again, it would not do so again. */
  #changedBy(toolName: string): readonly string[] {
    const home = this.#turn.catalog.get(toolName)?.home;
    return home?.kind === "plugin" ? [home.pluginId] : [];
  }

  async #execute(call: ToolCall, attempt: number): Promise<Executed> {
    const { session, facts, catalog } = this.#turn;
    const { sessionId, turnId } = facts;
    const { homes, checks, deadlines, events } = session.services;
    const { signal } = this.#hooks;
    const failures: unknown[] = [];
    const onThrown = events && ((thrown: unknown) => void failures.push(thrown));
    const run = () =>
      executeTool({
        onThrown,
        registry: catalog,
        homes,
        checks,
        deadlines,
        call,
        hidden: NOTHING_HIDDEN,
        sessionId,
        turnId,
        signal,
        attempt,
      });
    const tool = catalog.get(call.toolName);
    const ended = await this.#inItsPlace(tool, run);
    const executed = ended.pending === undefined ? ended : { ...ended, since: session.services.clock.wallNow() };
    if (events !== undefined && tool !== undefined)
      tellToolFailed(events, { sessionId, call, executed, thrown: failures.at(-1), home: tool.home });
    return executed.started === undefined ? this.#kept(executed) : this.#startedTask(executed, executed.started);
  }

  /** The session is told of the end of a task as its tool says: stored before the model reads that the task goes on. */
  async #startedTask(
    { started: _, ...executed }: Executed,
    { taskId, deliver }: NonNullable<Executed["started"]>,
  ): Promise<Executed> {
    const { session, facts } = this.#turn;
    const asked = { sessionId: facts.sessionId, pluginId: "", args: [taskId, deliver], asked: undefined };
    try {
      await session.services.relay("outside", { ...asked, method: TASK_DELIVER });
      return executed;
    } catch (error) {
      const { code, message } = asTroupeError(error, "task_unknown");
      return { ...executed, output: toolFailure("execution", code, message) };
    }
  }

  /** Waits until the tool may run once more. */
  #inItsPlace(tool: RegisteredTool | undefined, run: () => Promise<ToolExecution>): Promise<ToolExecution> {
    if (tool?.maxConcurrent === undefined) return run();
    const { limits } = this.#turn.session.services;
    const place = { toolId: toolIdOf(tool.spec), maxConcurrent: tool.maxConcurrent, signal: this.#hooks.signal };
    // Nothing but an abort ends the wait for a place.
    return limits.within(place, run).catch(() => ({ output: CANCELLED, ran: false }));
  }

  #kept(done: Executed): Executed | Promise<Executed> {
    const kept = withKeptContent(this.#turn, done.output);
    return kept instanceof Promise ? kept.then((output) => ({ ...done, output })) : done;
  }

  async #answered(call: ToolCall, waits: WaitingTool): Promise<ToolOutput> {
    const output = await answerOfTool(this.#turn, call, { ...waits, signal: this.#hooks.signal });
    return withKeptContent(this.#turn, output);
  }
}

const NO_ROWS: readonly RowChange[] = [];

const NOTHING_HIDDEN: ReadonlySet<string> = new Set();
