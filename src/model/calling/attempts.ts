import type { Clock } from "../../async/index.js";
import {
  type AttemptRecord,
  checkUsage,
  type ModelEvent,
  type ModelRequest,
  type RetryPolicy,
  retryCause,
  retryDelay,
  type TroupeError,
} from "../../kernel/index.js";
import type { Model } from "../boundary/index.js";
import { bytesSaid, estimatedUsage } from "./estimate-usage.js";

/** A model and how its failures are repeated. */
export interface Candidate {
  readonly model: Model;
  readonly retry: RetryPolicy;
}

type Finish = Extract<ModelEvent, { type: "finish" }>;

/** What follows a failure. */
type Next = { readonly kind: "retry"; readonly delayMs: number } | { readonly kind: "fallback" | "fails" };

export const STAYS: Next = { kind: "fails" };

/** One attempt while it runs. */
export class Attempt {
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

  /** Notes an event. The end of the answer comes back with a usage that can be added up. */
  saw(event: ModelEvent, request: ModelRequest): ModelEvent {
    // A call that is being written is none yet: an answer that breaks off there may be asked for again.
    if (event.type === "tool_input_delta") return event;
    if (event.type === "finish") {
      const counted = this.#counted(event, request);
      this.outputStarted = true;
      this.#finish = counted;
      return counted;
    }
    this.outputStarted = true;
    this.#firstTokenMs ??= this.#clock.now() - this.#started;
    this.#bytesSaid += bytesSaid(event);
    return event;
  }

  get isFinished(): boolean {
    return this.#finish !== undefined;
  }

  #counted(finish: Finish, request: ModelRequest): Finish {
    checkUsage(finish.usage);
    if (finish.unsaid === undefined) return finish;
    const { unsaid, ...event } = finish;
    this.#estimated = true;
    return { ...event, usage: estimatedUsage(finish, request, this.#bytesSaid) };
  }

  record(outcome: AttemptRecord["outcome"], error?: TroupeError, next: Next = STAYS): AttemptRecord {
    const record: { -readonly [F in keyof AttemptRecord]: AttemptRecord[F] } = {
      attempt: this.#attempt,
      outcome,
      durationMs: this.#clock.now() - this.#started,
      outputStarted: this.outputStarted,
    };
    const { usage, evidence } = this.#finish ?? {};
    if (this.#firstTokenMs !== undefined) record.firstTokenMs = this.#firstTokenMs;
    if (error !== undefined) record.error = { code: error.code, message: error.message };
    if (next.kind === "retry") record.retry = { delayMs: next.delayMs, counted: true };
    if (usage !== undefined) record.usage = usage;
    if (evidence !== undefined) record.evidence = evidence;
    if (this.#estimated) record.usageEstimated = true;
    return record;
  }
}

/** Counts what was tried, and says who is asked next and when. The one place that decides it. */
export class Ladder {
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
