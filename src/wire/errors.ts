import { messageOf, TroupeError } from "../kernel/index.js";

/** An error as data: what every thread hop carries instead of an Error object. */
export interface ErrorData {
  readonly name: string;
  readonly message: string;
  readonly stack?: string;
  /** Present when it was a TroupeError. */
  readonly code?: string;
  readonly retryable?: boolean;
  readonly details?: Readonly<Record<string, unknown>>;
  readonly cause?: ErrorData;
}

const MAX_CAUSES = 8;

/** Turns anything that can be thrown into cloneable data; never throws, whatever getters and proxies do. */
export function encodeError(thrown: unknown, depth = 0): ErrorData {
  try {
    return read(thrown, depth);
  } catch {
    return { name: "Thrown", message: "Something was thrown that cannot be read." };
  }
}

function read(thrown: unknown, depth: number): ErrorData {
  if (!(thrown instanceof Error)) return { name: "Thrown", message: messageOf(thrown) };
  const data: { -readonly [K in keyof ErrorData]: ErrorData[K] } = {
    name: String(thrown.name),
    message: String(thrown.message),
  };
  if (typeof thrown.stack === "string") data.stack = thrown.stack;
  if (thrown instanceof TroupeError) {
    data.code = thrown.code;
    data.retryable = thrown.retryable;
    data.details = cloneable(thrown.details);
  }
  if (thrown.cause !== undefined && depth < MAX_CAUSES) data.cause = encodeError(thrown.cause, depth + 1);
  return data;
}

/** The error again: a TroupeError keeps code, retryable, details and cause; any other keeps name, message and stack. */
export function decodeError(data: ErrorData): Error {
  const cause = data.cause === undefined ? undefined : decodeError(data.cause);
  let error: Error;
  if (data.code !== undefined) {
    error = new TroupeError(data.code, data.message, {
      retryable: data.retryable ?? false,
      details: data.details ?? {},
      cause,
    });
  } else {
    error = new Error(data.message, cause === undefined ? undefined : { cause });
    error.name = data.name;
  }
  // The stack of the thread that threw is the one that helps.
  if (data.stack !== undefined) error.stack = data.stack;
  return error;
}

export function workerLost(name: string, cause?: unknown): TroupeError {
  return new TroupeError("worker_lost", `${name} is gone; the call was not answered.`, { retryable: true, cause });
}

function cloneable(details: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  try {
    return structuredClone(details);
  } catch {
    return Object.fromEntries(Object.entries(details).map(([key, value]) => [key, cloneOrSay(value)]));
  }
}

function cloneOrSay(value: unknown): unknown {
  try {
    return structuredClone(value);
  } catch {
    return messageOf(value);
  }
}
