import { ignore, sleep } from "../../async/index.js";
import {
  type AfterToolDirective,
  answerKeyOf,
  asTroupeError,
  type BeforeToolDirective,
  completionKeyOf,
  composeAfterToolCall,
  composeBeforeToolCall,
  delayBeforeRetry,
  exhaustedRetries,
  foldTurnDirectives,
  messageOf,
  NO_DIRECTIVES,
  type Owned,
  renderToolOutput,
  type ToolCall,
  type ToolOutput,
  type ToolRecord,
  type ToolVerdict,
  type TurnDirective,
  type TurnDirectives,
  type TurnEffect,
  type TurnEvent,
  toolFailure,
  toolIdOf,
} from "../../kernel/index.js";
import type { PendingTool } from "../../plugin/index.js";
import { executeTool, type ToolExecution } from "../../tools/index.js";
import { performAtTool, trace } from "../host-services/index.js";
import { replayIssue, type Turn } from "./turn.js";

/** The calls of one answer of the model. */
export async function runTools(
  turn: Turn,
  { calls, brokenArgs }: Extract<TurnEffect, { type: "tools" }>,
): Promise<TurnEvent> {
  try {
    return { type: "tools_done", ...(await runToolBatch({ turn, calls, brokenArgs, signal: turn.request.signal })) };
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
}

/** Prepares the calls one after another in call order, runs what may run at once, returns the results in call order. */
export function runToolBatch(batch: ToolBatch): Promise<ToolBatchResult> {
  return new BatchRun(batch).run();
}

type Prepared = { readonly call: ToolCall; readonly decided: ToolOutput | undefined };

/** A call's body as it ended; `at`: when, if that was in an earlier life of the turn. */
type Executed = ToolExecution & { readonly at?: number };

/** Each call of a batch is made once, whatever becomes of the turn's worker. */
class BatchRun {
  readonly #batch: ToolBatch;
  readonly #turn: Turn;
  /** Ends the other calls when a hook aborts the turn; a call alone has no others. */
  readonly #stop: AbortController | undefined;
  readonly #signal: AbortSignal;
  readonly #directives: Owned<TurnDirective>[] = [];
  #aborted = false;
  /** Calls that have ended. */
  #completed = 0;

  constructor(batch: ToolBatch) {
    this.#batch = batch;
    this.#turn = batch.turn;
    const { hooks } = batch.turn.session;
    const mayAbort = batch.calls.length > 1 && (hooks.has("before_tool_call") || hooks.has("after_tool_call"));
    this.#stop = mayAbort ? new AbortController() : undefined;
    this.#signal = this.#stop === undefined ? batch.signal : AbortSignal.any([batch.signal, this.#stop.signal]);
  }

  async run(): Promise<ToolBatchResult> {
    const { session, facts } = this.#turn;
    const { calls } = this.#batch;
    const running = { facts, calls };
    session.completions.begin(running);
    try {
      const prepared: Prepared[] = [];
      for (const call of calls) prepared.push(await this.#prepare(call));
      const records = await Promise.all(prepared.map((item) => this.#finish(item)));
      return { records, directives: foldTurnDirectives(this.#directives) };
    } finally {
      session.completions.end(running);
    }
  }

  async #prepare(call: ToolCall): Promise<Prepared> {
    const { brokenArgs } = this.#batch;
    const turn = this.#turn;
    turn.request.emit({ type: "tool_call_started", callId: call.callId, toolName: call.toolName, args: call.args });
    if (this.#aborted) return { call, decided: CANCELLED };
    const broken = Object.hasOwn(brokenArgs, call.callId) ? brokenArgs[call.callId] : undefined;
    if (broken !== undefined) return { call, decided: notJson(call, broken) };
    const known = turn.catalog.get(call.toolName) !== undefined;
    // A tool the model cannot have never reaches a hook.
    if (!known || !turn.session.hooks.has("before_tool_call", call.toolName)) return { call, decided: undefined };
    try {
      return await this.#inspect(call);
    } catch (error) {
      return { call, decided: this.#failed("before_tool_call_failed", error) };
    }
  }

  async #inspect(call: ToolCall): Promise<Prepared> {
    const { session, facts, catalog } = this.#turn;
    const argumentProjection = catalog.get(call.toolName)?.argumentProjection;
    const around = session.hooks.around({
      site: "before_tool_call",
      toolName: call.toolName,
      first: call.args,
      facts: (args) => ({ ...facts, call: { ...call, args }, argumentProjection }),
      options: { signal: this.#signal },
    });
    const verdict = await composeBeforeToolCall(call.args, around.count, (n, args, secondLook) =>
      this.#performed(around.ask(n, args), secondLook),
    );
    return { call: { ...call, args: verdict.args }, decided: this.#accept("before_tool_call", verdict) };
  }

  async #finish({ call, decided }: Prepared): Promise<ToolRecord> {
    const { session, request } = this.#turn;
    const { clock } = session.services;
    const started = clock.now();
    let output = decided;
    if (output === undefined && this.#aborted) output = CANCELLED;
    output ??= await this.#attempts(call);
    const durationMs = clock.now() - started;
    request.emit({ type: "tool_call_finished", callId: call.callId, toolName: call.toolName, output, durationMs });
    const record: ToolRecord = { ...call, output, durationMs, completed: this.#completed++ };
    if (!session.hooks.has("tool_result_projector", call.toolName)) return record;
    return { ...record, modelText: await this.#project(record) };
  }

  /** Makes the call, and again when its tool's policy says so; every attempt is reviewed. An answer that comes later ends the ladder. */
  async #attempts(call: ToolCall): Promise<ToolOutput> {
    const { request, catalog, session } = this.#turn;
    const { clock } = session.services;
    const retry = catalog.get(call.toolName)?.retry;
    for (let attempt = 1; ; attempt++) {
      const started = clock.now();
      const { ran, output, pending, at } = await this.#executeOnce(call, attempt);
      // A call that never got to its tool has no result to review.
      if (!ran) return output;
      const answer = pending === undefined ? this.#withFrame(output) : await this.#answered(call, pending, at);
      const reviewed = await this.#review(call, answer, clock.now() - started);
      const delayMs =
        pending === undefined && !this.#signal.aborted ? delayBeforeRetry(retry, attempt, reviewed) : undefined;
      if (delayMs === undefined || reviewed.status !== "failure") return exhaustedRetries(retry, attempt, reviewed);
      const { callId, toolName } = call;
      request.emit({ type: "tool_call_retry", callId, toolName, attempt, code: reviewed.failure.code, delayMs });
      await this.#sleep(call, attempt, delayMs);
    }
  }

  /** A finished call is not made again when the turn is taken up again. One that was cancelled is not finished. */
  #executeOnce(call: ToolCall, attempt: number): Executed | Promise<Executed> {
    const { callId, toolName, args } = call;
    return this.#turn.journal.once<Executed, ToolExecution & { readonly callId: string }>({
      key: this.#keyOf(callId, attempt),
      envelope: () => ({ toolName, args }),
      run: () => this.#execute(call),
      keep: (done) => (done.ran && done.output.status !== "cancelled" ? { ...done, callId } : undefined),
      changes: () => this.#changedBy(toolName),
      found: (recorded, at) => ({ ...recorded, at }),
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

  /** A pause that was begun before a crash ends when it would have. */
  async #sleep({ callId }: ToolCall, attempt: number, delayMs: number): Promise<void> {
    const { journal, session } = this.#turn;
    const { clock } = session.services;
    const begun = await journal.once<number, null>({
      key: `${this.#keyOf(callId, attempt)}:sleep`,
      envelope: () => delayMs,
      run: () => clock.wallNow(),
      keep: () => null,
      found: (_, at) => at,
    });
    journal.waits();
    const due = begun + delayMs;
    // A timer counts from when the event loop last looked at the clock, and so may be early.
    for (let leftMs = due - clock.wallNow(); leftMs > 0 && !this.#signal.aborted; leftMs = due - clock.wallNow())
      await sleep(clock, leftMs, { signal: this.#signal }).catch(ignore);
  }

  async #execute(call: ToolCall): Promise<ToolExecution> {
    const { session, facts, catalog } = this.#turn;
    const { sessionId, turnId } = facts;
    const { homes, limits, deadlines } = session.services;
    const signal = this.#signal;
    const run = () =>
      executeTool({ registry: catalog, homes, deadlines, call, hidden: NOTHING_HIDDEN, sessionId, turnId, signal });
    const tool = catalog.get(call.toolName);
    if (tool?.maxConcurrent === undefined) return run();
    try {
      return await limits.within({ toolId: toolIdOf(tool.spec), maxConcurrent: tool.maxConcurrent, signal }, run);
    } catch {
      // Nothing but an abort ends the wait for a place.
      return { output: CANCELLED, ran: false };
    }
  }

  /** A frame the session cannot go to fails the call, not the turn; without a task there is nothing to go there for. */
  #withFrame(output: ToolOutput): ToolOutput {
    if (output.status !== "success" || output.control?.kind !== "switch_agent_frame") return output;
    const { frameId, task } = output.control;
    if (task.trim() === "") return withoutControl(output);
    try {
      this.#turn.session.graph.checkNewFrame(frameId);
      return output;
    } catch (error) {
      const { code, message } = asTroupeError(error, "frame_exists");
      return toolFailure("invalid_request", code, message);
    }
  }

  /** Waits for the answer from outside. `at`: since when, if not since now. */
  #answered({ callId, toolName }: ToolCall, given: PendingTool, at: number | undefined): Promise<ToolOutput> {
    const { session, facts, request, journal } = this.#turn;
    const { announcement = null, deadlineMs } = given;
    const key = completionKeyOf(facts.sessionId, facts.turnId, callId);
    const known = journal.find<ToolOutput>(answerKeyOf(key));
    if (known !== undefined) return Promise.resolve(known);
    const pending =
      deadlineMs === undefined || at === undefined
        ? given
        : { ...given, deadlineMs: Math.max(1, at + deadlineMs - session.services.clock.wallNow()) };
    const answer = session.completions.wait(key, { toolName, pending, signal: this.#signal });
    journal.waits();
    request.emit({ type: "tool_call_pending", callId, toolName, key, announcement });
    return answer;
  }

  /** What the model reads of a result. An error is its reading: the record keeps the result. */
  async #project({ callId, toolName, args, output, durationMs }: ToolRecord): Promise<string> {
    const { session, facts } = this.#turn;
    const call: ToolCall = { callId, toolName, args };
    try {
      const projected = await session.hooks.only(
        "tool_result_projector",
        { ...facts, call, output, durationMs },
        // Not the batch's signal: the model will read the results of a batch whose turn was aborted, too.
        { ...unlessAborted(this.#batch.signal), toolName },
      );
      return typeof projected === "string" ? projected : renderToolOutput(output);
    } catch (error) {
      // One that nobody waits for any more did not fail.
      if (this.#batch.signal.aborted) return renderToolOutput(output);
      return `[Tool result could not be shown]\n${asTroupeError(error, "hook_failed").message}`;
    }
  }

  async #review(call: ToolCall, output: ToolOutput, durationMs: number): Promise<ToolOutput> {
    const { session, facts } = this.#turn;
    const { hooks } = session;
    if (!hooks.has("after_tool_call", call.toolName) || output.status === "cancelled") return output;
    const around = hooks.around<"after_tool_call", ToolOutput>({
      site: "after_tool_call",
      toolName: call.toolName,
      first: output,
      facts: (current) => ({ ...facts, call, output: current, durationMs }),
      options: unlessAborted(this.#signal),
    });
    try {
      const verdict = await composeAfterToolCall(output, around.count, (n, current, secondLook) =>
        this.#performed(around.ask(n, current), secondLook),
      );
      return this.#accept("after_tool_call", verdict) ?? output;
    } catch (error) {
      return this.#failed("after_tool_call_failed", error);
    }
  }

  /** A hook that failed fails its call; one that nobody waits for any more did not fail. */
  #failed(code: string, error: unknown): ToolOutput {
    const { message } = asTroupeError(error, "hook_failed");
    return this.#signal.aborted ? { status: "cancelled", message } : toolFailure("internal", code, message);
  }

  /** Sessions are made and traces left as they are met, but not again for a second look. */
  #performed<D extends BeforeToolDirective | AfterToolDirective>(
    asked: Owned<D>[] | Promise<Owned<D>[]>,
    secondLook: boolean,
  ): readonly Owned<D>[] | Promise<readonly Owned<D>[]> {
    if (secondLook) return asked;
    const { session } = this.#turn;
    return asked instanceof Promise
      ? asked.then((directives) => performAtTool(session, directives))
      : performAtTool(session, asked);
  }

  /** Takes over what the hooks asked for besides the verdict. An abort ends the turn, and the batch's other calls. */
  #accept(site: "before_tool_call" | "after_tool_call", verdict: ToolVerdict): ToolOutput | undefined {
    this.#directives.push(...verdict.effects);
    for (const { pluginId, winner, ignored } of verdict.conflicts) {
      const payload = {
        winner_plugin_id: winner.pluginId,
        winner_directive: winner.directive,
        ignored_plugin_id: ignored.pluginId,
        ignored_directive: ignored.directive,
      };
      const event = { name: `${site}.directive_conflict`, payload };
      trace(this.#turn.session, pluginId, event);
      this.#directives.push({ pluginId, value: { kind: "emit_events", events: [event] } });
    }
    const { terminal, output } = verdict;
    if (terminal?.value.kind === "abort_turn") {
      this.#aborted = true;
      this.#directives.push({ pluginId: terminal.pluginId, value: terminal.value });
      this.#stop?.abort();
    }
    // A tool's word alone ends the turn so: what stands in for its result does not.
    return output === undefined ? undefined : withoutControl(output);
  }
}

/** A result that came after the abort, in its tool's grace, is still reviewed and shown: its hooks have their deadlines. */
function unlessAborted(signal: AbortSignal): { readonly signal?: AbortSignal } {
  return signal.aborted ? {} : { signal };
}

function notJson({ toolName }: ToolCall, text: string): ToolOutput {
  const message = `The arguments of ${toolName} are not valid JSON: ${problemIn(text)}. Call it again with a JSON object.`;
  return toolFailure("invalid_request", "invalid_tool_args", message);
}

function problemIn(text: string): string {
  try {
    JSON.parse(text);
    return "they cannot be read";
  } catch (error) {
    return messageOf(error);
  }
}

/** What stands in for a result does not end the turn: only its tool's own word does. */
function withoutControl(output: ToolOutput): ToolOutput {
  return output.status === "success" && output.control !== undefined
    ? { status: "success", value: output.value }
    : output;
}

const NOTHING_HIDDEN: ReadonlySet<string> = new Set();
const CANCELLED: ToolOutput = { status: "cancelled", message: "The turn was aborted before this call ran." };
