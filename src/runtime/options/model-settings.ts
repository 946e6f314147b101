import {
  type CallSettings,
  callSettingsProblem,
  definedOnly,
  type FieldsOf,
  isRecord,
  knownInstead,
  type ModelRetry,
  retryProblem,
} from "../../kernel/index.js";
import type { ModelSource } from "../../model/index.js";
import { checkFields, invalid, isModule, moduleUrl } from "./option-checks.js";

/** A module that exports a model, or a function that makes them, and plain data for that function. */
export interface ModelModule {
  readonly module: URL | string;
  readonly options?: unknown;
  /** How failures of this model are repeated, over what its module says. */
  readonly modelRetry?: ModelRetry;
}

/** A model as a host names it: its module, or a source of its own (`scriptedModel(…)`). */
export type ModelEntry = URL | string | ModelModule | ModelSource;

/** How models are called unless an agent, a session or a turn says otherwise. */
export interface ModelCallOptions extends Omit<CallSettings, "fallbackModels"> {
  /** Who takes over, in this order, when `model` gives no answer: modules, scripts, or names of `models`. */
  readonly fallbackModels?: readonly ModelEntry[];
}

/** What models have themselves, those of the AI SDK and those of a host's own. */
const LIVE = ["specificationVersion", "modelId", "provider", "id", "stream", "doStream", "doGenerate"];

export function resolveModel(model: ModelEntry, what: string): ModelSource {
  if (model instanceof URL || typeof model === "string") return { kind: "module", url: moduleUrl(model, what) };
  if (typeof model === "object" && model !== null) {
    checkRetry(model.modelRetry, what);
    if ("module" in model) return resolveModule(model, what);
    if (model.kind === "scripted" || model.kind === "module") return model;
    if (!LIVE.some((field) => field in model)) checkFields(model, MODULE, what);
  }
  throw invalid(
    `${what} must be the URL of a module or a script; a live model object cannot cross to the session workers`,
  );
}

const MODULE: FieldsOf<ModelModule> = { module: true, options: true, modelRetry: true };

function resolveModule(model: ModelModule, what: string): ModelSource {
  checkFields(model, MODULE, what);
  const { module, options, modelRetry } = model;
  try {
    structuredClone(options);
  } catch {
    throw invalid(`${what}.options must be plain data: they cross to another thread. Keys are for secrets`);
  }
  return { kind: "module", url: moduleUrl(module, what), ...definedOnly({ options, modelRetry }) };
}

export function resolveModels(models: Readonly<Record<string, ModelEntry>>): Record<string, ModelSource> {
  if (!isRecord(models)) throw invalid("models must be an object of models by name");
  return Object.fromEntries(
    Object.entries(models).map(([name, model]) => {
      if (name === "") throw invalid("a model in models needs a name");
      return [name, resolveModel(model, `models.${name}`)];
    }),
  );
}

interface ResolvedCalling {
  readonly calling: CallSettings;
  /** Fallback models that are no models by name get a name from their place. */
  readonly models: Readonly<Record<string, ModelSource>>;
}

/** `where`: what names of fallback models begin with. */
export function resolveCalling(
  { modelOptions, modelRetry, fallbackModels }: ModelCallOptions,
  models: Readonly<Record<string, ModelSource>>,
  where = "fallbackModels",
): ResolvedCalling {
  if (fallbackModels !== undefined && !Array.isArray(fallbackModels))
    throw invalid(`${where} must be a list of models`);
  const added: Record<string, ModelSource> = {};
  const names = fallbackModels?.map((model: ModelEntry, index) => {
    if (typeof model === "string" && Object.hasOwn(models, model)) return model;
    const name = `${where}[${index}]`;
    if (typeof model === "string" && !isModule(model))
      throw invalid(
        `${name} is ${JSON.stringify(model)}, which is no model of the runtime. ${knownInstead(model, Object.keys(models))} A module is named by URL: new URL("./x.js", import.meta.url)`,
      );
    added[name] = resolveModel(model, name);
    return name;
  });
  const calling: CallSettings = definedOnly({ modelOptions, modelRetry, fallbackModels: names });
  const problem = callSettingsProblem(calling);
  if (problem !== undefined) throw invalid(problem);
  return { calling, models: { ...models, ...added } };
}

function checkRetry(modelRetry: ModelRetry | undefined, what: string): void {
  const problem = modelRetry === undefined ? undefined : retryProblem(modelRetry);
  if (problem !== undefined) throw invalid(`${what}: ${problem}`);
}
