import { definedOnly, isRecord } from "../json.js";
import { unknownName } from "../known-names.js";

/**
 * Why a model call failed, as a policy names it: the provider's HTTP status; no connection, or one that was reset before
 * the provider answered (`network`); an answer that broke off, or could not be read, before its first event (`stream`).
 */
export type RetryCause = number | "network" | "stream";

/** Whether and when a model call that failed before its first event is made again. */
export interface ModelRetry {
  /** The first attempt included; 1: never again. Default 4. */
  readonly maxAttempts?: number;
  /** What is tried again. Default: 408, 425, 429, 500, 502, 503, 504, 529, `network` and `stream`. */
  readonly on?: readonly RetryCause[];
  /**
   * The longest wait before the second attempt; it doubles with each attempt, and how much of it is waited is chance.
   * A broken stream waits 250 at most at first, because its provider is there. Default 500.
   */
  readonly baseDelayMs?: number;
  /** The longest single wait, also of one the provider asks for with `retry-after`. Default 30,000. */
  readonly maxDelayMs?: number;
  /** No wait goes beyond this, counted from the start of the call: then the failure stands. Default 120,000. */
  readonly totalMs?: number;
}

export type RetryPolicy = Required<ModelRetry>;

export const DEFAULT_RETRY: RetryPolicy = Object.freeze({
  maxAttempts: 4,
  on: Object.freeze([408, 425, 429, 500, 502, 503, 504, 529, "network", "stream"] as const),
  baseDelayMs: 500,
  maxDelayMs: 30_000,
  totalMs: 120_000,
});

/** A provider that answered, though with nothing anybody can read, is there: there is little to wait for. */
const BROKEN_DELAY_MS = 250;

/** The whole policy of these layers, the later the stronger, over the default. */
export function retryPolicy(layers: readonly (ModelRetry | undefined)[]): RetryPolicy {
  if (layers.every((layer) => layer === undefined)) return DEFAULT_RETRY;
  return Object.assign({ ...DEFAULT_RETRY }, ...layers.map((layer) => definedOnly(layer ?? {})));
}

export interface FailedAttempt {
  /** How many attempts this model has had, this one included. */
  readonly attempts: number;
  /** Since the call began. */
  readonly elapsedMs: number;
  readonly cause: RetryCause | undefined;
  /** How long the provider asks to wait. */
  readonly retryAfterMs?: number | undefined;
}

/**
 * How long to wait before the next attempt; undefined when there is none. `chance` is from 0 up to 1: calls that failed
 * together come back at different times.
 *
 * @example
 * retryDelay(DEFAULT_RETRY, { attempts: 1, elapsedMs: 20, cause: 503 }, 0.5); // 250
 */
export function retryDelay(
  { maxAttempts, on, baseDelayMs, maxDelayMs, totalMs }: RetryPolicy,
  { attempts, elapsedMs, cause, retryAfterMs }: FailedAttempt,
  chance: number,
): number | undefined {
  if (cause === undefined || !on.includes(cause) || attempts >= maxAttempts) return undefined;
  const base = cause === "stream" ? Math.min(baseDelayMs, BROKEN_DELAY_MS) : baseDelayMs;
  const delayMs = Math.min(retryAfterMs ?? Math.round(chance * base * 2 ** (attempts - 1)), maxDelayMs);
  return elapsedMs + delayMs > totalMs ? undefined : delayMs;
}

/** What a policy names an error of a model by; undefined when no policy repeats it. */
export function retryCause(error: {
  readonly code: string;
  readonly details: Readonly<Record<string, unknown>>;
}): RetryCause | undefined {
  const { status } = error.details;
  if (typeof status === "number") return status;
  if (error.code === "model_unreachable") return "network";
  return error.code === "model_stream_cut" || error.code === "model_stream_malformed" ? "stream" : undefined;
}

const POLICY = ["maxAttempts", "on", "baseDelayMs", "maxDelayMs", "totalMs"];
const MAX_ATTEMPTS = 100;
/** The longest that a timer can wait. */
const LONGEST_MS = 2 ** 31 - 1;

/** What is wrong with a policy from outside, in words; undefined when nothing is. */
export function retryProblem(retry: unknown): string | undefined {
  if (!isRecord(retry)) return "modelRetry is an object with maxAttempts, on, baseDelayMs, maxDelayMs or totalMs";
  const { maxAttempts = 1, on = [], baseDelayMs = 0, maxDelayMs = 0, totalMs = 0, ...unknown } = retry;
  const [stranger] = Object.keys(unknown);
  if (stranger !== undefined) return unknownName(stranger, POLICY, "modelRetry", "option");
  if (!isWhole(maxAttempts, 1, MAX_ATTEMPTS))
    return `modelRetry.maxAttempts is a whole number from 1 to ${MAX_ATTEMPTS}`;
  if (!Array.isArray(on) || !on.every(isCause))
    return 'modelRetry.on is a list of HTTP statuses from 400 to 599, "network" and "stream"';
  for (const [name, ms] of Object.entries({ baseDelayMs, maxDelayMs, totalMs }))
    if (!isWhole(ms, 0, LONGEST_MS)) return `modelRetry.${name} is a whole number of milliseconds from 0`;
  return undefined;
}

function isCause(value: unknown): value is RetryCause {
  return value === "network" || value === "stream" || isWhole(value, 400, 599);
}

function isWhole(value: unknown, least: number, most: number): boolean {
  return Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most;
}
