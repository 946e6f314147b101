import type { Clock } from "../async/index.js";
import { isRecord, type ModelRetry, messageOf, retryProblem, type TroupeError } from "../kernel/index.js";
import { importDefault, moduleInvalid } from "../wire/index.js";
import { type AiSdkModelOptions, createAiSdkModel, isAiSdkLanguageModel, SPECIFICATIONS } from "./ai-sdk/index.js";
import type { Model, ModelContext, ModelFactory, ModelSource, Script } from "./boundary/index.js";
import { createScriptedModel, defaultModel } from "./scripted/index.js";

const WHAT_TO_EXPORT =
  "Export an AI SDK language model, { model, stream: false, modelRetry, providerTools } to say how it is asked, an object with id and stream(), the result of scriptedModel(), a function that returns one of these, or one that takes ({ tenant, agent, secrets, options }) and returns one for each tenant and agent";

/** A model and how to call it. */
interface ModelWithOptions extends AiSdkModelOptions {
  readonly model: unknown;
  readonly modelRetry?: unknown;
}

/**
 * The model a source names, or what makes one for each tenant and agent: a module whose function declares a parameter.
 * Without a source: the scripted model that repeats what the user said.
 * Throws `model_module_not_found`, `model_module_invalid` or `invalid_script`.
 *
 * @example
 * const model = await loadModel({ kind: "module", url: new URL("./model.js", import.meta.url).href }, clock);
 */
export async function loadModel(source: ModelSource = defaultModel, clock: Clock): Promise<Model | ModelFactory> {
  switch (source.kind) {
    case "scripted":
      return withRetry(createScriptedModel(source.script, clock), source.modelRetry);
    case "module":
      return loadModule(source, clock);
    default:
      source satisfies never;
      throw invalid(String((source as ModelSource).kind), "a model is a URL, a path or what scriptedModel returns");
  }
}
/** The model with its own word on retries. A model may be an instance of a class, so it is not copied. */
function withRetry(model: Model, modelRetry: ModelRetry | undefined): Model {
  if (modelRetry === undefined) return model;
  const { id, route, answersInForm } = model;
  return {
    id,
    ...(route !== undefined && { route }),
    ...(answersInForm && { answersInForm: (request) => answersInForm.call(model, request) }),
    modelRetry: { ...model.modelRetry, ...modelRetry },
    stream: (request, signal, onReplayDropped) => model.stream(request, signal, onReplayDropped),
  };
}

type ModuleSource = Extract<ModelSource, { kind: "module" }>;
type Made = (context: unknown) => unknown;

const TAKES_NO_OPTIONS =
  "it was given options and exports no function that takes them. Write export default ({ options }) => …, which returns the model";

async function loadModule({ url, options, modelRetry }: ModuleSource, clock: Clock): Promise<Model | ModelFactory> {
  const exported = await importDefault(url, "model");
  if (isProvider(exported)) {
    throw invalid(url, "it exports an AI SDK provider. Export one of its models: export default provider('model-id')");
  }
  const modelIn = (given: unknown) => withRetry(modelOf(given, url, clock), modelRetry);
  if (typeof exported !== "function") {
    if (options !== undefined) throw invalid(url, TAKES_NO_OPTIONS);
    return modelIn(exported);
  }
  const make = async (context: object) => modelIn(await returned(exported as Made, context, url));
  return exported.length === 0 ? make(onceForAll(url, options)) : { url, options, make };
}

async function returned(make: Made, context: object, url: string): Promise<unknown> {
  try {
    return await make(context);
  } catch (cause) {
    throw invalid(url, `the function it exports threw: ${messageOf(cause)}`, cause);
  }
}

/**
 * What a function without a declared parameter is called with, once for all sessions. One that looks for its tenant all
 * the same, as `({ tenant } = {}) => …` does, would give every tenant the key of nobody.
 */
function onceForAll(url: string, options: unknown): ModelContext {
  const refuse = (): never => {
    throw invalid(url, "its function looks at its parameter and has a default for it. Declare it without one");
  };
  return {
    options,
    get tenant() {
      return refuse();
    },
    get agent() {
      return refuse();
    },
    get secrets() {
      return refuse();
    },
  };
}

function modelOf(exported: unknown, url: string, clock: Clock): Model {
  if (isAiSdkLanguageModel(exported)) return createAiSdkModel(exported, clock);
  if (isWithOptions(exported)) return modelWithOptions(exported, url, clock);
  if (isModel(exported)) return withRetry(exported, retryIn(exported, url));
  if (isScripted(exported)) return createScriptedModel(exported.script, clock);
  throw invalid(url, whyNot(exported));
}

function retryIn({ modelRetry }: { readonly modelRetry?: unknown }, url: string): ModelRetry | undefined {
  const problem = modelRetry === undefined ? undefined : retryProblem(modelRetry);
  if (problem !== undefined) throw invalid(url, problem);
  return modelRetry as ModelRetry | undefined; // just checked
}

/** Only an AI SDK model leaves a choice between its calls, and takes tools of its provider. */
function modelWithOptions(exported: ModelWithOptions, url: string, clock: Clock): Model {
  const { model, stream, providerTools, toolMedia, structuredOutput } = exported;
  const modelRetry = retryIn(exported, url);
  const [option] = Object.entries({ stream, providerTools, toolMedia, structuredOutput }).filter(
    ([, value]) => value !== undefined,
  );
  if (option === undefined) return withRetry(modelOf(model, url, clock), modelRetry);
  if (!isAiSdkLanguageModel(model)) {
    const given = option[0] === "stream" ? `stream: ${stream}` : option[0];
    throw invalid(url, wrongVersion(model) ?? `${given} goes with an AI SDK language model, which its model is not`);
  }
  if (toolMedia !== undefined && !toolMedia.every((media) => typeof media === "string"))
    throw invalid(url, 'its toolMedia must be a list of media types, such as "image/*"');
  try {
    return withRetry(createAiSdkModel(model, clock, exported), modelRetry);
  } catch (cause) {
    throw invalid(url, messageOf(cause), cause);
  }
}

function whyNot(exported: unknown): string {
  const version = wrongVersion(exported);
  if (version !== undefined) return version;
  const { stream } = (exported ?? {}) as Record<string, unknown>;
  if (typeof stream === "function") return "its model has no id. Add a string id that names it";
  return `its default export is no model. ${WHAT_TO_EXPORT}`;
}

function wrongVersion(model: unknown): string | undefined {
  const { specificationVersion } = (model ?? {}) as Record<string, unknown>;
  if (typeof specificationVersion !== "string") return undefined;
  if (SPECIFICATIONS.includes(specificationVersion))
    return "its AI SDK model is no language model: it has neither doStream() nor doGenerate(). Export one that has";
  return `its AI SDK model has specification ${specificationVersion}; v2, v3 and v4 are understood. Install a matching version of the provider package`;
}

function isModel(value: unknown): value is Model {
  return isRecord(value) && typeof value.id === "string" && typeof value.stream === "function";
}

function isWithOptions(value: unknown): value is ModelWithOptions {
  if (!isRecord(value) || value.model === undefined) return false;
  const { stream, modelRetry, providerTools, toolMedia } = value;
  if (stream !== undefined) return typeof stream === "boolean";
  return modelRetry !== undefined || providerTools !== undefined || Array.isArray(toolMedia);
}

function isScripted(value: unknown): value is { readonly kind: "scripted"; readonly script: Script } {
  return isRecord(value) && value.kind === "scripted" && "script" in value;
}

/** AI SDK providers are functions too, but want a model id. */
function isProvider(value: unknown): boolean {
  if ((typeof value !== "function" && typeof value !== "object") || value === null) return false;
  return "languageModel" in value && typeof value.languageModel === "function";
}

function invalid(url: string, why: string, cause?: unknown): TroupeError {
  return moduleInvalid("model", url, why, cause);
}
