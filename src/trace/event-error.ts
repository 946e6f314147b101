import { type ErrorData, encodeError } from "../wire/index.js";
import type { EventError } from "./events.js";

/** As much of a text as an event has. */
const MAX_TEXT = 16 * 1024;
const MAX_CAUSES = 8;

/** Anything that was thrown, as an event has it: what it says, where, and Node's own words. Never throws. */
export function eventError(thrown: unknown): EventError {
  return shown(encodeError(thrown));
}

function shown({ name, message, stack, code, system, cause }: ErrorData): EventError {
  const own = { code: code ?? system?.code, permission: system?.permission, resource: system?.resource };
  return {
    name,
    message: bounded(message),
    ...(stack !== undefined && { stack: bounded(stack) }),
    ...textsIn(own),
    ...(cause !== undefined && { cause: shown(cause) }),
  };
}

function textsIn(own: Readonly<Record<string, unknown>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(own).flatMap(([key, value]) => (value === undefined ? [] : [[key, String(value)]])),
  );
}

function bounded(text: string): string {
  return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}…`;
}

/** The error with each of its texts changed: what must not be read by others is taken out. */
export function mapTexts(error: EventError, change: (text: string) => string, depth = 0): EventError {
  const { message, stack, resource, cause } = error;
  return {
    ...error,
    message: change(message),
    ...(stack !== undefined && { stack: change(stack) }),
    ...(resource !== undefined && { resource: change(resource) }),
    ...(cause !== undefined && depth < MAX_CAUSES && { cause: mapTexts(cause, change, depth + 1) }),
  };
}
