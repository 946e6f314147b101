import { type FieldsOf, invalidOptions } from "../../kernel/index.js";
import type { MessageRange } from "../../session/index.js";
import { checkCallOptions } from "../options/index.js";
import type { OperationOptions } from "./plugin-remote.js";

export interface AwaitTaskOptions {
  /** The task as it is after so long, in milliseconds. Default: when it has ended. */
  readonly waitMs?: number;
  readonly signal?: AbortSignal | undefined;
}

/** What the options of a session's calls may be: a misspelt one would do nothing, and nobody would be told. */
const RANGE: FieldsOf<MessageRange> = { from: true, to: true, frameId: true, records: true };
const OPERATION: FieldsOf<OperationOptions> = { sessionId: true, key: true, signal: true };
const AWAIT_TASK: FieldsOf<AwaitTaskOptions> = { waitMs: true, signal: true };

export function messageRange(given: MessageRange): MessageRange {
  checkCallOptions(given, RANGE, "messages");
  return given;
}

export function operationOptions(given: OperationOptions): OperationOptions {
  checkCallOptions(given, OPERATION, "an operation");
  return given;
}

export function awaitTaskOptions(given: AwaitTaskOptions): AwaitTaskOptions {
  checkCallOptions(given, AWAIT_TASK, "awaitTask");
  const { waitMs } = given;
  if (waitMs !== undefined && !(Number.isSafeInteger(waitMs) && waitMs >= 0))
    throw invalidOptions(`waitMs is a whole number of milliseconds from 0, not ${JSON.stringify(waitMs)}`);
  return given;
}

export function compactOptions<O extends { readonly instructions?: string | null }>(given: O): O {
  checkCallOptions(given, { instructions: true }, "compact");
  const { instructions } = given;
  if (instructions != null && typeof instructions !== "string")
    throw invalidOptions("the instructions of compact are a text");
  return given;
}
