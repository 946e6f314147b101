import { type CodeResult, checkNodes, type ProtocolStep, type ToolCall, TroupeError } from "../../kernel/index.js";
import type { FrameSwitch, Preamble } from "../../plugin/index.js";
import { readContributions } from "./read-answers.js";

/** What a protocol answers, read once, as the answers of hooks are: a mistake of its author's is a typed error. */

/** The preamble with its defaults, whose answers are read as well. */
export function readPreamble(given: unknown, pluginId: string): Preamble {
  if (!isRecord(given)) throw refuse("its driver built no preamble", pluginId);
  const { toolSpecs, executionPrompt = "", promptContributions, syncExecutionEnvironment, interpret } = given;
  if (typeof interpret !== "function") throw refuse("the preamble of its driver has no interpret function", pluginId);
  if (!Array.isArray(toolSpecs) || !toolSpecs.every((spec) => isRecord(spec) && typeof spec.name === "string"))
    throw refuse("the toolSpecs of its driver's preamble are not a list of tools", pluginId);
  if (typeof executionPrompt !== "string")
    throw refuse("the executionPrompt of its driver's preamble is no text", pluginId);
  return {
    toolSpecs: toolSpecs as Preamble["toolSpecs"],
    executionPrompt,
    promptContributions: readContributions(promptContributions, pluginId),
    syncExecutionEnvironment: syncExecutionEnvironment === true,
    interpret: (response) => readStep(interpret.call(given, response), pluginId),
  };
}

/** What the protocol makes of an answer. */
function readStep(given: unknown, pluginId: string): ProtocolStep {
  const step = isRecord(given) ? given : {};
  const { kind, calls, brokenArgs = {}, text, language, code } = step;
  if (kind === "tools" && Array.isArray(calls) && calls.length > 0 && calls.every(isToolCall) && isRecord(brokenArgs))
    return { ...step, brokenArgs } as unknown as ProtocolStep;
  if (kind === "code" && typeof language === "string" && typeof code === "string") return step as never;
  if (kind === "finish" && typeof text === "string") return step as never;
  throw refuse("interpret returned no step { kind: tools, code or finish, … }", pluginId);
}

/** What running code came to. Nothing is as good as no observations. */
export function readCodeAnswer(given: unknown, pluginId: string): Partial<Omit<CodeResult, "toolCalls">> {
  const answer = given ?? {};
  if (!isRecord(answer)) throw refuse("its code executor returned no result", pluginId);
  const { observations = [], error, terminalFinish, durationMs } = answer;
  const usable =
    Array.isArray(observations) &&
    observations.every((line) => typeof line === "string") &&
    (error === undefined || typeof error === "string") &&
    (terminalFinish === undefined || isFinish(terminalFinish)) &&
    (durationMs === undefined || typeof durationMs === "number");
  if (usable) return answer as Partial<CodeResult>;
  throw refuse("its code executor must return { observations?, error?, terminalFinish?, durationMs? }", pluginId);
}

function isFinish(finish: unknown): boolean {
  if (!isRecord(finish) || finish.value === undefined) return false;
  return finish.failed === undefined || typeof finish.failed === "boolean";
}

/** A frame to go on in, or nothing. */
export function readFrameSwitch(given: unknown, pluginId: string): FrameSwitch | undefined {
  if (given === null || given === undefined) return undefined;
  const { kind, frameId, task, initialNodes = [] } = isRecord(given) ? given : {};
  if (kind !== "switch_agent_frame" || typeof frameId !== "string" || frameId === "" || typeof task !== "string")
    throw refuse(
      "beforeLlmCall returns { kind: switch_agent_frame, frameId, task, initialNodes? } or nothing",
      pluginId,
    );
  return { kind, frameId, task, initialNodes: checkNodes(initialNodes) };
}

function isToolCall(given: unknown): given is ToolCall {
  return isRecord(given) && typeof given.callId === "string" && typeof given.toolName === "string";
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

function refuse(why: string, pluginId: string): TroupeError {
  return new TroupeError("protocol_failed", `The protocol of plugin ${pluginId} cannot be followed: ${why}.`, {
    details: { pluginId },
  });
}
