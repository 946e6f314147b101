import {
  type AfterToolDirective,
  type ApprovalDemand,
  asTroupeError,
  type BeforeToolDirective,
  composeAfterToolCall,
  composeBeforeToolCall,
  type Owned,
  type ToolCall,
  type ToolOutput,
  type ToolRecord,
  type ToolVerdict,
  type TroupeErrorCode,
  type TurnDirective,
  type TurnIssue,
  toolFailure,
} from "../../../kernel/index.js";
import { performAtTool, trace } from "../../host-services/index.js";
import type { Turn } from "../turn.js";
import { issueOf } from "../turn-session.js";
import { keptProjection, type Projected, readProjection, withKeptContent } from "./tool-content.js";
import { withoutControl } from "./tool-outputs.js";

/** A call as the hooks before it left it. */
export interface Inspected {
  readonly call: ToolCall;
  /** What stands in for its result; undefined when the tool is to run. */
  readonly decided: ToolOutput | undefined;
  /** What is asked of somebody before that. */
  readonly demands: readonly ApprovalDemand[];
  /** What the hooks asked of the turn beside. */
  readonly said: readonly Owned<TurnDirective>[];
}

interface BatchHooksParts {
  readonly turn: Turn;
  /** The turn's, or the one of the code that makes the calls. */
  readonly signal: AbortSignal;
  readonly calls: number;
}

/** The hooks around the calls of a batch, and what they ask of the turn. */
export class BatchHooks {
  readonly #turn: Turn;
  readonly #batchSignal: AbortSignal;
  /** Ends the other calls when a hook aborts the turn; a call alone has no others. */
  readonly #stop: AbortController | undefined;
  /** Of the calls: the batch's, and the abort of a hook. */
  readonly signal: AbortSignal;
  readonly directives: Owned<TurnDirective>[] = [];
  readonly issues: TurnIssue[] = [];
  #aborted = false;

  constructor({ turn, signal, calls }: BatchHooksParts) {
    const { hooks } = turn.session;
    this.#turn = turn;
    this.#batchSignal = signal;
    const mayAbort = calls > 1 && (hooks.has("before_tool_call") || hooks.has("after_tool_call"));
    this.#stop = mayAbort ? new AbortController() : undefined;
    this.signal = this.#stop === undefined ? signal : AbortSignal.any([signal, this.#stop.signal]);
  }

  /** A hook has ended the turn: calls that have not begun do not begin. */
  get aborted(): boolean {
    return this.#aborted;
  }

  /** Asks the hooks before a call; one that fails fails the call. */
  before(call: ToolCall): Inspected | Promise<Inspected> {
    return this.#turn.session.hooks.has("before_tool_call", call.toolName) ? this.#asked(call) : unchanged(call);
  }

  async #asked(call: ToolCall): Promise<Inspected> {
    try {
      return await this.#inspect(call);
    } catch (error) {
      const what = `${call.toolName} was not run, because a beforeToolCall hook failed`;
      return { ...unchanged(call), decided: this.#failed("before_tool_call_failed", what, error) };
    }
  }

  /** A call goes on as its hooks left it in an earlier life of the turn: what they asked of the turn counts again. */
  again(said: readonly Owned<TurnDirective>[]): void {
    this.directives.push(...said);
    // None of them has ended the turn: there would be nothing to go on with.
  }

  async #inspect(call: ToolCall): Promise<Inspected> {
    const { session, facts, catalog } = this.#turn;
    const argumentProjection = catalog.get(call.toolName)?.argumentProjection;
    const around = session.hooks.around(call.toolName, {
      site: "before_tool_call",
      first: call.args,
      facts: (args) => ({ call: { ...call, args }, argumentProjection, ...facts }),
      options: { signal: this.signal },
    });
    const verdict = await around.until(
      composeBeforeToolCall(call.args, around.count, (n, args, { second, end }) =>
        this.#performed(around.ask(n, args, end), second),
      ),
    );
    const from = this.directives.length;
    const decided = this.#accept("before_tool_call", verdict);
    const said = this.directives.slice(from);
    return { call: { ...call, args: verdict.args }, decided, said, demands: verdict.demands.map(({ value }) => value) };
  }

  /** The result as the hooks behind the call leave it. */
  after(call: ToolCall, output: ToolOutput, durationMs: number): ToolOutput | Promise<ToolOutput> {
    const { hooks } = this.#turn.session;
    if (!hooks.has("after_tool_call", call.toolName) || output.status === "cancelled") return output;
    return this.#reviewed(call, output, durationMs);
  }

  async #reviewed(call: ToolCall, output: ToolOutput, durationMs: number): Promise<ToolOutput> {
    const { session, facts } = this.#turn;
    const { hooks } = session;
    const around = hooks.around<"after_tool_call", ToolOutput>(call.toolName, {
      site: "after_tool_call",
      first: output,
      facts: (current) => ({ call, output: current, durationMs, ...facts }),
      options: unlessAborted(this.signal),
    });
    try {
      const verdict = await around.until(
        composeAfterToolCall(output, around.count, (n, current, { second, end }) =>
          this.#performed(around.ask(n, current, end), second),
        ),
      );
      const replaced = this.#accept("after_tool_call", verdict);
      return replaced === undefined ? output : await withKeptContent(this.#turn, replaced);
    } catch (error) {
      const what = `The result of ${call.toolName} is not shown, because an afterToolCall hook failed`;
      return this.#failed("after_tool_call_failed", what, error);
    }
  }

  /** What the model is given of a result. An error is its reading: the record keeps the result. */
  async project({ callId, toolName, args, output, durationMs }: ToolRecord): Promise<Projected> {
    const { session, facts } = this.#turn;
    const call: ToolCall = { callId, toolName, args };
    try {
      const projected = await session.hooks.only(
        "tool_result_projector",
        { call, output, durationMs, ...facts },
        // Not the batch's signal: the model will read the results of a batch whose turn was aborted, too.
        { ...unlessAborted(this.#batchSignal), toolName },
        readProjection,
      );
      return await keptProjection(this.#turn, projected);
    } catch (error) {
      // One that nobody waits for any more did not fail.
      if (this.#batchSignal.aborted) return {};
      const { message, details } = asTroupeError(error, "hook_failed");
      this.#note("hook_failed", error);
      // The words of an exception are not for the model; what is wrong with a hook's answer is ours to say.
      const why = details.hook === undefined ? message : "The hook that words it failed.";
      return { modelText: `[Tool result could not be shown]\n${why}` };
    }
  }

  /**
   * A hook that failed fails its call; one that nobody waits for any more did not fail. The model reads `what`: the words
   * of an exception are an issue of the turn.
   */
  #failed(code: TroupeErrorCode, what: string, error: unknown): ToolOutput {
    const { message, details } = asTroupeError(error, "hook_failed");
    if (this.signal.aborted) return { status: "cancelled", message };
    // No hook threw: what several of them asked for cannot be had together, and these are our own words.
    if (details.pluginId === undefined) return toolFailure("internal", code, message);
    this.#note(code, error);
    return toolFailure("internal", code, what);
  }

  /** One issue for each plugin and code of a batch, however many calls it fails. */
  #note(code: TroupeErrorCode, error: unknown): void {
    const issue = issueOf("plugin", code, error);
    if (!this.issues.some((known) => known.code === code && known.pluginId === issue.pluginId)) this.issues.push(issue);
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
    this.directives.push(...verdict.effects);
    for (const { pluginId, winner, ignored } of verdict.conflicts) {
      const payload = {
        winner_plugin_id: winner.pluginId,
        winner_directive: winner.directive,
        ignored_plugin_id: ignored.pluginId,
        ignored_directive: ignored.directive,
      };
      const event = { name: `${site}.directive_conflict`, payload };
      trace(this.#turn.session, pluginId, event);
      this.directives.push({ pluginId, value: { kind: "emit_events", events: [event] } });
    }
    const { terminal, output } = verdict;
    if (terminal?.value.kind === "abort_turn") {
      this.#aborted = true;
      this.directives.push({ pluginId: terminal.pluginId, value: terminal.value });
      this.#stop?.abort();
    }
    // A tool's word alone ends the turn so: what stands in for its result does not.
    return output === undefined ? undefined : withoutControl(output);
  }
}

function unchanged(call: ToolCall): Inspected {
  return { call, decided: undefined, demands: NONE, said: NONE };
}

const NONE: readonly never[] = [];

/** A result that came after the abort, in its tool's grace, is still reviewed and shown: its hooks have their deadlines. */
function unlessAborted(signal: AbortSignal): { readonly signal?: AbortSignal } {
  return signal.aborted ? {} : { signal };
}
