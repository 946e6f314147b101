import type { TroupeErrorOptions } from "./errors.js";
import { refusal, sentence, TroupeError } from "./errors.js";
import { knownInstead } from "./suggest.js";

/** Errors that several rooms make: a code that is used in two places has one factory, and so one way to say it. */

/**
 * Reads the whole numbers of a request, and refuses what is none within its bounds. Without `otherwise` one must be given.
 *
 * @example
 * const count = countsOr(invalidProcess);
 * count("waitMs", request.waitMs, { least: 0, most: 60_000, otherwise: 0 });
 */
export function countsOr(refuse: (why: string) => TroupeError) {
  return (
    name: string,
    given: unknown,
    { least, most, otherwise }: { readonly least: number; readonly most: number; readonly otherwise?: number },
  ): number => {
    if (given === undefined && otherwise !== undefined) return otherwise;
    if (Number.isSafeInteger(given) && (given as number) >= least && (given as number) <= most) return given as number;
    throw refuse(`${name} is a whole number from ${least} to ${most}, not ${String(given)}`);
  };
}

export const invalidTurnInput = refusal("invalid_turn_input", "The turn's input cannot be used");

export const invalidSchedule = refusal("invalid_schedule", "The schedule cannot be made");

export const invalidAgent = refusal("invalid_agent", "The agent cannot be used");
export const invalidTask = refusal("invalid_task", "The task cannot be used");

/** `known`: the jobs the plugin has. */
export function taskJobUnknown(pluginId: string, job: string, known: readonly string[]): TroupeError {
  const message =
    known.length === 0
      ? `Plugin ${pluginId} has no jobs, and so no ${JSON.stringify(job)}.`
      : `Plugin ${pluginId} has no job ${JSON.stringify(job)}. It has: ${known.join(", ")}.`;
  return new TroupeError("task_job_unknown", message, { details: { pluginId, job } });
}

export const invalidTrigger = refusal("invalid_trigger", "The trigger cannot be used");
export const invalidProcess = refusal("invalid_process", "The process cannot be asked for");
export const invalidMonitor = refusal("invalid_monitor", "The monitor cannot be used");

/** The check of an event's payload did not end. */
export function triggerCheckTimeout(trigger: string, ms: number, options: TroupeErrorOptions = {}): TroupeError {
  const message = `Checking the payload of ${trigger} did not end within ${ms} ms.`;
  return new TroupeError("trigger_check_timeout", message, { ...options, details: { trigger } });
}

export function runtimeClosed(): TroupeError {
  return new TroupeError("closed", "This runtime is closed. Create another one.");
}

/** @example throw invalidOptions("workers must be a whole number from 1, not 0"); */
export function invalidOptions(why: string): TroupeError {
  return new TroupeError("invalid_options", sentence(why));
}

export function invalidTool(what: string, why: string): TroupeError {
  return new TroupeError("invalid_tool", `${what}: ${sentence(why)}`);
}

export function toolUnavailable(why: string): TroupeError {
  return new TroupeError("tool_unavailable", `${why}.`);
}

export function toolsUnknown(named: string, details: Readonly<Record<string, unknown>>): TroupeError {
  return new TroupeError("tool_unknown", `There is no tool ${named}.`, { details });
}

/** @example throw duplicateTool("Two tools are called weather: one of plugin a, one of plugin b", { tool: "weather" }); */
export function duplicateTool(why: string, details: Readonly<Record<string, unknown>>): TroupeError {
  return new TroupeError("duplicate_tool", `${why}.`, { details });
}

export function invalidToolArgs(why: string, options?: TroupeErrorOptions): TroupeError {
  return new TroupeError("invalid_tool_args", why, options);
}

export function attachmentMissing(hash: string): TroupeError {
  return new TroupeError("attachment_missing", `The attachment ${hash} is no longer stored.`, { details: { hash } });
}

export function authorityWidened(why: string, details: Readonly<Record<string, unknown>>): TroupeError {
  return new TroupeError("authority_widened", `${why}.`, { details });
}

export function cursorInvalid(sessionId: string): TroupeError {
  const message = `This is no cursor of session ${sessionId}. Give back the cursor of one of its events, unchanged, or begin with "turn" or "now".`;
  return new TroupeError("cursor_invalid", message, { details: { sessionId } });
}

/** `outcome`: what became of the call, where that is known. */
export function completionUnknown(key: string, outcome?: string): TroupeError {
  const message = "No tool call waits under this key: it was completed, ended, or never was.";
  const details = outcome === undefined ? { key } : { key, outcome };
  return new TroupeError("completion_unknown", message, { details });
}

/** @example throw answerUnusable("reason must be a text"); */
export const answerUnusable = refusal("answer_unusable", "The call cannot be answered so");

/** @example throw sessionBusy(id, "has a turn running"); */
export function sessionBusy(sessionId: string, why: string, { retryable = true } = {}): TroupeError {
  return new TroupeError("session_busy", `Session ${sessionId} ${why}.`, { retryable, details: { sessionId } });
}

export function sessionClosed(sessionId: string, why = "is closing. Ask again when it is closed"): TroupeError {
  return new TroupeError("session_closed", `Session ${sessionId} ${why}.`, { retryable: true, details: { sessionId } });
}

export function sessionUnknown(sessionId: string, where: string): TroupeError {
  return new TroupeError("session_unknown", `There is no session ${sessionId} ${where}.`, { details: { sessionId } });
}

export function turnRunning(sessionId: string, why: string, { retryable = true } = {}): TroupeError {
  return new TroupeError("turn_running", `Session ${sessionId} ${why}.`, { retryable, details: { sessionId } });
}

export function nodeUnknown(why: string, sessionId: string | undefined, node?: string): TroupeError {
  return new TroupeError("node_unknown", why, { details: { sessionId, ...(node !== undefined && { node }) } });
}

export function turnUnknown(why: string, details: Readonly<Record<string, unknown>> = {}): TroupeError {
  return new TroupeError("turn_unknown", why, { details });
}

export function pluginUnknown(plugin: string, known: readonly string[] = []): TroupeError {
  const others = known.length === 0 ? "" : ` ${knownInstead(plugin.split(" ").at(-1) ?? "", known)}`;
  return new TroupeError("plugin_unknown", `There is no ${plugin}.${others}`, { details: { known } });
}

export function pluginUnavailable(message: string, options?: TroupeErrorOptions): TroupeError {
  return new TroupeError("plugin_unavailable", message, options);
}

export function duplicatePlugin(
  why: string,
  cure: string,
  details: Readonly<Record<string, unknown>> = {},
): TroupeError {
  return new TroupeError("duplicate_plugin", `${why}. ${cure}`, { details });
}

export function pluginOptionsInvalid(whose: string, why: string, options?: TroupeErrorOptions): TroupeError {
  return new TroupeError("plugin_options_invalid", `The options of ${whose} are not valid: ${why}.`, options);
}

export function toolOptionsInvalid(whose: string, why: string, options?: TroupeErrorOptions): TroupeError {
  return new TroupeError("tool_options_invalid", `The options of ${whose} are not valid: ${why}.`, options);
}

export function replayMismatched(why: string, details: Readonly<Record<string, unknown>>): TroupeError {
  return new TroupeError("replay_mismatch", why, { details });
}

/** What has more bytes, or messages, than one commit may have. */
export function commitTooLarge(
  what: string,
  found: Readonly<Record<string, unknown>>,
  budget: { readonly bytes: number; readonly nodes: number },
): TroupeError {
  const message = `${what}; allowed are ${budget.bytes} bytes and ${budget.nodes} messages.`;
  return new TroupeError("commit_too_large", message, { details: { ...found, budget: { ...budget } } });
}

export function componentMissing(what: string, options?: TroupeErrorOptions): TroupeError {
  return new TroupeError("component_missing", `${what} is not stored.`, options);
}

export function operationFailed(what: string, why: string, options?: TroupeErrorOptions): TroupeError {
  return new TroupeError("operation_failed", `${what} failed: ${why}`, options);
}

export function protocolFailed(why: string, options?: TroupeErrorOptions): TroupeError {
  return new TroupeError("protocol_failed", `The protocol ${why}`, options);
}

export function unknownMethod(who: string, method: string): TroupeError {
  return new TroupeError("unknown_method", `${who} does not serve ${method}.`);
}

export function wireCorrupt(who: string, why: string, cause?: unknown): TroupeError {
  return new TroupeError("wire_corrupt", `${who} sent a message that cannot be read: ${sentence(why)}`, { cause });
}

export function unserialisable(what: string, why: string, cause?: unknown): TroupeError {
  return new TroupeError("unserialisable", `${what}: ${sentence(why)}`, { cause });
}
