import { type ToolOutput, TroupeError, toolFailure } from "../kernel/index.js";
import type { PendingTool } from "../plugin/index.js";
import { Deadlines } from "../wire/index.js";

const deadlines = new Deadlines();

/** Tool calls of a session whose answer comes from outside, by completion key. */
export class Completions {
  readonly #waiting = new Map<string, { readonly toolName: string; readonly end: (output: ToolOutput) => void }>();
  /** Calls of a turn that is yet to be taken up again, and answers that came before it was. */
  readonly #expected = new Map<string, ToolOutput | undefined>();

  /** Keys whose answer is being kept. */
  readonly #answering = new Set<string>();

  /** Waits for the answer, the deadline or the turn's abort, whichever comes first. Never rejects. */
  wait(
    key: string,
    {
      toolName,
      pending: { deadlineMs, onTimeout, onCancel },
      signal,
    }: { readonly toolName: string; readonly pending: PendingTool; readonly signal: AbortSignal },
  ): Promise<ToolOutput> {
    // A model that names two calls of a step alike would leave the first waiting for ever.
    if (this.#waiting.has(key)) return Promise.resolve(taken(toolName));
    const early = this.#expected.get(key);
    this.#expected.delete(key);
    if (early !== undefined) return Promise.resolve(early);
    return new Promise((resolve) => {
      const end = (output: ToolOutput) => {
        this.#waiting.delete(key);
        if (deadline !== undefined) deadlines.cancel(deadline);
        signal.removeEventListener("abort", onAbort);
        resolve(output);
      };
      const onAbort = () => end(cancelled(toolName));
      const late = () => end(timeout(toolName, deadlineMs as number, onTimeout === "fail_turn"));
      const deadline = deadlineMs === undefined ? undefined : deadlines.add(deadlineMs, late);
      this.#waiting.set(key, { toolName, end });
      if (onCancel === "wait") return;
      if (signal.aborted) onAbort();
      else signal.addEventListener("abort", onAbort, { once: true });
    });
  }

  /** A call will wait under this key. */
  expect(key: string): void {
    this.#expected.set(key, undefined);
  }

  /** Gives the answer, once it is kept; the first one counts. */
  async complete(key: string, output: ToolOutput, keep: () => Promise<unknown>): Promise<void> {
    const waits = this.#waiting.has(key) || (this.#expected.has(key) && this.#expected.get(key) === undefined);
    if (!waits || this.#answering.has(key)) throw unknownKey(key);
    this.#answering.add(key);
    try {
      await keep();
      const waiting = this.#waiting.get(key);
      if (waiting !== undefined) waiting.end(output);
      else if (this.#expected.has(key)) this.#expected.set(key, output);
      else throw unknownKey(key);
    } finally {
      this.#answering.delete(key);
    }
  }

  /** Nobody will answer any more: the runtime closes. Also ends the waiting of calls that a cancelled turn waits for. */
  close(): void {
    for (const { toolName, end } of [...this.#waiting.values()]) end(cancelled(toolName));
  }
}

/** An answer's place in the journal of its turn. */
export function answerKeyOf(completionKey: string): string {
  return `answer:${completionKey}`;
}

function unknownKey(key: string): TroupeError {
  const message = "No tool call waits under this key: it was completed, ended, or never was.";
  return new TroupeError("completion_unknown", message, { details: { key } });
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
