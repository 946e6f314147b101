import { ignore, onAbort } from "../../async/index.js";
import { completionKeyOf, type ToolCall, type ToolOutput, TroupeError, toolFailure } from "../../kernel/index.js";
import type { PendingTool, TurnFacts } from "../../plugin/index.js";
import type { Deadlines } from "../../wire/index.js";

/** The calls of a step while they run. */
interface RunningCalls {
  readonly facts: Pick<TurnFacts, "sessionId" | "turnId">;
  readonly calls: readonly Pick<ToolCall, "callId">[];
}

/** Tool calls of a session whose answer comes from outside, by completion key. */
export class Completions {
  readonly #running = new Set<RunningCalls>();
  readonly #waiting = new Map<string, { readonly toolName: string; readonly end: (output: ToolOutput) => void }>();
  /** Ends of running calls: of those that waited, and answers that came before their tool said that it waits. */
  readonly #ended = new Map<string, ToolOutput>();

  /** Calls of a turn that is yet to be taken up again. */
  readonly #expected = new Set<string>();
  /** Keys whose answer is being kept. */
  readonly #answering = new Set<string>();
  readonly #deadlines: Deadlines;

  constructor(deadlines: Deadlines) {
    this.#deadlines = deadlines;
  }

  /** From now on these calls may be answered: whoever a tool told its key may be quicker than the tool. */
  begin(calls: RunningCalls): void {
    this.#running.add(calls);
  }

  end(calls: RunningCalls): void {
    this.#running.delete(calls);
    if (this.#ended.size > 0) for (const key of keysOf(calls)) this.#ended.delete(key);
  }

  /** Waits for the answer, the deadline or the turn's abort, whichever comes first. Never rejects. */
  wait(
    key: string,
    {
      toolName,
      pending: { deadlineMs, onTimeout, onCancel },
      signal,
    }: { readonly toolName: string; readonly pending: PendingTool; readonly signal: AbortSignal },
  ): Promise<ToolOutput> {
    this.#expected.delete(key);
    const early = this.#ended.get(key);
    if (early !== undefined) return Promise.resolve(early);
    // A model that names two calls of a step alike would leave the first waiting for ever.
    if (this.#waiting.has(key)) return Promise.resolve(taken(toolName));
    return new Promise((resolve) => {
      let letGo = ignore;
      const end = (output: ToolOutput) => {
        this.#waiting.delete(key);
        this.#ended.set(key, output);
        if (deadline !== undefined) this.#deadlines.cancel(deadline);
        letGo();
        resolve(output);
      };
      const late = () => end(timeout(toolName, deadlineMs as number, onTimeout === "fail_turn"));
      const deadline = deadlineMs === undefined ? undefined : this.#deadlines.add(deadlineMs, late);
      this.#waiting.set(key, { toolName, end });
      if (onCancel !== "wait") letGo = onAbort(signal, () => end(cancelled(toolName)));
    });
  }

  /** A call will wait under this key: it did before a crash. */
  expect(key: string): void {
    this.#expected.add(key);
  }

  /** Gives the answer, once it is kept; the first one counts. `keep` says which that is, when it is not this one. */
  async complete(key: string, given: ToolOutput, keep?: () => Promise<ToolOutput | undefined>): Promise<void> {
    if (!this.#waitsFor(key) || this.#answering.has(key)) throw unknownKey(key);
    this.#answering.add(key);
    try {
      const output = (await keep?.()) ?? given;
      if (!this.#waitsFor(key)) throw unknownKey(key);
      const waiting = this.#waiting.get(key);
      if (waiting === undefined) this.#ended.set(key, output);
      else waiting.end(output);
    } finally {
      this.#answering.delete(key);
    }
  }

  #waitsFor(key: string): boolean {
    if (this.#waiting.has(key)) return true;
    const runs = this.#expected.has(key) || [...this.#running].some((calls) => keysOf(calls).includes(key));
    return runs && !this.#ended.has(key);
  }

  /** Nobody will answer any more: the runtime closes. Also ends the waiting of calls that a cancelled turn waits for. */
  close(): void {
    for (const { toolName, end } of [...this.#waiting.values()]) end(cancelled(toolName));
  }
}

function unknownKey(key: string): TroupeError {
  const message = "No tool call waits under this key: it was completed, ended, or never was.";
  return new TroupeError("completion_unknown", message, { details: { key } });
}

function keysOf({ facts, calls }: RunningCalls): string[] {
  return calls.map(({ callId }) => completionKeyOf(facts.sessionId, facts.turnId, callId));
}

function cancelled(toolName: string): ToolOutput {
  return { status: "cancelled", message: `The call of ${toolName} was cancelled.` };
}

function taken(toolName: string): ToolOutput {
  const message = `Another call with the id of this call of ${toolName} already waits for its answer.`;
  return toolFailure("invalid_request", "completion_key_taken", message);
}

function timeout(toolName: string, deadlineMs: number, endsTurn: boolean): ToolOutput {
  const message = `${toolName} was not completed within ${deadlineMs} ms.`;
  const failure = { kind: "timeout", code: "tool_completion_timeout", message } as const;
  return { status: "failure", failure: endsTurn ? { ...failure, endsTurn } : failure };
}
