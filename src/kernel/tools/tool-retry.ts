import { TroupeError } from "../errors.js";
import type { ToolFailure, ToolOutput } from "./tools.js";

/**
 * When a failed call is made again. `safe`: when the tool itself says that nothing was done. `idempotent`: also when
 * nobody can know whether something was done (it was late, its thread died), because doing it twice does no harm.
 */
export interface ToolRetryPolicy {
  readonly policy: "safe" | "idempotent";
  /** The first attempt included. */
  readonly maxAttempts: number;
  readonly baseDelayMs: number;
  /** 0: no cap. */
  readonly maxDelayMs: number;
}

/** Failures after which nobody knows what was done. */
const UNCERTAIN: readonly string[] = ["tool_timeout", "tool_worker_lost"];

/**
 * How long to wait before the next attempt; undefined when there is none. `attempt` is the one that ended, from 1.
 *
 * @example
 * delayBeforeRetry({ policy: "safe", maxAttempts: 3, baseDelayMs: 100, maxDelayMs: 0 }, 2, output); // 200
 */
export function delayBeforeRetry(
  policy: ToolRetryPolicy | undefined,
  attempt: number,
  output: ToolOutput,
): number | undefined {
  if (policy === undefined || attempt >= policy.maxAttempts || output.status !== "failure") return undefined;
  const { failure } = output;
  if (!mayRepeat(policy, failure)) return undefined;
  const asked = failure.retry?.kind === "safe" ? failure.retry.afterMs : undefined;
  const delayMs = asked ?? policy.baseDelayMs * 2 ** (attempt - 1);
  return policy.maxDelayMs > 0 ? Math.min(delayMs, policy.maxDelayMs) : delayMs;
}

/** A failure that would have been tried again, had there been attempts left, says so. */
export function exhaustedRetries(policy: ToolRetryPolicy | undefined, attempt: number, output: ToolOutput): ToolOutput {
  if (policy === undefined || attempt === 1 || output.status !== "failure" || !mayRepeat(policy, output.failure))
    return output;
  return { ...output, failure: { ...output.failure, retry: { kind: "exhausted", attempts: attempt } } };
}

function mayRepeat({ policy }: ToolRetryPolicy, { code, retry }: ToolFailure): boolean {
  return retry?.kind === "safe" || (policy === "idempotent" && UNCERTAIN.includes(code));
}

/** A policy as a tool's author writes it. */
export type ToolRetry = "never" | "safe" | "idempotent" | (Pick<ToolRetryPolicy, "policy"> & Partial<ToolRetryPolicy>);

const DEFAULTS = { maxAttempts: 3, baseDelayMs: 100, maxDelayMs: 10_000 };

/** A policy as a host or plugin writes it, checked and completed; undefined for `never`. */
export function checkRetryPolicy(what: string, given: unknown): ToolRetryPolicy | undefined {
  if (given === undefined || given === "never") return undefined;
  const { policy, ...rest } =
    typeof given === "string" ? { policy: given } : ((given ?? {}) as Partial<ToolRetryPolicy>);
  const whole = { ...DEFAULTS, ...rest };
  const numbers = [whole.maxAttempts, whole.baseDelayMs, whole.maxDelayMs];
  const usable = numbers.every((number) => Number.isSafeInteger(number) && number >= 0) && whole.maxAttempts >= 1;
  if ((policy === "safe" || policy === "idempotent") && usable) return { policy, ...whole };
  throw new TroupeError(
    "invalid_tool",
    `${what}: retry must be "never", "safe", "idempotent", or { policy, maxAttempts?, baseDelayMs?, maxDelayMs? }.`,
  );
}
