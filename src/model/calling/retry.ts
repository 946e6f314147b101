import type { Clock } from "../../async/index.js";
import {
  type AttemptRecord,
  aborted,
  asTroupeError,
  checkUsage,
  type ModelEvent,
  type ModelRequest,
  type TroupeError,
} from "../../kernel/index.js";
import type { Model, ReportReplayDrops } from "../boundary/index.js";
import { streamCut } from "../boundary/index.js";
import { pause } from "./pause.js";
import { presentableError } from "./presentable.js";

const BASE_DELAY_MS = 2_000;
const MAX_DELAY_MS = 10_000;
const MAX_RETRY_AFTER_MS = 60_000;
/** Waiting because the provider asked for it costs no attempt: this often, this long altogether, from this length on. */
const COURTESY = { calls: 8, totalMs: 90_000, fromMs: 1_000 };

/** A failed attempt that will be repeated. */
export interface RetryNotice {
  /** The attempt that failed, from 1. */
  readonly attempt: number;
  readonly delayMs: number;
  readonly error: TroupeError;
}

export interface RetryOptions {
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly onRetry?: (notice: RetryNotice) => void;
  /** Told of every attempt when it is over. */
  readonly onAttempt?: (record: AttemptRecord) => void;
  /** Told with every attempt what of earlier answers it goes without. */
  readonly onReplayDropped?: ReportReplayDrops;
  /** The first attempt included. Default 4. */
  readonly maxAttempts?: number;
}

/**
 * Streams a model call and repeats it where that is safe: nothing was shown yet, and the provider either never answered,
 * said when to come back, or broke off. A provider that answered with an error of its own (5xx) is not asked again:
 * it may have done, and billed, the work. What a provider counts is checked before anybody adds it up, and what it says of
 * a failure is passed on without secrets.
 *
 * @example
 * for await (const event of streamWithRetry(model, request, { signal, clock, onRetry: (notice) => report(notice) })) {
 *   collect(event);
 * }
 */
export async function* streamWithRetry(
  model: Model,
  request: ModelRequest,
  { signal, clock, onRetry, onAttempt, onReplayDropped, maxAttempts = 4 }: RetryOptions,
): AsyncGenerator<ModelEvent> {
  const ladder = new Ladder(maxAttempts);
  for (let attempt = 1; ; attempt++) {
    const watch = new Attempt(attempt, clock);
    let left = true;
    try {
      for await (const event of model.stream(request, signal, onReplayDropped)) {
        if (event.type === "finish") checkUsage(event.usage);
        watch.saw(event);
        yield event;
        if (event.type !== "finish") continue;
        left = false;
        onAttempt?.(watch.record("completed"));
        return;
      }
      throw streamCut();
    } catch (thrown) {
      left = false;
      const error = signal.aborted ? aborted(signal) : presentableError(asTroupeError(thrown, "model_failed"));
      const retry = signal.aborted || watch.outputStarted ? undefined : ladder.next(error);
      onAttempt?.(watch.record(signal.aborted ? "aborted" : "failed", error, retry));
      if (retry === undefined) throw error;
      const { delayMs } = retry;
      onRetry?.({ attempt, delayMs, error });
      await pause(clock, delayMs, signal);
      if (signal.aborted) throw aborted(signal);
    } finally {
      // The reader stopped in the middle: a hook ended the stream.
      if (left) onAttempt?.(watch.record("aborted"));
    }
  }
}

type Retry = NonNullable<AttemptRecord["retry"]>;

/** One attempt while it runs. */
class Attempt {
  readonly #attempt: number;
  readonly #clock: Clock;
  readonly #started: number;
  #finish: Extract<ModelEvent, { type: "finish" }> | undefined;
  outputStarted = false;

  constructor(attempt: number, clock: Clock) {
    this.#attempt = attempt;
    this.#clock = clock;
    this.#started = clock.now();
  }

  saw(event: ModelEvent): void {
    this.outputStarted = true;
    if (event.type === "finish") this.#finish = event;
  }

  record(outcome: AttemptRecord["outcome"], error?: TroupeError, retry?: Retry): AttemptRecord {
    const record: { -readonly [K in keyof AttemptRecord]: AttemptRecord[K] } = {
      attempt: this.#attempt,
      outcome,
      durationMs: this.#clock.now() - this.#started,
      outputStarted: this.outputStarted,
    };
    const { usage, evidence } = this.#finish ?? {};
    if (error !== undefined) record.error = { code: error.code, message: error.message };
    if (retry !== undefined) record.retry = retry;
    if (usage !== undefined) record.usage = usage;
    if (evidence !== undefined) record.evidence = evidence;
    return record;
  }
}

/** Counts what was tried, and says whether and when to try again. */
class Ladder {
  readonly #maxAttempts: number;
  #counted = 1;
  #courtesies = 0;
  #courtesyMs = 0;

  constructor(maxAttempts: number) {
    this.#maxAttempts = maxAttempts;
  }

  /** What to do after a failure; undefined when it must not be repeated. */
  next(error: TroupeError): Retry | undefined {
    const delayMs = delayBefore(this.#counted, error);
    if (delayMs === undefined) return undefined;
    if (this.#isCourtesy(error, delayMs)) {
      this.#courtesies++;
      this.#courtesyMs += delayMs;
      return { delayMs, counted: false };
    }
    if (this.#counted >= this.#maxAttempts) return undefined;
    this.#counted++;
    return { delayMs, counted: true };
  }

  #isCourtesy({ code }: TroupeError, delayMs: number): boolean {
    return (
      code === "model_rate_limited" &&
      delayMs >= COURTESY.fromMs &&
      this.#courtesies < COURTESY.calls &&
      this.#courtesyMs + delayMs <= COURTESY.totalMs
    );
  }
}

/** How long to wait after this failure; undefined when it must not be repeated. */
function delayBefore(attempt: number, { code, details }: TroupeError): number | undefined {
  switch (code) {
    case "model_rate_limited":
      return typeof details.retryAfterMs === "number" ? Math.min(details.retryAfterMs, MAX_RETRY_AFTER_MS) : undefined;
    case "model_unreachable":
    case "model_stream_cut":
    case "model_stream_malformed":
      return Math.min(BASE_DELAY_MS * 2 ** (attempt - 1), MAX_DELAY_MS);
    default:
      return undefined;
  }
}
