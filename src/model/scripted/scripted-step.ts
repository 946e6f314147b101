import {
  type Message,
  type ModelEvent,
  type ModelRequest,
  TroupeError,
  textOf,
  type Usage,
} from "../../kernel/index.js";
import type { ScriptFailure, ScriptStep } from "../boundary/index.js";
import { codeOfStatus } from "../boundary/index.js";

const PLACEHOLDER = /\{(input|tool_result)\}/g;
const CHARS_PER_TOKEN = 4;

/** A step of a script with everything decided that does not depend on the request. */
export interface CompiledStep {
  readonly delayMs: number;
  readonly chunkDelayMs: number;
  readonly failure?: { readonly afterChunks: number; readonly attempts: number | undefined; error(): TroupeError };
  deltas(request: ModelRequest): readonly Delta[];
  toolCalls(request: ModelRequest): readonly ModelEvent[];
  finish(request: ModelRequest, deltas: readonly Delta[]): ModelEvent;
}

/** A piece of what the step says; its one and only, when the step is not streamed. */
type Delta = Extract<ModelEvent, { type: "text" | "text_delta" | "reasoning_delta" }>;

export function compileStep(step: ScriptStep, chunkSize: number): CompiledStep {
  const streamed = step.stream ?? true;
  const size = streamed ? chunkSize : Number.POSITIVE_INFINITY;
  const reasoning = cut(step.reasoning ?? "", size).map((text): Delta => ({ ...REASONING, text }));
  const calls = (step.toolCalls ?? []).map(({ tool, args = {}, argsText = JSON.stringify(args), callId }) => ({
    tool,
    argsText,
    callId,
  }));
  const argsChars = calls.reduce((sum, call) => sum + call.argsText.length, 0);
  const reasoningTokens = tokens(step.reasoning?.length ?? 0);
  const reason = step.finish ?? (calls.length > 0 ? "tool_calls" : "stop");

  const chunksOf = (fill: (text: string) => string) =>
    step.chunks && streamed ? step.chunks.map(fill) : cut((step.chunks ?? [step.text ?? ""]).map(fill).join(""), size);
  const block = streamed ? TEXT : WHOLE_TEXT;
  const deltasOf = (fill: (text: string) => string) => [
    ...reasoning,
    ...chunksOf(fill).map((text): Delta => ({ ...block, text })),
  ];
  const hasPlaceholder = [step.text ?? "", ...(step.chunks ?? [])].some((text) => text.search(PLACEHOLDER) >= 0);
  // What no request changes is made once: this model also carries the benchmarks.
  const fixed = hasPlaceholder ? undefined : deltasOf((text) => text);

  return {
    delayMs: step.delayMs ?? 0,
    chunkDelayMs: step.chunkDelayMs ?? 0,
    ...(step.fail && { failure: failureOf(step.fail) }),
    deltas: (request) => fixed ?? deltasOf((text) => fillIn(text, request)),
    toolCalls: ({ turnId, step: at }) =>
      calls.map(({ tool, argsText, callId }, n) => ({
        type: "tool_call",
        callId: callId ?? `call_${turnId}_${at}_${n}`,
        toolName: tool,
        argsText,
      })),
    finish(request, deltas) {
      const chars = deltas.reduce((sum, { text }) => sum + text.length, argsChars);
      const usage: Usage = {
        inputTokens: inputTokens(request),
        outputTokens: tokens(chars),
        cacheReadTokens: 0,
        cacheWriteTokens: 0,
        reasoningTokens,
        ...step.usage,
      };
      return { type: "finish", reason, usage };
    },
  };
}

const TEXT = { type: "text_delta", blockId: "text" } as const;
const WHOLE_TEXT = { type: "text", blockId: "text" } as const;
const REASONING = { type: "reasoning_delta", blockId: "reasoning" } as const;

function failureOf(fail: ScriptFailure): NonNullable<CompiledStep["failure"]> {
  const { status, retryAfterMs, message = "The script makes this model call fail." } = fail;
  const byStatus = status === undefined ? { code: "model_failed", retryable: false } : codeOfStatus(status);
  const details = { ...(status !== undefined && { status }), ...(retryAfterMs !== undefined && { retryAfterMs }) };
  const retryable = fail.retryable ?? byStatus.retryable;
  return {
    afterChunks: fail.afterChunks ?? 0,
    attempts: fail.attempts,
    error: () => new TroupeError(fail.code ?? byStatus.code, message, { retryable, details }),
  };
}

/** Cuts text into pieces; never between the halves of a surrogate pair, which would not survive UTF-8. */
function cut(text: string, size: number): string[] {
  if (text.length <= size) return text === "" ? [] : [text];
  const pieces: string[] = [];
  for (let start = 0; start < text.length; ) {
    let end = start + size;
    const last = text.charCodeAt(end - 1);
    if (last >= 0xd800 && last <= 0xdbff) end++;
    pieces.push(text.slice(start, end));
    start = end;
  }
  return pieces;
}

/** One pass, so that a placeholder inside the input stays what the user wrote. */
function fillIn(text: string, request: ModelRequest): string {
  return text.replace(PLACEHOLDER, (_, name: string) => (name === "input" ? inputText(request) : toolResult(request)));
}

/** A direct completion has no turn input: whatever its user said last is what it is about. */
function inputText({ turn, history, direct }: ModelRequest): string {
  const isInput = ({ role, origin }: Message) =>
    role === "user" && (direct !== undefined || origin?.kind === "turn_input");
  const input = turn.findLast(isInput) ?? history.findLast(isInput);
  return input ? textOf(input) : "";
}

/** Of this turn only: looking for one in a long history that has none would cost its length. */
function toolResult({ turn }: ModelRequest): string {
  for (const message of turn.toReversed()) {
    const part = message.parts.findLast((candidate) => candidate.type === "tool_result");
    if (part?.type === "tool_result") return part.text;
  }
  return "";
}

/** The turn's own messages only, so that a call costs the same at any session length. */
function inputTokens({ system, turn }: ModelRequest): number {
  let chars = system.length;
  for (const { parts } of turn) for (const part of parts) if ("text" in part) chars += part.text.length;
  return tokens(chars);
}

function tokens(chars: number): number {
  return Math.ceil(chars / CHARS_PER_TOKEN);
}
