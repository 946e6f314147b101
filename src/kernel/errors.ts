import type { AnyErrorCode, TroupeErrorCode } from "./codes/index.js";

export interface TroupeErrorOptions {
  /** May the same call succeed when it is made again, unchanged? Default false. */
  readonly retryable?: boolean;
  /** Plain data that helps the caller act: names, limits, paths. Must survive a structured clone. */
  readonly details?: Readonly<Record<string, unknown>>;
  readonly cause?: unknown;
}

const BRAND = Symbol.for("troupe.error");

/**
 * The one error of Troupe. Branch on `code` (stable, snake_case), never on the message. docs/errors.md has the cause and
 * the cure of every code.
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
  /**
   * Also of another copy of this class: the code of a session worker is loaded without the modules that plugins import, and
   * an application may have bundled one with its plugin.
   */
  static override [Symbol.hasInstance](value: unknown): value is TroupeError {
    // biome-ignore lint/complexity/noThisInStatic: a class that extends this one inherits the method, and has its own instances.
    if (this !== TroupeError) return Function.prototype[Symbol.hasInstance].call(this, value);
    return typeof value === "object" && value !== null && BRAND in value;
  }

  override readonly name = "TroupeError";
  readonly code: TroupeErrorCode;
  readonly retryable: boolean;
  readonly details: Readonly<Record<string, unknown>>;

  constructor(code: TroupeErrorCode, message: string, options: TroupeErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.retryable = options.retryable ?? false;
    this.details = options.details ?? {};
  }

  get [BRAND](): true {
    return true;
  }
}

/**
 * Makes the errors of one code: what cannot be done, and why.
 *
 * @example
 * const invalid = refusal("invalid_prompt", "The prompt cannot be used");
 * throw invalid("slots must be an object"); // The prompt cannot be used: slots must be an object.
 */
export function refusal(code: TroupeErrorCode, what: string): (why: string) => TroupeError {
  return (why) => new TroupeError(code, `${what}: ${sentence(why)}`);
}

/**
 * An error whose code came from elsewhere: another thread, a script, a tool. TypeScript keeps authors to Troupe's codes;
 * JavaScript does not, and what it made up is kept as it is.
 */
export function foreignError(code: AnyErrorCode, message: string, options?: TroupeErrorOptions): TroupeError {
  return new TroupeError(code as TroupeErrorCode, message, options);
}

/** Words at the end of a message, perhaps somebody else's: they may have their full stop already. */
export function sentence(words: string): string {
  return /[.?]$/.test(words) ? words : `${words}.`;
}

/** Wraps whatever was thrown: a TroupeError stays itself, anything else becomes the cause of a new one. */
export function asTroupeError(thrown: unknown, code: TroupeErrorCode, message?: string): TroupeError {
  if (thrown instanceof TroupeError) return thrown;
  return new TroupeError(code, message ?? messageOf(thrown), { cause: thrown });
}

/** A stack for an error that another one explains: its own words over the frames of that one, which say where it was. */
export function framesOf({ stack = "" }: Error, { name, message }: TroupeError): string {
  const frames = stack.indexOf("\n    at ");
  return frames < 0 ? stack : `${name}: ${message}${stack.slice(frames)}`;
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
