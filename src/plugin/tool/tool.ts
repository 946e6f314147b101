import {
  checkRetryPolicy,
  definedOnly,
  type Json,
  type ToolRetry,
  type ToolRetryPolicy,
  TroupeError,
} from "../../kernel/index.js";
import type { ToolHookHost } from "../host/index.js";
import { type InferSchema, isStandardSchema, type Schema } from "../schema/index.js";

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
}

/** A tool: what the model is told about it, and what it does. */
export interface ToolDefinition<S extends Schema = Schema> {
  /** Written for the model: what the tool does and when to call it. */
  readonly description: string;
  readonly inputSchema: S;
  /** How long a call may take; default 60 seconds. */
  readonly timeoutMs?: number;
  /** How long after its signal aborted the tool may still finish; default 50 milliseconds. 0: it may not. */
  readonly cancelGraceMs?: number;
  /** Whether a failed call is made again. Default `never`. */
  readonly retry?: ToolRetry;
  /** Calls at once, over all sessions of a session worker. Default: any number. */
  readonly maxConcurrent?: number;
  /**
   * For protocols that pass references instead of values: what this tool wants done with them. The runtime only tells it,
   * to `beforeToolCall` hooks and in the session's tools.
   */
  readonly argumentProjection?: Json;
  /** Gets arguments that passed `inputSchema`; returns (or resolves to) anything JSON can say. May throw. */
  execute(args: InferSchema<S>, ctx: ToolContext): unknown;
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
export function defineTool<const S extends Schema>(definition: ToolDefinition<S>): ToolDefinition<S> {
  return definition;
}

/** How a tool's calls are treated, as data. */
export interface ToolPolicy
  extends Pick<ToolDefinition, "timeoutMs" | "cancelGraceMs" | "maxConcurrent" | "argumentProjection"> {
  readonly retry?: ToolRetryPolicy;
}

/** The policy a definition asks for, checked and completed. */
export function toolPolicy(what: string, definition: Partial<Record<keyof ToolPolicy, unknown>>): ToolPolicy {
  const { timeoutMs, cancelGraceMs, maxConcurrent, argumentProjection } = definition;
  if (cancelGraceMs !== undefined && cancelGraceMs !== 0 && !isTimeout(cancelGraceMs))
    throw new TroupeError("invalid_tool", `${what}: cancelGraceMs must be a whole number from 0 to ${MAX_TIMEOUT_MS}.`);
  if (maxConcurrent !== undefined && !isTimeout(maxConcurrent))
    throw new TroupeError("invalid_tool", `${what}: maxConcurrent must be a whole number from 1.`);
  const retry = checkRetryPolicy(what, definition.retry);
  return definedOnly({ timeoutMs, cancelGraceMs, retry, maxConcurrent, argumentProjection }) as ToolPolicy;
}

/** Every model provider accepts these names. */
const TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/;
/** What a timer can hold; a longer limit would fire at once. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** Throws `invalid_tool` unless the name is 1 to 64 letters, digits, `_` or `-`. */
export function checkToolName(name: unknown): string {
  if (typeof name === "string" && TOOL_NAME.test(name)) return name;
  throw new TroupeError(
    "invalid_tool",
    `A tool name must be 1 to 64 letters, digits, "_" or "-"; got ${JSON.stringify(name) ?? typeof name}.`,
  );
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

/** As {@link checkToolDefinition} for a tool that has no name yet, such as a module's default export. */
export function checkTool(what: string, definition: unknown): ToolDefinition {
  const refuse = (why: string) => new TroupeError("invalid_tool", `${what}: ${why}.`);
  if (typeof definition !== "object" || definition === null) {
    throw refuse(`it must be an object with description, inputSchema and execute, not ${kindOf(definition)}`);
  }
  const { description, inputSchema, execute, timeoutMs } = definition as Partial<Record<keyof ToolDefinition, unknown>>;
  if (typeof description !== "string" || description.trim() === "") {
    throw refuse("description must say in words what the tool does; the model chooses by it");
  }
  if (!isStandardSchema(inputSchema) && (typeof inputSchema !== "object" || inputSchema === null)) {
    throw refuse(`inputSchema must be a Standard Schema or a JSON Schema object, not ${kindOf(inputSchema)}`);
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
export interface PluginTool<S extends Schema, State, Options> extends Omit<ToolDefinition<S>, "execute"> {
  /** What stored tool state knows it by, whatever it is called. Default: its name. */
  readonly id?: string;
  /** In no catalog until a context transform names its id; it may then stand before a tool of the same name. */
  readonly onDemand?: boolean;
  execute(
    args: InferSchema<S>,
    context: ToolContext & { readonly state: State; readonly options: Options; readonly host: ToolHookHost },
  ): unknown;
}
