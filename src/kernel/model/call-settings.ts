import { definedOnly, isRecord, type JsonObject } from "../json.js";
import { unknownName } from "../known-names.js";
import { type ModelRetry, type RetryPolicy, retryPolicy, retryProblem } from "./retry-policy.js";

/** Which tools the model may or must call: as it likes, any one, none, or exactly this one. */
export type ToolChoice = "auto" | "required" | "none" | { readonly tool: string };

/**
 * How a model is to answer. Numbers, texts, headers and `providerOptions` are passed on to the AI SDK's call options
 * unchanged; what a provider does not know it ignores or refuses.
 */
export interface ModelOptions {
  readonly temperature?: number;
  readonly maxOutputTokens?: number;
  readonly stopSequences?: readonly string[];
  readonly seed?: number;
  readonly topP?: number;
  readonly topK?: number;
  readonly presencePenalty?: number;
  readonly frequencyPenalty?: number;
  /** Sent with the HTTP request. Stored with a session's configuration and a turn's journal, so nothing secret belongs here. */
  readonly headers?: Readonly<Record<string, string>>;
  /** By provider: what only one provider knows (`{ openai: { reasoningEffort: "low" } }`). */
  readonly providerOptions?: Readonly<Record<string, JsonObject>>;
  /** In every model call of a turn. Default `auto`. */
  readonly toolChoice?: ToolChoice;
  /** False: the provider is asked for one tool call at a time, in its own words. */
  readonly parallelToolCalls?: boolean;
  /** Only these of the session's tools, by name. */
  readonly activeTools?: readonly string[];
}

/** What one layer (runtime, agent, session, turn) says of how models are called. */
export interface CallSettings {
  readonly modelOptions?: ModelOptions;
  readonly modelRetry?: ModelRetry;
  /** Names of models that take over, in this order, when the ones before gave no answer. */
  readonly fallbackModels?: readonly string[];
}

/** The layers of a model call, each over those before it. */
export interface CallLayers {
  readonly runtime?: CallSettings | undefined;
  readonly agent?: CallSettings | undefined;
  readonly session?: CallSettings | undefined;
  readonly turn?: CallSettings | undefined;
}

export const NO_CALL_SETTINGS: CallSettings = Object.freeze({});

/**
 * What a model call is made with. Options are merged field by field, headers and provider options key by key; of the
 * lists of fallback models the strongest counts as a whole.
 *
 * @example
 * callSettings({ runtime: { modelOptions: { temperature: 1, seed: 7 } }, turn: { modelOptions: { temperature: 0 } } });
 * // { modelOptions: { temperature: 0, seed: 7 } }
 */
export function callSettings({ runtime, agent, session, turn }: CallLayers): CallSettings {
  const layers = [runtime, agent, session, turn].filter((layer) => layer !== undefined && layer !== NO_CALL_SETTINGS);
  if (layers.length === 0) return NO_CALL_SETTINGS;
  const modelOptions = mergeModelOptions(layers.map((layer) => layer?.modelOptions));
  const fallbackModels = layers.findLast((layer) => layer?.fallbackModels !== undefined)?.fallbackModels;
  if (modelOptions === undefined && fallbackModels === undefined) return NO_CALL_SETTINGS;
  return definedOnly({ modelOptions, fallbackModels });
}

/** How a model's failures are repeated. The model's own word is over the runtime's and the agent's, under the turn's. */
export function retryPolicyOf({ runtime, agent, session, turn }: CallLayers, model?: ModelRetry): RetryPolicy {
  return retryPolicy([runtime?.modelRetry, agent?.modelRetry, model, session?.modelRetry, turn?.modelRetry]);
}

/** Several options as one, the later the stronger; undefined when there are none. */
export function mergeModelOptions(layers: readonly (ModelOptions | undefined)[]): ModelOptions | undefined {
  let merged: ModelOptions | undefined;
  for (const layer of layers) {
    if (layer === undefined) continue;
    merged = merged === undefined ? layer : laidOver(merged, layer);
  }
  return merged;
}

function laidOver(under: ModelOptions, over: ModelOptions): ModelOptions {
  const headers = over.headers && { ...under.headers, ...over.headers };
  const providerOptions = over.providerOptions && byProvider(under.providerOptions ?? {}, over.providerOptions);
  return { ...under, ...definedOnly(over), ...definedOnly({ headers, providerOptions }) };
}

type ProviderOptions = NonNullable<ModelOptions["providerOptions"]>;

export function byProvider(under: ProviderOptions, over: ProviderOptions): ProviderOptions {
  const merged = { ...under };
  for (const [provider, options] of Object.entries(over)) merged[provider] = { ...under[provider], ...options };
  return merged;
}

type Field = readonly [fits: (value: unknown) => boolean, is: string];

const MAX_NAMES = 1_000;
const MAX_HEADERS = 100;
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9a-z-]+$/i;
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

const number: Field = [(value) => Number.isFinite(value), "a number"];
const count: Field = [(value) => Number.isSafeInteger(value) && (value as number) >= 1, "a whole number from 1"];
const names: Field = [isNames, "a list of names"];

const OPTIONS: { readonly [F in keyof Required<ModelOptions>]: Field } = {
  temperature: number,
  maxOutputTokens: count,
  stopSequences: [isNames, "a list of texts"],
  seed: [(value) => Number.isSafeInteger(value), "a whole number"],
  topP: number,
  topK: number,
  presencePenalty: number,
  frequencyPenalty: number,
  headers: [isHeaders, "an object of HTTP headers, each a text of one line"],
  providerOptions: [
    (value) => isRecord(value) && Object.values(value).every((options) => isRecord(options) && isPlain(options)),
    "an object of JSON objects by provider",
  ],
  toolChoice: [isToolChoice, '"auto", "required", "none" or { tool: name }'],
  parallelToolCalls: [(value) => typeof value === "boolean", "true or false"],
  activeTools: names,
};

/** What is wrong with model options from outside, in words; undefined when nothing is. */
export function modelOptionsProblem(options: unknown): string | undefined {
  if (!isRecord(options)) return "modelOptions is an object";
  for (const [name, value] of Object.entries(options)) {
    const field = Object.hasOwn(OPTIONS, name) ? OPTIONS[name as keyof ModelOptions] : undefined;
    if (field === undefined)
      return `${unknownName(name, Object.keys(OPTIONS), "modelOptions", "option")} What only a provider knows goes into providerOptions.`;
    const [fits, is] = field;
    if (value !== undefined && !fits(value)) return `modelOptions.${name} is ${is}`;
  }
  return undefined;
}

/** What is wrong with one layer's settings, in words; undefined when nothing is. */
export function callSettingsProblem({ modelOptions, modelRetry, fallbackModels }: CallSettings): string | undefined {
  return (
    (modelOptions === undefined ? undefined : modelOptionsProblem(modelOptions)) ??
    (modelRetry === undefined ? undefined : retryProblem(modelRetry)) ??
    (fallbackModels === undefined || isNames(fallbackModels)
      ? undefined
      : "fallbackModels is a list of names of models")
  );
}

function isNames(value: unknown): boolean {
  return (
    Array.isArray(value) && value.length <= MAX_NAMES && value.every((name) => typeof name === "string" && name !== "")
  );
}

function isHeaders(value: unknown): boolean {
  if (!isRecord(value)) return false;
  const headers = Object.entries(value);
  return (
    headers.length <= MAX_HEADERS &&
    headers.every(([name, text]) => HEADER_NAME.test(name) && typeof text === "string" && HEADER_VALUE.test(text))
  );
}

function isToolChoice(value: unknown): boolean {
  if (isRecord(value)) return typeof value.tool === "string" && Object.keys(value).length === 1;
  return value === "auto" || value === "required" || value === "none";
}

const MAX_DEPTH = 16;

/** JSON: what crosses threads and can be stored, and says the same afterwards. */
function isPlain(value: unknown, depth = 0): boolean {
  if (value === null || typeof value === "string" || typeof value === "boolean") return true;
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object" || depth === MAX_DEPTH) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  const plain = Array.isArray(value) || prototype === Object.prototype || prototype === null;
  return plain && Object.values(value).every((inner) => isPlain(inner, depth + 1));
}
