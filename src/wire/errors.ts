import { foreignError, messageOf, TroupeError, type TroupeErrorOptions, wireCorrupt } from "../kernel/index.js";

/** An error as data: what every thread hop carries instead of an Error object. */
export interface ErrorData {
  readonly name: string;
  readonly message: string;
  readonly stack?: string;
  /** Present when it was a TroupeError. */
  readonly code?: string;
  readonly retryable?: boolean;
  readonly details?: Readonly<Record<string, unknown>>;
  /** What Node says of an error of its own: `code`, `permission`, `resource` and the like. */
  readonly system?: Readonly<Record<string, string | number>>;
  readonly cause?: ErrorData;
}

/** Fields of Node's own errors that somebody can act on. */
const SYSTEM_FIELDS = ["code", "errno", "syscall", "path", "dest", "permission", "resource"] as const;

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
  if (!(thrown instanceof Error)) return { name: "Thrown", message: bounded(messageOf(thrown)) };
  const data: { -readonly [K in keyof ErrorData]: ErrorData[K] } = {
    name: String(thrown.name).slice(0, MAX_CODE),
    message: bounded(String(thrown.message)),
  };
  if (typeof thrown.stack === "string") data.stack = bounded(thrown.stack);
  if (thrown instanceof TroupeError) {
    data.code = thrown.code;
    data.retryable = thrown.retryable;
    data.details = cloneable(thrown.details);
  } else {
    const system = systemFields(thrown);
    if (system !== undefined) data.system = system;
  }
  if (thrown.cause !== undefined && depth < MAX_CAUSES) data.cause = encodeError(thrown.cause, depth + 1);
  return data;
}

/** Undefined when there are none, as with most errors. */
function systemFields(thrown: object): Record<string, string | number> | undefined {
  let found: Record<string, string | number> | undefined;
  for (const field of SYSTEM_FIELDS) {
    const value = (thrown as Readonly<Record<string, unknown>>)[field];
    if (typeof value !== "string" && typeof value !== "number") continue;
    found ??= {};
    found[field] = typeof value === "string" ? bounded(value) : value;
  }
  return found;
}

/**
 * The error again: a TroupeError keeps code, retryable, details and cause; any other keeps name, message, stack and what
 * Node says of it. What comes from a plugin's thread may be anything: whatever has not the shape of an error becomes one
 * that says so.
 */
export function decodeError(data: unknown, depth = 0): Error {
  if (typeof data !== "object" || data === null) return unreadable();
  const { name, message, stack, code, retryable, details, system, cause: inner } = data as Record<string, unknown>;
  if (typeof name !== "string" || typeof message !== "string") return unreadable();
  const cause = inner === undefined || depth >= MAX_CAUSES ? undefined : decodeError(inner, depth + 1);
  let error: Error;
  if (typeof code === "string") {
    error = foreignError(code.slice(0, MAX_CODE), bounded(message), {
      retryable: retryable === true,
      details: typeof details === "object" && details !== null ? (details as Record<string, unknown>) : {},
      cause,
    });
  } else {
    error = new Error(bounded(message), cause === undefined ? undefined : { cause });
    error.name = name.slice(0, MAX_CODE);
    if (typeof system === "object" && system !== null) Object.assign(error, systemFields(system));
  }
  // The stack of the thread that threw is the one that helps.
  if (typeof stack === "string") error.stack = bounded(stack);
  return error;
}

const MAX_CODE = 200;
const MAX_TEXT = 64 * 1024;

function bounded(text: string): string {
  return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}… (${text.length - MAX_TEXT} characters left out)`;
}

function unreadable(): Error {
  return wireCorrupt("The other thread", "it failed and said so in no known form");
}

/** The error of a call whose thread ended; retryable unless it may have done its work. */
export function workerLost(
  name: string,
  how = "is gone; the call was not answered",
  options: TroupeErrorOptions = {},
): TroupeError {
  return new TroupeError("worker_lost", `${name} ${how}.`, { retryable: true, ...options });
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
