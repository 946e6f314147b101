import type { Clock } from "../async/index.js";
import { isRecord, messageOf, TroupeError } from "../kernel/index.js";
import { importDefault } from "../wire/index.js";
import { type AiSdkModelOptions, createAiSdkModel, isAiSdkLanguageModel } from "./ai-sdk/index.js";
import type { Model, ModelSource, Script } from "./boundary/index.js";
import { createScriptedModel, defaultModel } from "./scripted/index.js";

const WHAT_TO_EXPORT =
  "Export an AI SDK language model, { model, stream: false } to ask one for whole answers, an object with id and stream(), the result of scriptedModel(), or a function that returns one of these";

/** A model and how to call it. */
type ModelWithOptions = { readonly model: unknown } & Required<AiSdkModelOptions>;

/**
 * The model a source names. Without a source: the scripted model that repeats what the user said.
 * Throws `model_module_not_found`, `model_module_invalid` or `invalid_script`.
 *
 * @example
 * const model = await loadModel({ kind: "module", url: new URL("./model.js", import.meta.url).href }, clock);
 */
export async function loadModel(source: ModelSource = defaultModel, clock: Clock): Promise<Model> {
  switch (source.kind) {
    case "scripted":
      return createScriptedModel(source.script, clock);
    case "module":
      return modelOf(await exportedBy(source.url), source.url, clock);
    default:
      source satisfies never;
      throw new TroupeError("model_module_invalid", "A model source has the kind 'scripted' or 'module'.");
  }
}

/** What the module's default export is, or returns when it is a function. */
async function exportedBy(url: string): Promise<unknown> {
  const exported = await importDefault(url, "model");
  if (isProvider(exported)) {
    throw invalid(url, "it exports an AI SDK provider. Export one of its models: export default provider('model-id')");
  }
  if (typeof exported !== "function") return exported;
  try {
    return await exported();
  } catch (cause) {
    throw invalid(url, `the function it exports threw: ${messageOf(cause)}`, cause);
  }
}

function modelOf(exported: unknown, url: string, clock: Clock): Model {
  if (isAiSdkLanguageModel(exported)) return createAiSdkModel(exported, clock);
  if (isWithOptions(exported)) return modelWithOptions(exported, url, clock);
  if (isModel(exported)) return exported;
  if (isScripted(exported)) return createScriptedModel(exported.script, clock);
  throw invalid(url, whyNot(exported));
}

/** Only an AI SDK model leaves a choice between its calls. */
function modelWithOptions({ model, stream }: ModelWithOptions, url: string, clock: Clock): Model {
  if (!isAiSdkLanguageModel(model)) {
    throw invalid(
      url,
      wrongVersion(model) ?? `stream: ${stream} goes with an AI SDK language model, which its model is not`,
    );
  }
  try {
    return createAiSdkModel(model, clock, { stream });
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
  return `its AI SDK model has specification ${specificationVersion}; v2, v3 and v4 are understood. Install a matching version of the provider package`;
}

function isModel(value: unknown): value is Model {
  return isRecord(value) && typeof value.id === "string" && typeof value.stream === "function";
}

function isWithOptions(value: unknown): value is ModelWithOptions {
  return isRecord(value) && value.model !== undefined && typeof value.stream === "boolean";
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
  return new TroupeError("model_module_invalid", `The model module ${url} cannot be used: ${why}.`, {
    details: { url },
    cause,
  });
}
