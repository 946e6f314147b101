import { type FinishReason, isRecord, type Json, NO_USAGE, TroupeError, type Usage } from "../../kernel/index.js";

/** A tool call the scripted model makes. Give `args`, or `argsText` to write arguments that are not JSON. */
export interface ScriptToolCall {
  readonly tool: string;
  readonly args?: Json;
  readonly argsText?: string;
  /** Default: `call_<turn id>_<step>_<n>`, unique in its session. */
  readonly callId?: string;
  /** Its arguments are written piece by piece, as long as the script's chunks, before the call is whole. Default false. */
  readonly streamArgs?: boolean;
}

/** How a step fails. Without `code`, `status` decides it as a real provider's answer would. */
export interface ScriptFailure {
  readonly code?: string;
  readonly message?: string;
  readonly status?: number;
  readonly retryAfterMs?: number;
  readonly retryable?: boolean;
  /** Stream this many chunks before failing. Default 0. */
  readonly afterChunks?: number;
  /** Fail only the first so many attempts of the step. Default: all. */
  readonly attempts?: number;
}

/** One model call: what it streams, in the order reasoning, text, tool calls, finish. */
export interface ScriptStep {
  /** `{input}` becomes the text of the turn's input, `{tool_result}` that of the turn's last tool result. */
  readonly text?: string;
  /** The text, already cut: one delta each. */
  readonly chunks?: readonly string[];
  /** False: text and reasoning come whole, each in one piece. Default true. */
  readonly stream?: boolean;
  readonly reasoning?: string;
  readonly toolCalls?: readonly ScriptToolCall[];
  /** Before the first event. */
  readonly delayMs?: number;
  /** Between chunks. */
  readonly chunkDelayMs?: number;
  readonly finish?: FinishReason;
  readonly usage?: Partial<Usage>;
  readonly fail?: ScriptFailure;
}

/** What is said to a completion outside the conversation; `{input}` is the last text of its user. */
export interface ScriptDirectAnswer extends ScriptStep {
  /** Whose completions this answers. Default: anybody's. */
  readonly source?: string;
}

/**
 * What a scripted model says: a list of turns, each a list of steps (model calls). After the last turn it starts
 * again with the first; a step past the end of its turn says "done".
 *
 * @example
 * const script: Script = {
 *   turns: [[{ toolCalls: [{ tool: "weather", args: { city: "Oslo" } }] }, { text: "It is {tool_result}." }]],
 * };
 */
export interface Script {
  /** Names the model wherever its use is told. Default `scripted`. */
  readonly id?: string;
  readonly turns: readonly (readonly ScriptStep[])[];
  /** Completions outside the conversation get the first answer for their source; without one, their `{input}` back. */
  readonly direct?: readonly ScriptDirectAnswer[];
  /** Characters per text delta. Default 32. */
  readonly chunkSize?: number;
  /** False: it has no JSON mode, and a turn with an `output` gives it a tool to end with. Default true. */
  readonly jsonMode?: boolean;
}

type Check = (value: unknown, path: string) => void;

const FINISH_REASONS = ["stop", "tool_calls", "length", "content_filter", "error", "unknown"];

/** A value that must be something. */
const must =
  (be: string, fits: (value: unknown) => boolean): Check =>
  (value, path) =>
    expect(fits(value), path, `must be ${be}`, value);

const text = must("a string", (value) => typeof value === "string");
const name = must("a non-empty string", (value) => typeof value === "string" && value !== "");
const amount = must("a number of 0 or more", (value) => Number.isFinite(value) && (value as number) >= 0);
const whole = (least: number) =>
  must(`a whole number of ${least} or more`, (value) => Number.isSafeInteger(value) && (value as number) >= least);
const flag = must("true or false", (value) => typeof value === "boolean");
const finish = must(`one of ${FINISH_REASONS.join(", ")}`, (value) => FINISH_REASONS.includes(value as string));
const list = must("a list", Array.isArray);
const object = must("an object", isRecord);
const anything: Check = () => undefined;

const USAGE = Object.fromEntries(Object.keys(NO_USAGE).map((counter) => [counter, amount]));

const TOOL_CALL: Record<keyof ScriptToolCall, Check> = {
  tool: name,
  args: anything,
  argsText: text,
  callId: name,
  streamArgs: flag,
};

const FAILURE: Record<keyof ScriptFailure, Check> = {
  code: name,
  message: text,
  status: whole(100),
  retryAfterMs: amount,
  retryable: flag,
  afterChunks: whole(0),
  attempts: whole(1),
};

const STEP: Record<keyof ScriptStep, Check> = {
  text,
  chunks: (value, path) => eachOf(value, path, text),
  stream: flag,
  reasoning: text,
  toolCalls: (value, path) => eachOf(value, path, checkToolCall),
  delayMs: amount,
  chunkDelayMs: amount,
  finish,
  usage: (value, path) => fieldsOf(value, path, USAGE),
  fail: (value, path) => fieldsOf(value, path, FAILURE),
};

const DIRECT_ANSWER: Record<keyof ScriptDirectAnswer, Check> = { ...STEP, source: name };

const SCRIPT: Record<keyof Script, Check> = {
  id: name,
  turns: (value, path) => {
    eachOf(value, path, (turn, turnPath) => eachOf(turn, turnPath, stepWith(STEP)));
    expect((value as unknown[]).length > 0, path, "must hold at least one turn", value);
  },
  direct: (value, path) => eachOf(value, path, stepWith(DIRECT_ANSWER)),
  chunkSize: whole(1),
  jsonMode: flag,
};

/** Throws `invalid_script`, naming the place and what belongs there, unless the value is a script. */
export function checkScript(value: unknown): Script {
  fieldsOf(value, "script", SCRIPT);
  const script = value as Script; // every field was just checked
  if (script.turns === undefined)
    throw invalid("script.turns", "is missing: give a list of turns, each a list of steps");
  return script;
}

function stepWith(fields: Readonly<Record<string, Check>>): Check {
  return (value, path) => {
    fieldsOf(value, path, fields);
    const { text: said, chunks } = value as ScriptStep; // every field was just checked
    if (said === undefined || chunks === undefined) return;
    expect(chunks.join("") === said, `${path}.chunks`, "must add up to text; give only one of them", chunks);
  };
}

function checkToolCall(value: unknown, path: string): void {
  fieldsOf(value, path, TOOL_CALL);
  const call = value as ScriptToolCall; // every field was just checked
  name(call.tool, `${path}.tool`);
  expect(call.args === undefined || call.argsText === undefined, path, "has both args and argsText; give one", value);
}

function fieldsOf(value: unknown, path: string, checks: Readonly<Record<string, Check>>): void {
  object(value, path);
  for (const [key, field] of Object.entries(value as object)) {
    const check = Object.hasOwn(checks, key) ? checks[key] : undefined;
    // A misspelt field would silently change what the script says.
    if (!check) throw invalid(`${path}.${key}`, `is not known here; fields are ${Object.keys(checks).join(", ")}`);
    if (field !== undefined) check(field, `${path}.${key}`);
  }
}

function eachOf(value: unknown, path: string, check: Check): void {
  list(value, path);
  for (const [index, item] of (value as unknown[]).entries()) check(item, `${path}[${index}]`);
}

function expect(holds: boolean, path: string, rule: string, value: unknown): void {
  if (holds) return;
  const got = value === null ? "null" : Array.isArray(value) ? "a list" : typeof value;
  throw invalid(path, value === undefined ? rule : `${rule} (got ${got === "object" ? "an object" : got})`);
}

function invalid(path: string, rule: string): TroupeError {
  return new TroupeError("invalid_script", `Invalid model script: ${path} ${rule}.`, { details: { path } });
}
