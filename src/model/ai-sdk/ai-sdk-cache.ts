import type {
  LanguageModelV3CallOptions,
  LanguageModelV3FunctionTool,
  LanguageModelV3Message,
  LanguageModelV3ProviderTool,
  SharedV3ProviderOptions,
} from "@ai-sdk/provider";
import {
  byProvider,
  type CacheMark,
  cacheMarks,
  type JsonObject,
  type Message,
  type ModelRequest,
} from "../../kernel/index.js";

type ProviderOptions = Readonly<Record<string, JsonObject>>;

/**
 * How a provider is told what to cache. `marks`: the options that mark a part of a request, for providers that cache
 * only what is marked. `key`: those of the whole request, for providers that cache by themselves and want to know which
 * requests begin alike.
 */
export type CacheHints =
  | { readonly kind: "marks"; readonly tools: boolean; readonly markOf: (mark: CacheMark) => ProviderOptions }
  | { readonly kind: "key"; readonly optionsOf: (key: string) => ProviderOptions };

/** Anthropic's own API, and its models at Google, on Azure and behind the gateway, whose packages take the same option. */
const ANTHROPIC: CacheHints = {
  kind: "marks",
  tools: true,
  markOf: ({ ttl }) => ({ anthropic: { cacheControl: { type: "ephemeral", ...(ttl !== undefined && { ttl }) } } }),
};

/** Bedrock's `converse`, which has no mark for tools: that of the system text includes them. */
const BEDROCK: CacheHints = {
  kind: "marks",
  tools: false,
  markOf: ({ ttl }) => ({ bedrock: { cachePoint: { type: "default", ...(ttl !== undefined && { ttl }) } } }),
};

const OPENAI: CacheHints = { kind: "key", optionsOf: (promptCacheKey) => ({ openai: { promptCacheKey } }) };

/** Bedrock refuses a request with a cache point for a model that cannot cache: those that can, as of November 2026. */
const CACHES_ON_BEDROCK = /anthropic\.claude-(?!3-(?:haiku|sonnet|opus)|3-5-sonnet-20240620|instant|v2)|amazon\.nova-/;

/** What a model's provider wants to be told; undefined when it caches by itself and asks nothing. */
export function cacheHintsOf({
  provider,
  modelId,
}: {
  readonly provider: string;
  readonly modelId: string;
}): CacheHints | undefined {
  if (/(?:^|\.)anthropic\./.test(provider)) return ANTHROPIC;
  if (provider === "gateway" && modelId.startsWith("anthropic/")) return ANTHROPIC;
  if (provider === "amazon-bedrock") return CACHES_ON_BEDROCK.test(modelId) ? BEDROCK : undefined;
  if (provider.startsWith("openai.")) return OPENAI;
  return undefined;
}

/** Puts hints into a prompt while it is made. */
export interface CacheMarker {
  /** The system text is the last message of the prompt. */
  system(prompt: LanguageModelV3Message[]): void;
  /** A message of the request was added to the prompt, as far as it says something. */
  passed(message: Message, prompt: LanguageModelV3Message[]): void;
  tools(tools: (LanguageModelV3FunctionTool | LanguageModelV3ProviderTool)[]): void;
}

/** Undefined when nothing is to be marked in this request. */
export function cacheMarker(request: ModelRequest, hints: CacheHints | undefined): CacheMarker | undefined {
  if (request.cache === undefined || hints?.kind !== "marks") return undefined;
  const { system, tools: ofTools, messages } = cacheMarks(request, request.cache);
  const markAt = <T extends Markable>(parts: (T | LanguageModelV3ProviderTool)[], at: number, given?: CacheMark) => {
    const part = parts[at] as T | undefined;
    if (given === undefined || part === undefined) return;
    parts[at] = { ...part, providerOptions: merged(hints.markOf(given), part.providerOptions) };
  };
  return {
    system: (prompt) => markAt(prompt, prompt.length - 1, system),
    passed: (message, prompt) => markAt(prompt, prompt.length - 1, messages.get(message)),
    // A provider's own tool cannot be marked: the mark stands at the last one of ours.
    tools: (tools) => {
      const last = tools.findLastIndex(({ type }) => type === "function");
      if (hints.tools) markAt(tools, last, ofTools);
    },
  };
}

interface Markable {
  readonly providerOptions?: SharedV3ProviderOptions;
}

/** The options of a whole request with the key in them; what the host said itself wins. */
export function withCacheKey(
  options: LanguageModelV3CallOptions,
  { cache }: ModelRequest,
  hints: CacheHints | undefined,
): LanguageModelV3CallOptions {
  if (cache === undefined || hints?.kind !== "key") return options;
  return { ...options, providerOptions: merged(hints.optionsOf(cache.key), options.providerOptions) };
}

function merged(hints: ProviderOptions, given: SharedV3ProviderOptions = {}): SharedV3ProviderOptions {
  // The same JSON; only the readonly marks differ.
  return byProvider(hints, given as ProviderOptions) as SharedV3ProviderOptions;
}
