import { type ToolOutput, TroupeError, toolFailure } from "../kernel/index.js";
import { Deadlines } from "../wire/index.js";

const deadlines = new Deadlines();

/** Tool calls of a session whose answer comes from outside, by completion key. */
export class Completions {
  readonly #waiting = new Map<string, (output: ToolOutput) => void>();

  /** Waits for the answer, the deadline or the turn's abort, whichever comes first. Never rejects. */
  wait(
    key: string,
    {
      toolName,
      deadlineMs,
      signal,
    }: { readonly toolName: string; readonly deadlineMs: number | undefined; readonly signal: AbortSignal },
  ): Promise<ToolOutput> {
    return new Promise((resolve) => {
      const end = (output: ToolOutput) => {
        this.#waiting.delete(key);
        if (deadline !== undefined) deadlines.cancel(deadline);
        signal.removeEventListener("abort", onAbort);
        resolve(output);
      };
      const onAbort = () => end({ status: "cancelled", message: `The call of ${toolName} was cancelled.` });
      const late = () =>
        end(
          toolFailure("timeout", "tool_completion_timeout", `${toolName} was not completed within ${deadlineMs} ms.`),
        );
      const deadline = deadlineMs === undefined ? undefined : deadlines.add(deadlineMs, late);
      this.#waiting.set(key, end);
      if (signal.aborted) onAbort();
      else signal.addEventListener("abort", onAbort, { once: true });
    });
  }

  /** Gives the answer; the first one counts. */
  complete(key: string, output: ToolOutput): void {
    const end = this.#waiting.get(key);
    if (end === undefined) {
      throw new TroupeError(
        "completion_unknown",
        "No tool call waits under this key: it was completed, ended, or never was.",
        {
          details: { key },
        },
      );
    }
    end(output);
  }
}
