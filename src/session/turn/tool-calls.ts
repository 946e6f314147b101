import {
  type AfterToolDirective,
  asTroupeError,
  type BeforeToolDirective,
  composeAfterToolCall,
  composeBeforeToolCall,
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
} from "../../kernel/index.js";
import { performAtTool, trace } from "../host-services/index.js";
import { CANCELLED, ToolAttempts, withoutControl } from "./tool-attempts.js";
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
export async function runToolBatch(batch: ToolBatch): Promise<ToolBatchResult> {
  const { session, facts } = batch.turn;
  const running = { facts, calls: batch.calls };
  session.completions.begin(running);
  try {
    return await new BatchRun(batch).run();
  } finally {
    session.completions.end(running);
  }
}

type Prepared = { readonly call: ToolCall; readonly decided: ToolOutput | undefined };

class BatchRun {
  readonly #batch: ToolBatch;
  /** Ends the other calls when a hook aborts the turn; a call alone has no others. */
  readonly #stop: AbortController | undefined;
  readonly #signal: AbortSignal;
  readonly #attempts: ToolAttempts;
  readonly #directives: Owned<TurnDirective>[] = [];
  #aborted = false;
  /** Calls that have ended. */
  #completed = 0;

  constructor(batch: ToolBatch) {
    this.#batch = batch;
    const { hooks } = batch.turn.session;
    const mayAbort = batch.calls.length > 1 && (hooks.has("before_tool_call") || hooks.has("after_tool_call"));
    this.#stop = mayAbort ? new AbortController() : undefined;
    this.#signal = this.#stop === undefined ? batch.signal : AbortSignal.any([batch.signal, this.#stop.signal]);
    this.#attempts = new ToolAttempts(batch.turn, this.#signal);
  }

  async run(): Promise<ToolBatchResult> {
    const prepared: Prepared[] = [];
    for (const call of this.#batch.calls) prepared.push(await this.#prepare(call));
    const records = await Promise.all(prepared.map((item) => this.#finish(item)));
    return { records, directives: foldTurnDirectives(this.#directives) };
  }

  async #prepare(call: ToolCall): Promise<Prepared> {
    const { brokenArgs, turn } = this.#batch;
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
    const { session, facts, catalog } = this.#batch.turn;
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
    const { session, request } = this.#batch.turn;
    const { clock } = session.services;
    const started = clock.now();
    let output = decided;
    if (output === undefined && this.#aborted) output = CANCELLED;
    output ??= await this.#attempts.run(call, (ran, durationMs) => this.#review(call, ran, durationMs));
    const durationMs = clock.now() - started;
    request.emit({ type: "tool_call_finished", callId: call.callId, toolName: call.toolName, output, durationMs });
    const record: ToolRecord = { ...call, output, durationMs, completed: this.#completed++ };
    if (!session.hooks.has("tool_result_projector", call.toolName)) return record;
    return { ...record, modelText: await this.#project(record) };
  }

  /** What the model reads of a result. An error is its reading: the record keeps the result. */
  async #project({ callId, toolName, args, output, durationMs }: ToolRecord): Promise<string> {
    const { session, facts } = this.#batch.turn;
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
    const { session, facts } = this.#batch.turn;
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
    const { session } = this.#batch.turn;
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
      trace(this.#batch.turn.session, pluginId, event);
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
