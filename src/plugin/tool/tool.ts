import {
  type ApprovalDemand,
  checkRetryPolicy,
  definedOnly,
  type FieldsOf,
  invalidTool,
  isRecord,
  type Json,
  type JsonObject,
  problemWithDemand,
  type RequireApproval,
  type ToolRetry,
  type ToolRetryPolicy,
  unknownField,
} from "../../kernel/index.js";
import type { SharedState, ToolHookHost } from "../host/index.js";
import { type InferSchema, isStandardSchema, type Schema } from "../schema/index.js";
import { toolAnswerInvalid } from "./tool-answer.js";

/** What a tool knows about the call it answers. */
export interface ToolContext {
  readonly sessionId: string;
  readonly turnId: string;
  readonly callId: string;
  /** Under which the answer can be given later, when the tool returns `pendingTool()`. */
  readonly completionKey: string;
  /**
   * Aborts when the turn is cancelled or the call is past its time limit. What the tool returns within its
   * `cancelGraceMs` still counts; afterwards nobody waits for it, and in the tool pool its thread is stopped.
   */
  readonly signal: AbortSignal;
  /**
   * Tells whoever streams or observes the turn how far the call is, as an activity `tool_progress`: plain JSON of up to
   * 16 KB. Told at most every 50 milliseconds, the latest value first; `missed` counts what was left out. Never throws,
   * and says nothing when the call has ended.
   */
  progress(value: unknown): void;
}

/** What a tool's `approval` may say of a call: whether somebody is asked, and what they are told. */
export type ApprovalWish = boolean | string | JsonObject | RequireApproval | undefined;

/**
 * A tool's `approval`. A function runs where the tool does, with arguments that fit its schema, and may return a promise;
 * one that throws fails the call.
 */
export type ToolApproval<Args, Context> =
  | boolean
  | RequireApproval
  | ((args: Args, context: Context) => ApprovalWish | Promise<ApprovalWish>);

/** A tool: what the model is told about it, and what it does. */
export interface ToolDefinition<S extends Schema = Schema, O extends Schema = Schema> {
  /** Written for the model: what the tool does and when to call it. */
  readonly description: string;
  readonly inputSchema: S;
  /** How long a call may take; default 60 seconds. */
  readonly timeoutMs?: number;
  /** How long after its signal aborted the tool may still finish; default 50 milliseconds. 0: it may not. */
  readonly cancelGraceMs?: number;
  /**
   * Whether somebody outside must say yes before the tool runs: always (`true`, or what `requireApproval` gives), or as
   * a function of the arguments decides. The answer comes by `troupe.approve` or `troupe.deny`. Default: nobody is asked.
   */
  readonly approval?: ToolApproval<InferSchema<S>, ToolContext & { readonly options: InferSchema<O> }>;
  /** Whether a failed call is made again. Default `never`. */
  readonly retry?: ToolRetry;
  /** Calls at once, over all sessions of a session worker. Default: any number. */
  readonly maxConcurrent?: number;
  /**
   * For protocols that pass references instead of values: what this tool wants done with them. The runtime only tells it,
   * to `beforeToolCall` hooks and in the session's tools.
   */
  readonly argumentProjection?: Json;
  /** Of a tool in the pool: what the `options` of its entry must be. Any Standard Schema or a JSON Schema. */
  readonly options?: O;
  /**
   * Gets arguments that passed `inputSchema`; returns (or resolves to) anything JSON can say. May throw. In the pool
   * `ctx.options` is what the host's entry for the tool has, as `options` read it. An async generator's values are
   * preliminary results, each told as an activity `tool_preliminary`; the last one is the result.
   */
  execute(args: InferSchema<S>, ctx: ToolContext & { readonly options: InferSchema<O> }): unknown;
}

/**
 * Gives a tool its types: `args` follows from `inputSchema`. A module whose default export is a tool runs in the tool
 * pool, on a thread of its own that is stopped when a call is aborted or late and does not end by itself.
 *
 * @example
 * // weather.js, named in the host's options: tools: { weather: { module: new URL("./weather.js", import.meta.url) } }
 * export default defineTool({
 *   description: "The weather in a city, now.",
 *   inputSchema: z.object({ city: z.string() }),
 *   async execute({ city }, { signal }) {
 *     const response = await fetch(`https://weather.example/${city}`, { signal });
 *     return response.json();
 *   },
 * });
 */
export function defineTool<const S extends Schema, const O extends Schema = Schema>(
  definition: ToolDefinition<S, O>,
): ToolDefinition<S, O> {
  return definition;
}

/** How a tool's calls are treated, as data. */
export interface ToolPolicy
  extends Pick<ToolDefinition, "timeoutMs" | "cancelGraceMs" | "maxConcurrent" | "argumentProjection"> {
  readonly retry?: ToolRetryPolicy;
  /** What is asked before each call, or that the tool's own code says it. */
  readonly approval?: ApprovalDemand | "by_code";
}

/** The policy a definition asks for, checked and completed. */
export function toolPolicy(what: string, definition: Partial<Record<keyof ToolPolicy, unknown>>): ToolPolicy {
  const { timeoutMs, cancelGraceMs, maxConcurrent, argumentProjection } = definition;
  if (cancelGraceMs !== undefined && cancelGraceMs !== 0 && !isTimeout(cancelGraceMs))
    throw invalidTool(what, `cancelGraceMs must be a whole number from 0 to ${MAX_TIMEOUT_MS}`);
  if (maxConcurrent !== undefined && !isTimeout(maxConcurrent))
    throw invalidTool(what, "maxConcurrent must be a whole number from 1");
  const retry = checkRetryPolicy(what, definition.retry);
  const approval = approvalPolicy(what, definition.approval);
  return definedOnly({ timeoutMs, cancelGraceMs, retry, maxConcurrent, argumentProjection, approval }) as ToolPolicy;
}

function approvalPolicy(what: string, approval: unknown): ToolPolicy["approval"] {
  if (approval === undefined || approval === false) return undefined;
  if (approval === true) return {};
  if (typeof approval === "function") return "by_code";
  if (!isDemand(approval)) throw invalidTool(what, "approval must be true, a function, or what requireApproval gives");
  const problem = problemWithDemand(approval.demand);
  if (problem !== undefined) throw invalidTool(what, `approval: ${problem}`);
  return approval.demand;
}

function isDemand(given: unknown): given is RequireApproval {
  return isRecord(given) && given.kind === "require_approval";
}

/**
 * What a tool's own code says of a call: what is asked, or null for nothing. Throws `tool_answer_invalid` for anything a
 * tool cannot say, so that the call fails and does not run unasked.
 */
export function demandOf(wish: unknown): ApprovalDemand | null {
  if (wish === undefined || wish === null || wish === false) return null;
  if (wish === true) return {};
  const demand = isDemand(wish) ? wish.demand : { announcement: wish };
  const problem = problemWithDemand(demand);
  if (problem !== undefined) throw toolAnswerInvalid(`approval: ${problem}`);
  return demand as ApprovalDemand;
}

/** Every model provider accepts these names. */
const TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/;
/** What a timer can hold; a longer limit would fire at once. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** Throws `invalid_tool` unless the name is 1 to 64 letters, digits, `_` or `-`. */
export function checkToolName(name: unknown): string {
  if (typeof name === "string" && TOOL_NAME.test(name)) return name;
  const given = JSON.stringify(name) ?? typeof name;
  throw invalidTool(`Tool ${given}`, 'its name must be 1 to 64 letters, digits, "_" or "-"');
}

/**
 * Throws `invalid_tool` with the reason unless this is a tool with a usable name.
 *
 * @example
 * checkToolDefinition("weather", { description: "…", inputSchema: {} });
 * // TroupeError invalid_tool: Tool weather: execute must be a function, not undefined.
 */
export function checkToolDefinition(name: string, definition: unknown): ToolDefinition {
  return checkTool(`Tool ${checkToolName(name)}`, definition);
}

const TOOL_FIELDS: FieldsOf<ToolDefinition> = {
  description: true,
  inputSchema: true,
  timeoutMs: true,
  cancelGraceMs: true,
  approval: true,
  retry: true,
  maxConcurrent: true,
  argumentProjection: true,
  options: true,
  execute: true,
};

/** As {@link checkToolDefinition} for a tool that has no name yet, such as a module's default export. */
export function checkTool(what: string, definition: unknown): ToolDefinition {
  const refuse = (why: string) => invalidTool(what, why);
  if (typeof definition !== "object" || definition === null) {
    throw refuse(`it must be an object with description, inputSchema and execute, not ${kindOf(definition)}`);
  }
  const unknown = unknownField(definition, TOOL_FIELDS, "a tool");
  if (unknown !== undefined) throw refuse(unknown);
  const { description, inputSchema, options, execute, timeoutMs } = definition as Partial<
    Record<keyof ToolDefinition, unknown>
  >;
  if (typeof description !== "string" || description.trim() === "") {
    throw refuse("description must say in words what the tool does; the model chooses by it");
  }
  if (!isStandardSchema(inputSchema) && (typeof inputSchema !== "object" || inputSchema === null)) {
    throw refuse(`inputSchema must be a Standard Schema or a JSON Schema object, not ${kindOf(inputSchema)}`);
  }
  if (options !== undefined && !isStandardSchema(options) && (typeof options !== "object" || options === null)) {
    throw refuse(`options must be a Standard Schema or a JSON Schema object, not ${kindOf(options)}`);
  }
  if (typeof execute !== "function") throw refuse(`execute must be a function, not ${kindOf(execute)}`);
  if (timeoutMs !== undefined && !isTimeout(timeoutMs)) {
    throw refuse(`timeoutMs must be a whole number from 1 to ${MAX_TIMEOUT_MS}, not ${String(timeoutMs)}`);
  }
  toolPolicy(what, definition);
  return definition as ToolDefinition;
}

function isTimeout(value: unknown): boolean {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= MAX_TIMEOUT_MS;
}

function kindOf(value: unknown): string {
  return value === null ? "null" : typeof value;
}

/** A tool a plugin brings along: it runs on the plugin's thread, with the session's state at hand. */
export interface PluginTool<S extends Schema, State, Options, Shared = unknown>
  extends Omit<ToolDefinition<S>, "execute" | "options" | "approval"> {
  /** What stored tool state knows it by, whatever it is called. Default: its name. */
  readonly id?: string;
  /** In no catalog until a context transform names its id; it may then stand before a tool of the same name. */
  readonly onDemand?: boolean;
  /** As of any tool; a function runs on the plugin's thread, with its state. */
  readonly approval?: ToolApproval<InferSchema<S>, PluginToolContext<State, Options, Shared>>;
  execute(args: InferSchema<S>, context: PluginToolContext<State, Options, Shared>): unknown;
}

/** What a plugin's tool knows about the call it answers. */
export type PluginToolContext<State, Options, Shared = unknown> = ToolContext & {
  readonly state: State;
  readonly options: Options;
  readonly host: ToolHookHost;
  /** What sessions of the same key share; only of a plugin that declares `shared`. */
  readonly shared: SharedState<Shared>;
};
