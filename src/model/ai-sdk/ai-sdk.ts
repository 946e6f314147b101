import type { ReadableStream, ReadableStreamDefaultReader } from "node:stream/web";
import type { LanguageModelV3CallOptions } from "@ai-sdk/provider";
import { abortWith, type Clock, ignore, onAbort, untilAborted } from "../../async/index.js";
import { aborted, type ModelEvent, type ModelRequest } from "../../kernel/index.js";
import { type Model, type Moment, modelError, type ReportReplayDrops } from "../boundary/index.js";
import { generatedEvents, modelEvents } from "./ai-sdk-answer.js";
import { type CacheHints, cacheHintsOf } from "./ai-sdk-cache.js";
import { callOptions, type ProviderTools } from "./ai-sdk-prompt.js";
import { type PromptForm, toolMediaOf } from "./ai-sdk-tool-output.js";
import { checkProviderTools } from "./provider-tools.js";

/** How long a finished response may take to end before its connection is dropped instead of reused. */
const DRAIN_MS = 1000;

export const SPECIFICATIONS = ["v2", "v3", "v4"];

/**
 * What is needed of an AI SDK language model, of any version from 2 to 4: at least one of its two calls.
 * Its own types are an optional peer.
 */
export interface AiSdkLanguageModel {
  readonly specificationVersion: string;
  readonly provider: string;
  readonly modelId: string;
  // `never`: each version types its options differently, and all take what `callOptions` makes.
  doStream?(options: never): PromiseLike<{ readonly stream: ReadableStream<unknown> }>;
  doGenerate?(options: never): PromiseLike<unknown>;
}

type Named = Pick<AiSdkLanguageModel, "provider" | "modelId">;
type Streaming = Named & Required<Pick<AiSdkLanguageModel, "doStream">>;
type Generating = Named & Required<Pick<AiSdkLanguageModel, "doGenerate">>;

export interface AiSdkModelOptions {
  /** False: ask for the whole answer at once. Default: stream when the model can. */
  readonly stream?: boolean;
  /**
   * Tools of the provider itself, by the names the model calls them by: what a provider package makes
   * (`anthropic.tools.webSearch_20250305()`) and `streamText` takes as `tools`.
   */
  readonly providerTools?: Readonly<Record<string, unknown>>;
  /**
   * Files the model takes from a tool, by media type (`"application/pdf"`, `"image/*"`). Default: those its provider is
   * known to take. Of others the model reads that there is a file.
   */
  readonly toolMedia?: readonly string[];
  /**
   * How a turn's `output` is asked for: by the provider's own JSON mode, or by a tool that the model ends with. Default:
   * the JSON mode where the model is known to have one that takes a schema.
   */
  readonly structuredOutput?: "native" | "tool";
}

/** Is this a language model of a version the adapter understands? */
export function isAiSdkLanguageModel(value: unknown): value is AiSdkLanguageModel {
  if (typeof value !== "object" || value === null) return false;
  const { specificationVersion } = value as Partial<AiSdkLanguageModel>;
  return SPECIFICATIONS.includes(specificationVersion ?? "") && (canStream(value) || canGenerate(value));
}

function canStream(model: Partial<AiSdkLanguageModel>): model is Streaming {
  return typeof model.doStream === "function";
}

function canGenerate(model: Partial<AiSdkLanguageModel>): model is Generating {
  return typeof model.doGenerate === "function";
}

/**
 * Makes any AI SDK language model a Troupe model. Throws a TypeError when the model lacks the call that
 * `stream` asks for, or one of `providerTools` is none.
 *
 * @example
 * import { createAnthropic } from "@ai-sdk/anthropic";
 * const model = createAiSdkModel(createAnthropic()("claude-sonnet-4-5"), clock);
 */
export function createAiSdkModel(model: AiSdkLanguageModel, clock: Clock, options: AiSdkModelOptions = {}): Model {
  const id = `${model.provider}:${model.modelId}`;
  const route = aiSdkRoute(model);
  const hints = cacheHintsOf(model);
  const { stream = canStream(model), toolMedia = toolMediaOf(model.provider), structuredOutput } = options;
  if (structuredOutput !== undefined && structuredOutput !== "native" && structuredOutput !== "tool")
    throw new TypeError(`${id}: structuredOutput is "native" or "tool"`);
  const form = { version: model.specificationVersion, toolMedia };
  const answer = answering(model, stream);
  const providerTools = checkProviderTools(options.providerTools ?? {});
  return {
    id,
    route,
    answersInForm: ({ tools }) =>
      structuredOutput === undefined ? hasJsonMode(model, tools.length > 0) : structuredOutput === "native",
    stream: (request, signal, onReplayDropped) =>
      answer({ request, signal, route, form, onReplayDropped, providerTools, hints, clock }),
  };
}

/** Providers whose packages send a schema to the provider, or make a tool of it where a model has no mode for it. */
const WITH_SCHEMAS = /^(openai|azure|anthropic|google|vertex|amazon-bedrock|bedrock|xai|groq|mistral|cohere)\b/;
/** Gemini takes no schema beside tools. */
const NOT_BESIDE_TOOLS = /^(google|vertex)(?!.*anthropic)/;

/** What a model says of itself counts (`supportsStructuredOutputs` of OpenAI-compatible ones); otherwise who its provider is. */
function hasJsonMode(model: Named, hasTools: boolean): boolean {
  const { supportsStructuredOutputs: said } = model as { readonly supportsStructuredOutputs?: unknown };
  if (typeof said === "boolean") return said;
  return WITH_SCHEMAS.test(model.provider) && !(hasTools && NOT_BESIDE_TOOLS.test(model.provider));
}

function answering(model: AiSdkLanguageModel, stream: boolean): (call: Call) => AsyncGenerator<ModelEvent> {
  if (stream && canStream(model)) return (call) => streamed(model, call);
  if (!stream && canGenerate(model)) return (call) => generated(model, call);
  const missing = `${model.provider}:${model.modelId} has no ${stream ? "doStream()" : "doGenerate()"}`;
  throw new TypeError(`${missing}, which stream: ${stream} needs`);
}

/** One call of an AI SDK model. */
interface Call {
  readonly request: ModelRequest;
  readonly signal: AbortSignal;
  readonly route: string;
  readonly form: PromptForm;
  readonly onReplayDropped: ReportReplayDrops | undefined;
  readonly providerTools: ProviderTools;
  readonly hints: CacheHints | undefined;
  readonly clock: Clock;
}

async function* generated(model: Generating, { request, signal, clock, ...facts }: Call): AsyncGenerator<ModelEvent> {
  if (signal.aborted) throw aborted(signal);
  try {
    const generating = (async () =>
      model.doGenerate(callOptions(request, { ...facts, abortSignal: signal }) as never))();
    for (const event of generatedEvents(await untilAborted(generating, signal))) {
      if (signal.aborted) throw aborted(signal);
      yield event;
    }
  } catch (thrown) {
    throw signal.aborted ? aborted(signal) : modelError(thrown, { moment: "opening", clock });
  }
}

async function* streamed(model: Streaming, { request, signal, clock, ...facts }: Call): AsyncGenerator<ModelEvent> {
  if (signal.aborted) throw aborted(signal);
  // Our own controller: aborting it is the only way to free a connection a provider opened and then gave up on.
  const call = new AbortController();
  const letGo = abortWith(call, signal);
  let moment: Moment = "opening";
  let reader: ReadableStreamDefaultReader<unknown> | undefined;
  let finished = false;
  try {
    reader = (await open(model, callOptions(request, { ...facts, abortSignal: call.signal }))).getReader();
    moment = "streaming";
    for await (const event of modelEvents(partsOf(reader, signal), clock)) {
      finished = event.type === "finish";
      yield event;
    }
  } catch (thrown) {
    throw signal.aborted ? aborted(signal) : modelError(thrown, { moment, clock });
  } finally {
    letGo();
    if (finished && reader) void drain(reader, call, clock);
    else drop(reader, call);
  }
}

/** Starts the call; a stream that comes when nobody waits for it any more is cancelled. */
async function open(model: Streaming, options: LanguageModelV3CallOptions): Promise<ReadableStream<unknown>> {
  const signal = options.abortSignal as AbortSignal; // callOptions always sets it
  const opening = (async () => (await model.doStream(options as never)).stream)();
  try {
    return await untilAborted(opening, signal);
  } catch (thrown) {
    opening.then((late) => late.cancel()).catch(ignore);
    throw thrown;
  }
}

async function* partsOf(reader: ReadableStreamDefaultReader<unknown>, signal: AbortSignal): AsyncGenerator<unknown> {
  // Cancelling resolves a pending read, so this ends the wait even when the model ignores its signal.
  const letGo = onAbort(signal, () => void reader.cancel(signal.reason).catch(ignore));
  try {
    while (true) {
      const { done, value } = await reader.read();
      if (signal.aborted) throw aborted(signal);
      if (done) return;
      yield value;
    }
  } finally {
    letGo();
  }
}

/** Reads a finished response to its end, so that its connection can be used again. */
async function drain(reader: ReadableStreamDefaultReader<unknown>, call: AbortController, clock: Clock): Promise<void> {
  const timer = clock.timeout(DRAIN_MS, () => drop(reader, call)).unref();
  try {
    while (!(await reader.read()).done);
  } catch {
    // The answer is already complete.
  } finally {
    timer.cancel();
  }
}

function drop(reader: ReadableStreamDefaultReader<unknown> | undefined, call: AbortController): void {
  reader?.cancel().catch(ignore);
  call.abort();
}

/** Where provider packages keep a model's address. */
type Address = string | ((options: { readonly path: string; readonly modelId: string }) => unknown);

/**
 * Who answers: provider, model and endpoint. The same model behind another gateway is another route, because what one
 * signs the other need not accept. The specification has no field for the endpoint; the provider packages keep it in
 * their `config`, as `baseURL`, `baseUrl` or `url()`. A model that keeps it elsewhere is told by provider and model alone.
 */
export function aiSdkRoute(model: Named): string {
  const id = `${model.provider}:${model.modelId}`;
  const endpoint = endpointOf(model);
  return endpoint === undefined ? id : `${id}@${endpoint}`;
}

function endpointOf(model: Named): string | undefined {
  const { config } = model as { readonly config?: Partial<Record<"baseURL" | "baseUrl" | "url", Address>> };
  const address = config?.baseURL ?? config?.baseUrl ?? config?.url;
  try {
    const said = typeof address === "function" ? address({ path: "", modelId: model.modelId }) : address;
    // Only where it is: user names, passwords and keys in the query are nobody's business.
    const { origin, pathname } = new URL(String(said));
    return `${origin}${pathname}`;
  } catch {
    return undefined;
  }
}
