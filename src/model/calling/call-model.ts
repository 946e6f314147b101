import { type Clock, sleep } from "../../async/index.js";
import {
  type AttemptRecord,
  aborted,
  asTroupeError,
  checkUsage,
  definedOnly,
  type ModelEvent,
  type ModelRequest,
  type ModelResponse,
  messageOf,
  ResponseBuilder,
  TroupeError,
} from "../../kernel/index.js";
import { type Model, type ReportReplayDrops, streamCut } from "../boundary/index.js";

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
    const { usage, evidence } = this.#finish ?? {};
    return {
      attempt: this.#attempt,
      outcome,
      durationMs: this.#clock.now() - this.#started,
      outputStarted: this.outputStarted,
      ...definedOnly({ error: error && { code: error.code, message: error.message }, retry, usage, evidence }),
    };
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

/** As much of a provider's words as is worth keeping. */
const MAX_CHARS = 4_000;
const HIDDEN = "[hidden]";
const LEFT_OUT = " [… left out …] ";
/** No thread hop carries more. */
const MAX_CAUSES = 8;

/**
 * What providers and gateways echo that must not be read by anybody else: each pattern keeps what names it. Repetitions
 * in front are bounded, so that a body of any size is read in one go.
 */
const SECRETS: readonly (readonly [pattern: RegExp, kept: string])[] = [
  // https://user:password@host
  [/\b([a-z][a-z0-9+.-]{0,20}:\/\/)[^\s/@:]*:[^\s/@]*@/gi, `$1${HIDDEN}@`],
  // ?key=…, &access_token=…
  [/([?&][\w-]{0,40}(?:key|token|secret|signature|password)=)[^&\s"'#]+/gi, `$1${HIDDEN}`],
  // Authorization: Bearer …, authorization=…
  [/\b((?:proxy-)?authorization["']?\s*[:=]\s*["']?)(?:(?:bearer|basic|digest|token)\s+)?[^\s"',;}]+/gi, `$1${HIDDEN}`],
  [/\b(bearer\s+)[\w.~+/=-]{8,}/gi, `$1${HIDDEN}`],
  // x-api-key: …, "api_key": "…", set-cookie: …
  [
    /\b([\w-]{0,40}(?:api[-_]?key|access[-_]?token|secret|password|set-cookie|cookie)["']?\s*[:=]\s*["']?)[^\s"',;}]+/gi,
    `$1${HIDDEN}`,
  ],
  // Keys that can be told by their look: OpenAI, Anthropic and those alike, Google, GitHub, Hugging Face, AWS, JWT.
  [/\b(?:sk|pk|rk|gsk|xai|hf|ghp|gho|ghs|r8|nvapi)[-_][\w*.-]{8,}/g, HIDDEN],
  [/\bAIza[\w-]{20,}|\bAKIA[A-Z0-9]{12,}|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+/g, HIDDEN],
];

/** Words from outside that may be shown: without secrets, and of a long text the beginning and the end. */
export function presentable(text: string): string {
  let clean = text;
  for (const [pattern, kept] of SECRETS) clean = clean.replace(pattern, kept);
  if (clean.length <= MAX_CHARS) return clean;
  const half = (MAX_CHARS - LEFT_OUT.length) / 2;
  return clean.slice(0, Math.ceil(half)) + LEFT_OUT + clean.slice(clean.length - Math.floor(half));
}

/** The error as others may see it: itself, unless something in its words or those of its causes must not be shown. */
export function presentableError(error: TroupeError): TroupeError {
  const cause = presentableCause(error.cause);
  const message = presentable(error.message);
  if (message === error.message && cause === error.cause) return error;
  const { code, retryable, details } = error;
  return new TroupeError(code, message, { retryable, details, cause });
}

/** A cause crosses threads with its message and stack; one with something to hide is replaced by what may be shown. */
function presentableCause(cause: unknown, depth = 0): unknown {
  if (cause === undefined || cause === null) return cause;
  if (depth > MAX_CAUSES) return undefined;
  if (!(cause instanceof Error)) {
    const words = messageOf(cause);
    return presentable(words) === words ? cause : presentable(words);
  }
  const inner = presentableCause(cause.cause, depth + 1);
  const message = presentable(cause.message);
  const stack = presentable(cause.stack ?? "");
  if (message === cause.message && inner === cause.cause && stack === (cause.stack ?? "")) return cause;
  const shown = new Error(message, inner === undefined ? undefined : { cause: inner });
  shown.name = cause.name;
  shown.stack = stack;
  return shown;
}

/** Who answers when this model is asked. */
export function routeOf({ id, route = id }: Model): string {
  return route;
}
