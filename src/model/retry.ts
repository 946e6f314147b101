import { aborted, asTroupeError, type ModelEvent, type ModelRequest, type TroupeError } from "../kernel/index.js";
import { streamCut } from "./errors.js";
import type { Model } from "./model.js";
import { pause } from "./pause.js";

const BASE_DELAY_MS = 2_000;
const MAX_DELAY_MS = 10_000;
const MAX_RETRY_AFTER_MS = 60_000;

/** A failed attempt that will be repeated. */
export interface RetryNotice {
  /** The attempt that failed, from 1. */
  readonly attempt: number;
  readonly delayMs: number;
  readonly error: TroupeError;
}

export interface RetryOptions {
  readonly signal: AbortSignal;
  readonly onRetry?: (notice: RetryNotice) => void;
  /** The first attempt included. Default 4. */
  readonly maxAttempts?: number;
  /** Default: a timer that the signal wakes. */
  readonly sleep?: (ms: number, signal: AbortSignal) => Promise<void>;
}

/**
 * Streams a model call and repeats it where that is safe: nothing was shown yet, and the provider either never answered,
 * said when to come back, or broke off. A provider that answered with an error of its own (5xx) is not asked again:
 * it may have done, and billed, the work.
 *
 * @example
 * for await (const event of streamWithRetry(model, request, { signal, onRetry: (notice) => report(notice) })) {
 *   collect(event);
 * }
 */
export async function* streamWithRetry(
  model: Model,
  request: ModelRequest,
  { signal, onRetry, maxAttempts = 4, sleep = pause }: RetryOptions,
): AsyncGenerator<ModelEvent> {
  for (let attempt = 1; ; attempt++) {
    let shown = false;
    try {
      for await (const event of model.stream(request, signal)) {
        shown = true;
        yield event;
        if (event.type === "finish") return;
      }
      throw streamCut();
    } catch (thrown) {
      if (signal.aborted) throw aborted(signal);
      const error = asTroupeError(thrown, "model_failed");
      const delayMs = shown || attempt >= maxAttempts ? undefined : delayBefore(attempt, error);
      if (delayMs === undefined) throw error;
      onRetry?.({ attempt, delayMs, error });
      await sleep(delayMs, signal);
      if (signal.aborted) throw aborted(signal);
    }
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
