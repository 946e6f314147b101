import { type Clock, ignore, onAbort, sleep } from "../../async/index.js";
import {
  type AttemptRecord,
  aborted,
  asTroupeError,
  DEFAULT_RETRY,
  type ModelEvent,
  type ModelRequest,
  type ModelResponse,
  ResponseBuilder,
  type RetryPolicy,
  type TroupeError,
} from "../../kernel/index.js";
import { type Model, type ReportReplayDrops, streamCut } from "../boundary/index.js";
import { Attempt, type Candidate, Ladder, STAYS } from "./attempts.js";
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
export function streamWithRetry(
  first: Model,
  request: ModelRequest,
  options: RetryOptions,
): AsyncIterableIterator<ModelEvent, undefined> {
  return new RetriedStream(first, request, options);
}

type Given = IteratorResult<ModelEvent, undefined>;

const DONE: Given = { done: true, value: undefined };

/**
 * The attempts of one call, read one after another. By hand and not as a generator over another one: every token of every
 * answer passes here, and costs one promise beside the model's own. Its reader awaits one event before it asks for the next.
 */
class RetriedStream implements AsyncIterableIterator<ModelEvent, undefined> {
  readonly #request: ModelRequest;
  readonly #options: RetryOptions;
  readonly #giveUp: AbortSignal;
  readonly #ladder: Ladder;
  #attempts = 0;
  #attempt: Attempt | undefined;
  /** Of the attempt that is read. */
  #events: AsyncIterator<ModelEvent> | undefined;
  /** Nothing more comes of it. */
  #isOver = false;
  /** The model's next event is waited for: what comes later, an event or a failure, reaches nobody. */
  #waits = false;
  /** Of the reader that waits. */
  #resolve: (given: Given) => void = ignore;
  #reject: (error: unknown) => void = ignore;
  /** Who waits for a stream that was told to end waits no longer. */
  #onEnded: () => void = ignore;
  /** Takes the one listener off the signal. */
  #letGo: () => void = ignore;

  constructor(first: Model, request: ModelRequest, options: RetryOptions) {
    const { signal, giveUp = signal, clock, retry = DEFAULT_RETRY, fallbacks = [] } = options;
    this.#request = request;
    this.#options = options;
    this.#giveUp = giveUp;
    this.#ladder = new Ladder([{ model: first, retry }, ...fallbacks], clock);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<Given> {
    return this.#isOver ? Promise.resolve(DONE) : new Promise(this.#ask);
  }

  /** The reader stopped in the middle: a hook ended the stream. */
  return(): Promise<Given> {
    const attempt = this.#isOver ? undefined : this.#attempt;
    this.#isOver = true;
    if (attempt === undefined) return Promise.resolve(DONE);
    return new Promise((resolve) => {
      this.#untilEnded(() => {
        this.#letGo();
        this.#options.onAttempt?.(attempt.record("aborted"), this.#ladder.model);
        resolve(DONE);
      });
    });
  }

  readonly #ask = (resolve: (given: Given) => void, reject: (error: unknown) => void): void => {
    this.#resolve = resolve;
    this.#reject = reject;
    if (this.#attempt?.isFinished !== true) {
      this.#read();
      return;
    }
    this.#isOver = true;
    this.#options.onAttempt?.(this.#attempt.record("completed"), this.#ladder.model);
    this.#untilEnded(() => {
      this.#letGo();
      resolve(DONE);
    });
  };

  #read(): void {
    try {
      const events = this.#events ?? this.#begin();
      if (this.#giveUp.aborted) {
        this.#abandon();
        return;
      }
      this.#waits = true;
      events.next().then(this.#came, this.#broke);
    } catch (error) {
      this.#waits = false;
      void this.#goOn(error);
    }
  }

  #begin(): AsyncIterator<ModelEvent> {
    const { signal, clock, onReplayDropped } = this.#options;
    this.#attempt = new Attempt(++this.#attempts, clock);
    this.#events = streamInForm(this.#ladder.model, this.#request, signal, onReplayDropped)[Symbol.asyncIterator]();
    if (this.#attempts === 1)
      this.#letGo = onAbort(this.#giveUp, () => (this.#waits ? this.#abandon() : this.#onEnded()));
    return this.#events;
  }

  readonly #came = (result: IteratorResult<ModelEvent>): void => {
    if (!this.#waits) return;
    this.#waits = false;
    if (result.done === true) {
      void this.#goOn(streamCut());
      return;
    }
    try {
      const value = (this.#attempt as Attempt).saw(result.value, this.#request); // begun: an event of it came
      this.#resolve({ done: false, value });
    } catch (error) {
      this.#untilEnded(() => void this.#goOn(error));
    }
  };

  readonly #broke = (error: unknown): void => {
    if (!this.#waits) return;
    this.#waits = false;
    void this.#goOn(error);
  };

  /** One that ignores its signal is told to end, and nothing of it is waited for. */
  #abandon(): void {
    this.#waits = false;
    this.#end().catch(ignore);
    void this.#goOn(aborted(this.#giveUp));
  }

  /** Repeats what failed, asks the next model, or tells the reader. Never rejects. */
  async #goOn(thrown: unknown): Promise<void> {
    const { signal, clock, onAttempt, onFallback, onRetry } = this.#options;
    const ladder = this.#ladder;
    const { model } = ladder;
    const attempt = this.#attempt as Attempt; // begun: it failed
    this.#events = undefined;
    try {
      const error = signal.aborted ? aborted(signal) : presentableError(asTroupeError(thrown, "model_failed"));
      const next = signal.aborted || attempt.outputStarted ? STAYS : ladder.next(error);
      onAttempt?.(attempt.record(signal.aborted ? "aborted" : "failed", error, next), model);
      switch (next.kind) {
        case "fails":
          throw error;
        case "fallback":
          onFallback?.({ from: model, to: ladder.model, error });
          break;
        case "retry":
          onRetry?.({ attempt: this.#attempts, delayMs: next.delayMs, error });
          await pause(clock, next.delayMs, signal);
      }
      if (signal.aborted) throw aborted(signal);
    } catch (error) {
      this.#isOver = true;
      this.#letGo();
      this.#reject(error);
      return;
    }
    this.#read();
  }

  /** Tells the stream to end, and waits for that as long as nobody gives it up. What goes wrong there changes nothing. */
  #untilEnded(then: () => void): void {
    let called = false;
    const done = (): void => {
      if (called) return;
      called = true;
      then();
    };
    this.#onEnded = done;
    this.#end().then(done, done);
    if (this.#giveUp.aborted) done();
  }

  #end(): Promise<unknown> {
    try {
      return Promise.resolve(this.#events?.return?.());
    } catch (error) {
      return Promise.reject(error);
    }
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

/** Who answers when this model is asked. */
export function routeOf({ id, route = id }: Model): string {
  return route;
}
