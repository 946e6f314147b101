import {
  type CodeResult,
  checkNodes,
  checkPieces,
  isToolAtLeast,
  type ModelResponse,
  type Part,
  type PluginEvent,
  PROMPT_SLOTS,
  type PreparedContext,
  type PromptContribution,
  type ProtocolStep,
  problemWithAnswer,
  protocolFailed,
  type SessionConfig,
  type ToolAvailability,
  type ToolCall,
  TroupeError,
  type TroupeErrorCode,
} from "../../kernel/index.js";
import type { Compaction, FrameSwitch, OperationOutcome, Preamble, StreamTransform } from "../../plugin/index.js";
import { ANSWER_LIMITS, unfitAnswer } from "../plugin-thread/index.js";

/**
 * What plugins answer is foreign: it is read here, once, and anything a hook kind does not allow becomes a typed error
 * under that kind's policy. Directives are read in read-directives.ts.
 */

export function readRemovals(answer: unknown, pluginId: string): readonly string[] {
  if (answer === undefined || answer === null) return [];
  checkBounds(answer, pluginId);
  const { remove = [], overrides = [] } = isRecord(answer) ? answer : { remove: answer };
  const usable =
    Array.isArray(remove) &&
    remove.every((name) => typeof name === "string") &&
    Array.isArray(overrides) &&
    overrides.every((override) => isRecord(override) && typeof override.toolName === "string");
  if (!usable) {
    const why =
      "a catalog contributor returns { remove: [tool names] }, { overrides: [{ toolName, availability }] } or nothing";
    throw refuse("invalid_hook_answer", pluginId, why);
  }
  const lowered = (overrides as readonly { toolName: string; availability?: ToolAvailability }[]).filter(
    ({ availability }) => availability !== undefined && !isToolAtLeast(availability, "callable"),
  );
  return [...(remove as readonly string[]), ...lowered.map(({ toolName }) => toolName)];
}

/** The context as a transform leaves it; what it does not mention stays. */
export function readPrepared(
  answer: unknown,
  before: PreparedContext,
  { messageCount, pluginId }: { readonly messageCount: number; readonly pluginId: string },
): PreparedContext {
  if (answer === undefined || answer === null) return before;
  checkBounds(answer, pluginId);
  if (!isRecord(answer))
    throw refuse("invalid_hook_answer", pluginId, "a context transform returns a context or nothing");
  const { messages = before.messages, promptContributions = before.promptContributions } = answer;
  const { tools = before.tools, includeBaseTools = before.includeBaseTools } = answer;
  if (!Array.isArray(tools) || !tools.every((id) => typeof id === "string") || typeof includeBaseTools !== "boolean") {
    throw refuse("invalid_hook_answer", pluginId, "tools must be a list of tool ids and includeBaseTools a boolean");
  }
  return {
    messages: checkPieces(messages, messageCount),
    promptContributions: readContributions(promptContributions, pluginId),
    tools,
    includeBaseTools,
  };
}

export function readConfigChange(answer: unknown, pluginId: string): Partial<SessionConfig> {
  if (answer === undefined || answer === null) return {};
  checkBounds(answer, pluginId);
  if (isRecord(answer)) return answer as Partial<SessionConfig>;
  throw refuse("invalid_hook_answer", pluginId, "a config mutator returns settings or nothing");
}

/** Nothing, or no nodes: the compactor passes. */
export function readCompaction(answer: unknown, pluginId: string): Required<Compaction> {
  if (answer === undefined || answer === null) return { initialNodes: [], keep: 0 };
  checkBounds(answer, pluginId);
  if (!isRecord(answer))
    throw refuse("invalid_hook_answer", pluginId, "a compactor returns { initialNodes, keep? } or nothing");
  const { initialNodes = [], keep = 0 } = answer;
  if (!Number.isSafeInteger(keep) || (keep as number) < 0)
    throw refuse("invalid_hook_answer", pluginId, "keep must be a whole number of messages from 0");
  return { initialNodes: checkNodes(initialNodes), keep: keep as number };
}

export function readContributions(answer: unknown, pluginId: string): PromptContribution[] {
  if (answer === undefined || answer === null) return [];
  checkBounds(answer, pluginId);
  const list: readonly unknown[] = Array.isArray(answer) ? answer : [answer];
  return list.map((item) => {
    const { content, slot, volatile = false } = isRecord(item) ? item : {};
    const usable = typeof content === "string" && (PROMPT_SLOTS as readonly unknown[]).includes(slot);
    if (usable && typeof volatile === "boolean") return item as PromptContribution;
    const why = usable
      ? "volatile of a prompt contribution must be true or false"
      : `a prompt contribution needs content and a slot (${PROMPT_SLOTS.join(", ")})`;
    throw refuse("invalid_hook_answer", pluginId, why);
  });
}

export function readStreamTransform(answer: unknown, chunk: string, pluginId: string): Required<StreamTransform> {
  if (answer === undefined || answer === null) return { chunk, reasoning: [], events: [], abortStream: false };
  checkBounds(answer, pluginId);
  if (typeof answer === "string") return { chunk: answer, reasoning: [], events: [], abortStream: false };
  if (!isRecord(answer))
    throw refuse("invalid_hook_answer", pluginId, "a stream hook returns a string, a transform or nothing");
  const next = answer.chunk ?? chunk;
  const reasoning = answer.reasoning ?? [];
  if (typeof next !== "string" || !Array.isArray(reasoning) || !reasoning.every((text) => typeof text === "string")) {
    throw refuse("invalid_hook_answer", pluginId, "chunk must be a string and reasoning a list of strings");
  }
  return {
    chunk: next,
    reasoning,
    events: readEvents(answer.events ?? [], pluginId),
    abortStream: answer.abortStream === true,
  };
}

export function readResponseTransform(
  answer: unknown,
  response: ModelResponse,
  pluginId: string,
): { response: ModelResponse; events: readonly PluginEvent[] } {
  if (answer === undefined || answer === null) return { response, events: [] };
  checkBounds(answer, pluginId);
  if (!isRecord(answer))
    throw refuse("invalid_hook_answer", pluginId, "a response hook returns { response?, events? } or nothing");
  const next = answer.response ?? response;
  const { parts } = isRecord(next) ? next : {};
  const problem = problemWithAnswer(parts, response.parts);
  if (problem !== undefined) throw refuse("invalid_hook_answer", pluginId, `the response cannot be used: ${problem}`);
  // Usage and the finish reason are facts of the provider, not the plugin's to change.
  return {
    response: { ...response, parts: parts as readonly Part[] },
    events: readEvents(answer.events ?? [], pluginId),
  };
}

/** What an operation came to. */
export function readOutcome(answer: unknown, pluginId: string): Required<OperationOutcome> {
  const { output, events = [], directives = [] } = isRecord(answer) ? answer : {};
  // The output was checked against the operation's schema by its own thread; it may be any data a thread can send.
  const problem = unfitAnswer(events) ?? unfitAnswer(directives) ?? excessOf(events, "events");
  if (problem !== undefined) throw refuse("operation_failed", pluginId, problem);
  if (!Array.isArray(events) || !events.every((event) => isRecord(event) && typeof event.name === "string"))
    throw refuse("operation_failed", pluginId, "the events of an operation are a list of { name, payload? }");
  if (!Array.isArray(directives) || !directives.every(isQueueTurn))
    throw refuse("operation_failed", pluginId, "an operation can ask for turns (queueTurn) and nothing else");
  return { output, events, directives };
}

function isQueueTurn(directive: unknown): boolean {
  return isRecord(directive) && directive.kind === "queue_turn" && typeof directive.input === "string";
}

export function readEvents(events: unknown, pluginId: string): readonly PluginEvent[] {
  checkCount(events, "events", pluginId);
  if (Array.isArray(events) && events.every((event) => isRecord(event) && typeof event.name === "string"))
    return events as PluginEvent[];
  throw refuse("invalid_hook_answer", pluginId, "events are a list of { name, payload? }");
}

/** Refuses what is too much or not plain data, before anything else reads it. */
export function checkBounds(answer: unknown, pluginId: string): void {
  const problem = unfitAnswer(answer);
  if (problem !== undefined) throw refuse("invalid_hook_answer", pluginId, problem);
}

type Counted = "directives" | "messages" | "events";

export function checkCount(list: unknown, what: Counted, pluginId: string): void {
  const problem = excessOf(list, what);
  if (problem !== undefined) throw refuse("invalid_hook_answer", pluginId, problem);
}

function excessOf(list: unknown, what: Counted): string | undefined {
  if (!Array.isArray(list) || list.length <= ANSWER_LIMITS[what]) return undefined;
  return `an answer has at most ${ANSWER_LIMITS[what]} ${what}, not ${list.length}`;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

export function refuse(code: TroupeErrorCode, pluginId: string, why: string): TroupeError {
  return new TroupeError(code, `Plugin ${pluginId}: ${why}.`, { details: { pluginId } });
}

/** What a protocol answers, read once, as the answers of hooks are: a mistake of its author's is a typed error. */

/** The preamble with its defaults, whose answers are read as well. */
export function readPreamble(given: unknown, pluginId: string): Preamble {
  if (!isRecord(given)) throw unfollowable("its driver built no preamble", pluginId);
  const { toolSpecs, executionPrompt = "", promptContributions, syncExecutionEnvironment, interpret } = given;
  if (typeof interpret !== "function")
    throw unfollowable("the preamble of its driver has no interpret function", pluginId);
  if (!Array.isArray(toolSpecs) || !toolSpecs.every((spec) => isRecord(spec) && typeof spec.name === "string"))
    throw unfollowable("the toolSpecs of its driver's preamble are not a list of tools", pluginId);
  if (typeof executionPrompt !== "string")
    throw unfollowable("the executionPrompt of its driver's preamble is no text", pluginId);
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
  if (kind === "tools" && Array.isArray(calls) && calls.length > 0 && calls.every(isToolCall) && isRecord(brokenArgs)) {
    const ids = new Set(calls.map(({ callId }) => callId));
    if (ids.size < calls.length) throw unfollowable("two of the calls it makes have the same callId", pluginId);
    return { ...step, brokenArgs } as unknown as ProtocolStep;
  }
  if (kind === "code" && typeof language === "string" && typeof code === "string") return step as never;
  if (kind === "finish" && typeof text === "string") return step as never;
  throw unfollowable("interpret returned no step { kind: tools, code or finish, … }", pluginId);
}

/** What running code came to. Nothing is as good as no observations. */
export function readCodeAnswer(given: unknown, pluginId: string): Partial<Omit<CodeResult, "toolCalls">> {
  const answer = given ?? {};
  if (!isRecord(answer)) throw unfollowable("its code executor returned no result", pluginId);
  const { observations = [], error, terminalFinish, durationMs } = answer;
  const usable =
    Array.isArray(observations) &&
    observations.every((line) => typeof line === "string") &&
    (error === undefined || typeof error === "string") &&
    (terminalFinish === undefined || isFinish(terminalFinish)) &&
    (durationMs === undefined || typeof durationMs === "number");
  if (usable) return answer as Partial<CodeResult>;
  throw unfollowable("its code executor must return { observations?, error?, terminalFinish?, durationMs? }", pluginId);
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
    throw unfollowable(
      "beforeLlmCall returns { kind: switch_agent_frame, frameId, task, initialNodes? } or nothing",
      pluginId,
    );
  return { kind, frameId, task, initialNodes: checkNodes(initialNodes) };
}

function isToolCall(given: unknown): given is ToolCall {
  return isRecord(given) && typeof given.callId === "string" && typeof given.toolName === "string";
}

function unfollowable(why: string, pluginId: string): TroupeError {
  return protocolFailed(`of plugin ${pluginId} cannot be followed: ${why}.`, { details: { pluginId } });
}
