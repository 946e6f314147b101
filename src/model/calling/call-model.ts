import { type Clock, sleep } from "../../async/index.js";
import {
  type AttemptRecord,
  aborted,
  asTroupeError,
  checkUsage,
  DEFAULT_RETRY,
  definedOnly,
  type ModelEvent,
  type ModelRequest,
  type ModelResponse,
  ResponseBuilder,
  type RetryPolicy,
  retryCause,
  retryDelay,
  type TroupeError,
} from "../../kernel/index.js";
import { type Model, type ReportReplayDrops, streamCut } from "../boundary/index.js";
import { bytesSaid, estimatedUsage } from "./estimate-usage.js";
import { untilGivenUp } from "./given-up.js";
import { streamInForm } from "./output-tool.js";
import { presentableError } from "./presentable.js";

/** A failed attempt that will be repeated. */
export interface RetryNotice {
  /** The attempt that failed, from 1. */
  readonly attempt: number;
  readonly delayMs: number;
  readonly error: TroupeError;
}

/** A model gave no answer, and the next one is asked. */
export interface FallbackNotice {
  readonly from: Model;
  readonly to: Model;
  /** What the model failed with last. */
  readonly error: TroupeError;
}

/** A model and how its failures are repeated. */
export interface Candidate {
  readonly model: Model;
  readonly retry: RetryPolicy;
}

export interface RetryOptions {
  /** Tells the model to stop. */
  readonly signal: AbortSignal;
  /**
   * Once it aborts, nothing of the model is waited for. Default: `signal`. A call that is only no longer wanted, because a
   * hook failed over it, may still say what it cost.
   */
  readonly giveUp?: AbortSignal;
  readonly clock: Clock;
  /** Default {@link DEFAULT_RETRY}. */
  readonly retry?: RetryPolicy;
  /** Who is asked next when the model has no attempts left. */
  readonly fallbacks?: readonly Candidate[];
  readonly onRetry?: (notice: RetryNotice) => void;
  readonly onFallback?: (notice: FallbackNotice) => void;
  /** Told of every attempt when it is over, and whose it was. */
  readonly onAttempt?: (record: AttemptRecord, model: Model) => void;
  /** Told with every attempt what of earlier answers it goes without. */
  readonly onReplayDropped?: ReportReplayDrops;
}

/**
 * Streams a model call. As long as nothing of an answer has come, a failure is repeated as the model's policy says, and
 * then the next model is asked. An answer whose first event came is never repeated: it was shown, and is paid for. What a
 * provider counts is checked before anybody adds it up, and what it says of a failure is passed on without secrets. Once
 * the signal aborts the call is over, also of a model that ignores it.
 *
 * @example
 * for await (const event of streamWithRetry(model, request, { signal, clock, onRetry: (notice) => report(notice) })) {
 *   collect(event);
 * }
 */
export async function* streamWithRetry(
  first: Model,
  request: ModelRequest,
  { signal, giveUp = signal, clock, retry = DEFAULT_RETRY, fallbacks = [], ...told }: RetryOptions,
): AsyncGenerator<ModelEvent> {
  const ladder = new Ladder([{ model: first, retry }, ...fallbacks], clock);
  for (let attempt = 1; ; attempt++) {
    const { model } = ladder;
    const watch = new Attempt(attempt, clock);
    let left = true;
    try {
      const events = streamInForm(model, request, signal, told.onReplayDropped);
      for await (const given of untilGivenUp(events, giveUp)) {
        const event = given.type === "finish" ? watch.counted(given, request) : given;
        watch.saw(event);
        yield event;
        if (event.type !== "finish") continue;
        left = false;
        told.onAttempt?.(watch.record("completed"), model);
        return;
      }
      throw streamCut();
    } catch (thrown) {
      left = false;
      const error = signal.aborted ? aborted(signal) : presentableError(asTroupeError(thrown, "model_failed"));
      const next = signal.aborted || watch.outputStarted ? STAYS : ladder.next(error);
      told.onAttempt?.(watch.record(signal.aborted ? "aborted" : "failed", error, next), model);
      switch (next.kind) {
        case "fails":
          throw error;
        case "fallback":
          told.onFallback?.({ from: model, to: ladder.model, error });
          break;
        case "retry":
          told.onRetry?.({ attempt, delayMs: next.delayMs, error });
          await pause(clock, next.delayMs, signal);
      }
      if (signal.aborted) throw aborted(signal);
    } finally {
      // The reader stopped in the middle: a hook ended the stream.
      if (left) told.onAttempt?.(watch.record("aborted"), model);
    }
  }
}

type Finish = Extract<ModelEvent, { type: "finish" }>;

/** What follows a failure. */
type Next = { readonly kind: "retry"; readonly delayMs: number } | { readonly kind: "fallback" | "fails" };

const STAYS: Next = { kind: "fails" };

/** One attempt while it runs. */
class Attempt {
  readonly #attempt: number;
  readonly #clock: Clock;
  readonly #started: number;
  #firstTokenMs: number | undefined;
  #finish: Finish | undefined;
  #estimated = false;
  #bytesSaid = 0;
  outputStarted = false;

  constructor(attempt: number, clock: Clock) {
    this.#attempt = attempt;
    this.#clock = clock;
    this.#started = clock.now();
  }

  saw(event: ModelEvent): void {
    // A call that is being written is none yet: an answer that breaks off there may be asked for again.
    if (event.type === "tool_input_delta") return;
    this.outputStarted = true;
    if (event.type === "finish") {
      this.#finish = event;
      return;
    }
    this.#firstTokenMs ??= this.#clock.now() - this.#started;
    this.#bytesSaid += bytesSaid(event);
  }

  /** The end of the answer with a usage that can be added up. */
  counted(finish: Finish, request: ModelRequest): Finish {
    checkUsage(finish.usage);
    if (finish.unsaid === undefined) return finish;
    const { unsaid, ...event } = finish;
    this.#estimated = true;
    return { ...event, usage: estimatedUsage(finish, request, this.#bytesSaid) };
  }

  record(outcome: AttemptRecord["outcome"], error?: TroupeError, next: Next = STAYS): AttemptRecord {
    const { usage, evidence } = this.#finish ?? {};
    return {
      attempt: this.#attempt,
      outcome,
      durationMs: this.#clock.now() - this.#started,
      outputStarted: this.outputStarted,
      ...definedOnly({
        firstTokenMs: this.#firstTokenMs,
        error: error && { code: error.code, message: error.message },
        retry: next.kind === "retry" ? { delayMs: next.delayMs, counted: true } : undefined,
        usage,
        evidence,
      }),
      ...(this.#estimated && { usageEstimated: true as const }),
    };
  }
}

/** Counts what was tried, and says who is asked next and when. The one place that decides it. */
class Ladder {
  readonly #candidates: readonly Candidate[];
  readonly #clock: Clock;
  readonly #started: number;
  #at = 0;
  #attempts = 1;

  constructor(candidates: readonly Candidate[], clock: Clock) {
    this.#candidates = candidates;
    this.#clock = clock;
    this.#started = clock.now();
  }

  get model(): Model {
    return this.#candidate.model;
  }

  get #candidate(): Candidate {
    return this.#candidates[this.#at] as Candidate; // there is always one: `next` stops at the last
  }

  next(error: TroupeError): Next {
    const { retryAfterMs } = error.details;
    const delayMs = retryDelay(
      this.#candidate.retry,
      {
        attempts: this.#attempts,
        elapsedMs: this.#clock.now() - this.#started,
        cause: retryCause(error),
        retryAfterMs: typeof retryAfterMs === "number" ? retryAfterMs : undefined,
      },
      this.#clock.random(),
    );
    if (delayMs !== undefined) {
      this.#attempts++;
      return { kind: "retry", delayMs };
    }
    if (this.#at + 1 >= this.#candidates.length || !isOfProvider(error)) return STAYS;
    this.#at++;
    this.#attempts = 1;
    return { kind: "fallback" };
  }
}

/** Another model may do better. What the runtime itself refuses it would refuse again. */
function isOfProvider({ code }: TroupeError): boolean {
  return code.startsWith("model_") || code === "context_overflow";
}

/** A model request of which only what is asked must be given: by default the first step, no history, no tools. */
export type CompletionRequest = Omit<ModelRequest, OptionalFields> & Partial<Pick<ModelRequest, OptionalFields>>;
type OptionalFields = "step" | "history" | "tools";

/**
 * One whole completion, repeated where `streamWithRetry` repeats. One that broke off in the middle fails, as a turn's
 * answer does: what had come of it is paid for, and another attempt would be paid for again.
 *
 * @example
 * const { parts, usage } = await completeOnce(
 *   model,
 *   { sessionId, turnId, system: "Name the topic.", turn: messages, direct: { source: "titles" } },
 *   { signal, clock },
 * );
 */
export async function completeOnce(
  model: Model,
  request: CompletionRequest,
  options: RetryOptions,
): Promise<ModelResponse> {
  const whole: ModelRequest = { step: 0, history: [], tools: [], ...request };
  const response = new ResponseBuilder();
  for await (const event of streamWithRetry(model, whole, options)) response.add(event);
  return response.build();
}

/** Waits, unless the signal says otherwise: then rejects at once. */
export async function pause(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  try {
    await sleep(clock, ms, { signal });
  } catch {
    throw aborted(signal);
  }
}

/** Who answers when this model is asked. */
export function routeOf({ id, route = id }: Model): string {
  return route;
}
