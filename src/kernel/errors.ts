export interface TroupeErrorOptions {
  /** May the same call succeed when it is made again, unchanged? Default false. */
  readonly retryable?: boolean;
  /** Plain data that helps the caller act: names, limits, paths. Must survive a structured clone. */
  readonly details?: Readonly<Record<string, unknown>>;
  readonly cause?: unknown;
}

/**
 * The one error of Troupe. Branch on `code` (stable, snake_case), never on the message.
 *
 * @example
 * try {
 *   await session.turn("hello");
 * } catch (error) {
 *   if (error instanceof TroupeError && error.code === "mailbox_full") await backOff();
 *   else throw error;
 * }
 */
export class TroupeError extends Error {
  override readonly name = "TroupeError";
  readonly code: string;
  readonly retryable: boolean;
  readonly details: Readonly<Record<string, unknown>>;

  constructor(code: string, message: string, options: TroupeErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.retryable = options.retryable ?? false;
    this.details = options.details ?? {};
  }
}

/**
 * Makes the errors of one code: what cannot be done, and why.
 *
 * @example
 * const invalid = refusal("invalid_prompt", "The prompt cannot be used");
 * throw invalid("slots must be an object"); // The prompt cannot be used: slots must be an object.
 */
export function refusal(code: string, what: string): (why: string) => TroupeError {
  return (why) => new TroupeError(code, `${what}: ${why}.`);
}

/** Wraps whatever was thrown: a TroupeError stays itself, anything else becomes the cause of a new one. */
export function asTroupeError(thrown: unknown, code: string, message?: string): TroupeError {
  if (thrown instanceof TroupeError) return thrown;
  return new TroupeError(code, message ?? messageOf(thrown), { cause: thrown });
}

/** The message of anything that can be thrown; never throws itself. */
export function messageOf(thrown: unknown): string {
  if (thrown instanceof Error) return thrown.message;
  if (typeof thrown === "string") return thrown;
  try {
    return JSON.stringify(thrown) ?? String(thrown);
  } catch {
    return Object.prototype.toString.call(thrown);
  }
}

/** The error of an aborted call. A reason that is itself a TroupeError is kept. */
export function aborted({ reason }: AbortSignal): TroupeError {
  if (reason instanceof TroupeError) return reason;
  return new TroupeError("aborted", "The call was aborted.", { cause: reason });
}
