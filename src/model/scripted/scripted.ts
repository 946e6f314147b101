import type { Clock } from "../../async/index.js";
import {
  aborted,
  foreignError,
  type Message,
  type ModelEvent,
  type ModelRequest,
  NO_USAGE,
  type TroupeError,
  textOf,
} from "../../kernel/index.js";
import {
  checkScript,
  codeOfStatus,
  type Model,
  type ModelSource,
  type Script,
  type ScriptDirectAnswer,
  type ScriptFailure,
  type ScriptStep,
} from "../boundary/index.js";
import { pause } from "../calling/index.js";

const DEFAULT_CHUNK_SIZE = 32;
const ECHO: ScriptDirectAnswer = { text: "{input}" };

/**
 * A model that says what it is told, the same every time: for tests, benchmarks and first steps.
 * Takes a whole script, or the steps of its only turn. Throws `invalid_script` where the script is wrong.
 *
 * @example
 * const troupe = await createTroupe({
 *   model: scriptedModel([
 *     { toolCalls: [{ tool: "weather", args: { city: "Oslo" } }] },
 *     { text: "It is {tool_result}." },
 *   ]),
 * });
 */
export function scriptedModel(script: Script | readonly ScriptStep[]): ModelSource {
  return { kind: "scripted", script: checkScript(isSteps(script) ? { turns: [script] } : script) };
}

/** The model of a host that names none: repeats what the user said. */
export const defaultModel: ModelSource = scriptedModel([{ text: "You said: {input}" }]);

/**
 * The running form of a script.
 *
 * @example
 * const model = createScriptedModel({ turns: [[{ text: "Hello" }]] }, clock);
 * for await (const event of model.stream(request, signal)) console.log(event);
 */
export function createScriptedModel(script: Script, clock: Clock): Model {
  const { id = "scripted", turns, direct = [], chunkSize = DEFAULT_CHUNK_SIZE, jsonMode = true } = checkScript(script);
  const compiled = turns.map((steps) => steps.map((step) => compileStep(step, chunkSize)));
  const done = compileStep({ text: "done" }, chunkSize);
  const answers = [...direct, ECHO].map(({ source, ...step }) => ({ source, step: compileStep(step, chunkSize) }));
  const attempts = new Attempts();

  const stepOf = (request: ModelRequest): CompiledStep => {
    const { direct: call, step } = request;
    if (call) return answers.find(({ source = call.source }) => source === call.source)?.step ?? done;
    const turn = compiled.length === 1 ? 0 : turnNumber(request) % compiled.length;
    return compiled[turn]?.[step] ?? done;
  };

  return {
    id,
    answersInForm: () => jsonMode,
    stream(request, signal) {
      const step = stepOf(request);
      return play(step, { request, signal, clock, fails: attempts.fails(step, request) });
    },
  };
}

interface Performance {
  readonly request: ModelRequest;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly fails: boolean;
}

async function* play(step: CompiledStep, { request, signal, clock, fails }: Performance): AsyncGenerator<ModelEvent> {
  if (signal.aborted) throw aborted(signal);
  if (step.delayMs > 0) await pause(clock, step.delayMs, signal);
  const deltas = step.deltas(request);
  const heard = fails ? deltas.slice(0, step.failure?.afterChunks ?? 0) : deltas;
  for (const [index, delta] of heard.entries()) {
    if (index > 0 && step.chunkDelayMs > 0) await pause(clock, step.chunkDelayMs, signal);
    if (signal.aborted) throw aborted(signal);
    yield delta;
  }
  if (signal.aborted) throw aborted(signal);
  if (fails && step.failure) throw step.failure.error();
  // Not `yield*`, which awaits every item of a plain list once more.
  for (const call of step.toolCalls(request)) yield call;
  yield step.finish(request, deltas);
}

/** Counts the attempts of steps that fail only a few times; forgets a step once it succeeds. */
class Attempts {
  readonly #made = new Map<string, number>();

  fails(step: CompiledStep, request: ModelRequest): boolean {
    if (!step.failure) return false;
    const { attempts } = step.failure;
    if (attempts === undefined) return true;
    const key = JSON.stringify([request.sessionId, request.turnId, request.step, request.direct?.source]);
    const made = this.#made.get(key) ?? 0;
    if (made >= attempts) this.#made.delete(key);
    else this.#made.set(key, made + 1);
    return made < attempts;
  }
}

/** Which turn of the session this is, counted by inputs. Reads the whole history: called only when turns differ. */
function turnNumber({ history, turn }: ModelRequest): number {
  let inputs = 0;
  for (const { origin } of history) if (begins(origin)) inputs++;
  for (const { origin } of turn) if (begins(origin)) inputs++;
  return Math.max(0, inputs - 1);
}

/** What was said into a running turn does not begin one. */
function begins(origin: Message["origin"]): boolean {
  return origin?.kind === "turn_input" && origin.inputId === undefined;
}

function isSteps(script: Script | readonly ScriptStep[]): script is readonly ScriptStep[] {
  return Array.isArray(script);
}

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
  const calls = (step.toolCalls ?? []).map(
    ({ tool, args = {}, argsText = JSON.stringify(args), callId, streamArgs = false }) => ({
      tool,
      argsText,
      callId,
      pieces: streamArgs ? cut(argsText, chunkSize) : [],
    }),
  );
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
      calls.flatMap(({ tool: toolName, argsText, callId: own, pieces }, n): ModelEvent[] => {
        const callId = own ?? `call_${turnId}_${at}_${n}`;
        return [
          ...pieces.map((text): ModelEvent => ({ type: "tool_input_delta", callId, toolName, text })),
          { type: "tool_call", callId, toolName, argsText },
        ];
      }),
    finish(request, deltas) {
      const chars = deltas.reduce((sum, { text }) => sum + text.length, argsChars);
      const counted = { inputTokens: inputTokens(request), outputTokens: tokens(chars), reasoningTokens };
      return { type: "finish", reason, usage: { ...NO_USAGE, ...counted, ...step.usage } };
    },
  };
}

const TEXT = { type: "text_delta", blockId: "text" } as const;
const WHOLE_TEXT = { type: "text", blockId: "text" } as const;
const REASONING = { type: "reasoning_delta", blockId: "reasoning" } as const;

function failureOf(fail: ScriptFailure): NonNullable<CompiledStep["failure"]> {
  const { status, retryAfterMs, message = "The script makes this model call fail." } = fail;
  const byStatus = status === undefined ? ({ code: "model_failed", retryable: false } as const) : codeOfStatus(status);
  const details = { ...(status !== undefined && { status }), ...(retryAfterMs !== undefined && { retryAfterMs }) };
  const retryable = fail.retryable ?? byStatus.retryable;
  return {
    afterChunks: fail.afterChunks ?? 0,
    attempts: fail.attempts,
    error: () => foreignError(fail.code ?? byStatus.code, message, { retryable, details }),
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
