import type { Clock } from "../../async/index.js";
import { isRecord, messageOf, TroupeError, type TroupeErrorCode } from "../../kernel/index.js";

/** Did the provider answer before it failed? Decides between `model_unreachable` and `model_stream_cut`. */
export type Moment = "opening" | "streaming";

const OVERFLOW =
  /context.?(length|window)|maximum context|(prompt|input|request) is too long|too many (input )?tokens|input token count/i;
const OVERFLOW_CODE = "context_length_exceeded";
const THROTTLE = /rate.?limit|quota|per.?(minute|day)/i;
const TRANSPORT_CODE = /^(ECONN|ENOTFOUND|EAI_|ETIMEDOUT|EPIPE|EHOST|ENET|UND_ERR_)/;
const MALFORMED_NAMES = new Set(["AI_JSONParseError", "AI_TypeValidationError", "AI_InvalidResponseDataError"]);

/** What providers call their errors when they arrive inside a stream, where no HTTP status says it. */
const STATUS_OF_TYPE: Readonly<Record<string, number>> = {
  rate_limit_error: 429,
  rate_limit_exceeded: 429,
  overloaded_error: 529,
  api_error: 500,
  server_error: 500,
  timeout_error: 504,
  authentication_error: 401,
  invalid_api_key: 401,
  permission_error: 403,
  invalid_request_error: 400,
  [OVERFLOW_CODE]: 400,
};

/** An AI SDK error, read by its shape: several copies of the SDK may be loaded, so there is no `instanceof`. */
type Failure = Readonly<Record<string, unknown>>;

/** The typed form of whatever an AI SDK model threw or put into its stream; the original stays as the cause. */
export function modelError(
  thrown: unknown,
  { moment, clock }: { readonly moment: Moment; readonly clock: Clock },
): TroupeError {
  if (thrown instanceof TroupeError) return thrown;
  const failure: Failure = isRecord(thrown) ? thrown : {};
  const status = statusOf(failure);

  if (isMalformed(failure)) return malformed(wordsOf(thrown), thrown);
  if (failure.name === "AI_LoadAPIKeyError") {
    return new TroupeError("model_auth_failed", `The model has no API key: ${wordsOf(thrown)}`, { cause: thrown });
  }
  if (status !== undefined && status >= 300) return refused(status, failure, clock);
  if (causes(failure).some(isMalformed)) return malformed(wordsOf(thrown), thrown);
  const answered = moment === "streaming" || status !== undefined;
  if (isCut(failure) || (answered && isTransport(failure))) return streamCut(thrown);
  if (isTransport(failure)) {
    return new TroupeError("model_unreachable", `The model could not be reached: ${wordsOf(thrown)}`, {
      retryable: true,
      cause: thrown,
    });
  }
  return new TroupeError("model_failed", `The model call failed: ${wordsOf(thrown)}`, { cause: thrown });
}

/** The stream ended before the model said it was finished. */
export function streamCut(cause?: unknown): TroupeError {
  const why = cause === undefined ? "" : `: ${wordsOf(cause)}`;
  return new TroupeError("model_stream_cut", `The model's stream ended before it was finished${why}`, {
    retryable: true,
    cause,
  });
}

/** What an HTTP status of a provider means to a caller. */
export function codeOfStatus(status: number): { readonly code: TroupeErrorCode; readonly retryable: boolean } {
  if (status === 429) return { code: "model_rate_limited", retryable: true };
  // 408 and 425: it was too early or too late for the server, and nothing is wrong with the request.
  if (status >= 500 || status === 408 || status === 425) return { code: "model_server_error", retryable: true };
  if (status === 401 || status === 403) return { code: "model_auth_failed", retryable: false };
  if (status >= 400) return { code: "model_request_invalid", retryable: status === 409 };
  return { code: "model_failed", retryable: false };
}

/** How long the provider asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date. */
export function retryAfterMs(headers: Readonly<Record<string, string>>, now: number): number | undefined {
  const header = (name: string) =>
    Object.entries(headers)
      .find(([key]) => key.toLowerCase() === name)?.[1]
      .trim();
  const exact = header("retry-after-ms");
  if (exact && Number(exact) >= 0) return Number(exact);
  const value = header("retry-after");
  if (!value) return undefined;
  if (Number(value) >= 0) return Number(value) * 1000;
  const date = Date.parse(value);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}

function refused(status: number, failure: Failure, clock: Clock): TroupeError {
  const { code, retryable } = codeOfStatus(status);
  const overflows = code === "model_request_invalid" && isOverflow(failure);
  const wait = isHeaders(failure.responseHeaders) ? retryAfterMs(failure.responseHeaders, clock.wallNow()) : undefined;
  return new TroupeError(
    overflows ? "context_overflow" : code,
    `The model's provider answered ${status}: ${wordsOf(failure)}`,
    { retryable, cause: failure, details: { status, ...(wait !== undefined && { retryAfterMs: wait }) } },
  );
}

/**
 * Is the prompt too long? Providers agree on no status for it. A code of their own decides when they give one; only
 * without it their words are read, and of those only the message: a body may repeat what the user wrote.
 */
function isOverflow(failure: Failure): boolean {
  const { error } = (failure.data ?? {}) as { readonly error?: Failure };
  const code = [error?.code, failure.code].find(isString);
  if (code !== undefined) return code === OVERFLOW_CODE;
  const message = [error?.message, failure.message].find((words) => isString(words) && words !== "");
  const said = isString(message) ? message : isString(failure.responseBody) ? failure.responseBody : "";
  return OVERFLOW.test(said) && !THROTTLE.test(said);
}

export function malformed(why: string, cause?: unknown): TroupeError {
  return new TroupeError("model_stream_malformed", `The model's stream could not be read: ${why}.`, {
    retryable: true,
    cause,
  });
}

function statusOf({ statusCode, code, type }: Failure): number | undefined {
  if (typeof statusCode === "number") return statusCode;
  if (typeof code === "number" && code >= 400) return code;
  for (const name of [code, type])
    if (isString(name) && Object.hasOwn(STATUS_OF_TYPE, name)) return STATUS_OF_TYPE[name];
  return undefined;
}

function isMalformed(failure: Failure): boolean {
  if (isCut(failure)) return false;
  if (isString(failure.name) && MALFORMED_NAMES.has(failure.name)) return true;
  return failure.statusCode === 500 && isUnreadableFirstEvent(failure.responseBody);
}

/** The Anthropic provider reports an unreadable first event of a good response as a status 500 holding the parse error. */
function isUnreadableFirstEvent(body: unknown): boolean {
  if (!isString(body)) return false;
  try {
    const { name } = JSON.parse(body) as { name?: unknown };
    return isString(name) && MALFORMED_NAMES.has(name);
  } catch {
    return false;
  }
}

/** The OpenAI-compatible provider names a missing finish reason as invalid data, without any data. */
function isCut({ name, data }: Failure): boolean {
  return name === "AI_EmptyResponseBodyError" || (name === "AI_InvalidResponseDataError" && data === undefined);
}

/** No HTTP answer, or an answer that broke off. Our own abort never gets here; a provider's own timeout does. */
function isTransport(failure: Failure): boolean {
  if (failure.name === "AI_APICallError") return true;
  return [failure, ...causes(failure)].some(
    ({ name, code }) =>
      name === "AbortError" || name === "TimeoutError" || (isString(code) && TRANSPORT_CODE.test(code)),
  );
}

function causes(failure: Failure): Failure[] {
  const found: Failure[] = [];
  for (let { cause } = failure; isRecord(cause) && found.length < 8; ) {
    found.push(cause);
    ({ cause } = cause);
  }
  return found;
}

function wordsOf(thrown: unknown): string {
  const { message } = (thrown ?? {}) as Failure;
  return isString(message) && message !== "" ? message : messageOf(thrown);
}

function isString(value: unknown): value is string {
  return typeof value === "string";
}

function isHeaders(value: unknown): value is Record<string, string> {
  return typeof value === "object" && value !== null && Object.values(value).every(isString);
}
