import { ignore, sleep } from "../../async/index.js";
import {
  answerKeyOf,
  asTroupeError,
  completionKeyOf,
  delayBeforeRetry,
  exhaustedRetries,
  type ToolCall,
  type ToolOutput,
  toolFailure,
  toolIdOf,
} from "../../kernel/index.js";
import type { PendingTool } from "../../plugin/index.js";
import { executeTool, type ToolExecution } from "../../tools/index.js";
import type { Turn } from "./turn.js";

/** What a result is after the hooks have seen it. */
type Review = (output: ToolOutput, durationMs: number) => Promise<ToolOutput>;

/** A call's body as it ended; `at`: when, if that was in an earlier life of the turn. */
type Executed = ToolExecution & { readonly at?: number };

/** The attempts at the calls of one batch: each is made once, whatever becomes of the turn's worker. */
export class ToolAttempts {
  readonly #turn: Turn;
  readonly #signal: AbortSignal;

  constructor(turn: Turn, signal: AbortSignal) {
    this.#turn = turn;
    this.#signal = signal;
  }

  /** Makes the call, and again when its tool's policy says so; every attempt is reviewed. An answer that comes later ends the ladder. */
  async run(call: ToolCall, review: Review): Promise<ToolOutput> {
    const { request, catalog, session } = this.#turn;
    const { clock } = session.services;
    const retry = catalog.get(call.toolName)?.retry;
    for (let attempt = 1; ; attempt++) {
      const started = clock.now();
      const { ran, output, pending, at } = await this.#executeOnce(call, attempt);
      // A call that never got to its tool has no result to review.
      if (!ran) return output;
      const answer = pending === undefined ? this.#withFrame(output) : await this.#answered(call, pending, at);
      const reviewed = await review(answer, clock.now() - started);
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
}

/** What stands in for a result does not end the turn: only its tool's own word does. */
export function withoutControl(output: ToolOutput): ToolOutput {
  return output.status === "success" && output.control !== undefined
    ? { status: "success", value: output.value }
    : output;
}

const NOTHING_HIDDEN: ReadonlySet<string> = new Set();
export const CANCELLED: ToolOutput = { status: "cancelled", message: "The turn was aborted before this call ran." };
