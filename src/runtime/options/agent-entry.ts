import {
  type Agent,
  type CompactionPolicy,
  checkBudget,
  checkConfig,
  checkPromptLayer,
  checkVersions,
  DEFAULT_CONFIG,
  definedOnly,
  invalidAgent,
  knownInstead,
  type PromptLayer,
  readAgentName,
  type SessionBudget,
  unknownName,
} from "../../kernel/index.js";
import type { ModelSource } from "../../model/index.js";
import type { AgentsSetup } from "../../session/index.js";
import { type ModelCallOptions, type ModelEntry, resolveCalling, resolveModel } from "./model-settings.js";
import { isModule } from "./option-checks.js";

/**
 * An agent as data: what its sessions have that the runtime's options do not say for all. What it leaves out is as they
 * say. It is kept with its version in each of its sessions.
 *
 * @example
 * agents: {
 *   "support@3": { model: "small", instructions: "Answer briefly.", tools: ["orders"], budget: { maxTokens: 200_000 } },
 * }
 */
export interface AgentDefinition extends ModelCallOptions {
  /** One of the runtime's `models` by name, or a model of its own as `model` takes it. Default: the runtime's. */
  readonly model?: ModelEntry;
  /** In the place of the runtime's. */
  readonly instructions?: string;
  /** Over the runtime's share of the system prompt, and under that of a session. */
  readonly prompt?: PromptLayer;
  /** By name, of the host's, the pool's and the plugins' tools: its sessions have no others. Default: all. */
  readonly tools?: readonly string[];
  /** By id, of the runtime's plugins: its sessions have no others. Default: all. */
  readonly plugins?: readonly string[];
  /** The id of one of the runtime's protocols, or `"troupe.standard"`. Default: the runtime's. */
  readonly protocol?: string;
  /** What each of its sessions may spend, in the place of the runtime's `budget`. */
  readonly budget?: SessionBudget;
  readonly limits?: AgentLimits;
  /**
   * The share of new sessions, of 1, that get this version when they ask for the agent without one; the others get the
   * newest version without a canary. Which sessions these are follows from their ids.
   */
  readonly canary?: number;
}

/** What its sessions' turns may take, in the place of the runtime's options of the same names. */
export interface AgentLimits {
  readonly maxSteps?: number | null;
  readonly noProgressLimit?: number | null;
  readonly maxContextTokens?: number | null;
  readonly compaction?: CompactionPolicy | null;
}

export type AgentDefinitions = Readonly<Record<string, AgentDefinition>>;

const KNOWN: readonly (keyof AgentDefinition)[] = [
  "model",
  "instructions",
  "prompt",
  "tools",
  "plugins",
  "protocol",
  "budget",
  "limits",
  "canary",
  "modelOptions",
  "modelRetry",
  "fallbackModels",
];
const LIMITS: readonly (keyof AgentLimits)[] = ["maxSteps", "noProgressLimit", "maxContextTokens", "compaction"];

interface AgentSources {
  /** The runtime's models, by name. */
  readonly models: Readonly<Record<string, ModelSource>>;
  /** What the workers are to call a model that only this agent has. */
  readonly nameModel: () => string;
}

/** Agents as the session workers get them. Throws `invalid_agent`. */
export function resolveAgents(definitions: AgentDefinitions, sources: AgentSources): AgentsSetup {
  if (typeof definitions !== "object" || definitions === null || Array.isArray(definitions))
    throw invalidAgent("agents must be an object of agents by name");
  checkVersions(Object.keys(definitions));
  const models: Record<string, ModelSource> = {};
  const agents = Object.entries(definitions).map(([name, definition]) => {
    const resolved = resolveAgent(name, definition, sources);
    Object.assign(models, resolved.models);
    return resolved.agent;
  });
  return { agents, models };
}

/** One agent, and the model that only it has. */
export function resolveAgent(
  name: string,
  definition: AgentDefinition,
  { models, nameModel }: AgentSources,
): { readonly agent: Agent; readonly models: Readonly<Record<string, ModelSource>> } {
  readAgentName(name);
  if (typeof definition !== "object" || definition === null) throw invalidAgent(`${name} must be an object`);
  checkKeys(definition, KNOWN, name);
  const { instructions, prompt, tools, plugins, protocol, budget, limits = {}, canary } = definition;
  checkKeys(limits, LIMITS, `${name}.limits`);
  for (const [field, names] of Object.entries({ tools, plugins }))
    if (names !== undefined && !isNames(names)) throw invalidAgent(`${name}.${field} must be a list of names`);
  if (protocol !== undefined && typeof protocol !== "string")
    throw invalidAgent(`${name}.protocol must be a plugin's id`);
  if (canary !== undefined && !(typeof canary === "number" && canary >= 0 && canary <= 1))
    throw invalidAgent(`${name}.canary must be a number from 0 to 1`);
  const config = definedOnly({ instructions, ...limits });
  checkConfig({ ...DEFAULT_CONFIG, ...config });
  const added: Record<string, ModelSource> = {};
  const add = (source: ModelSource) => {
    const known = nameModel();
    added[known] = source;
    return known;
  };
  const own = ownModel(name, definition.model, models);
  const agent = {
    name,
    config,
    ...definedOnly({
      canary,
      model: typeof own === "object" ? add(own) : own,
      calling: ownCalling(name, definition, { models, add }),
      prompt: prompt && checkPromptLayer(prompt),
      tools: tools && [...new Set(tools)],
      plugins: plugins && [...new Set(plugins)],
      protocol,
      budget: budget && checkBudget(budget),
    }),
  };
  return { agent, models: added };
}

/** How its models are called. Fallback models that are no models of the runtime are its own. */
function ownCalling(
  agent: string,
  definition: AgentDefinition,
  { models, add }: Pick<AgentSources, "models"> & { readonly add: (source: ModelSource) => string },
): Agent["calling"] {
  const resolved = resolveCalling(definition, models, `agents["${agent}"].fallbackModels`);
  const { fallbackModels, ...calling } = resolved.calling;
  const named = fallbackModels?.map((name) => {
    const source = resolved.models[name];
    return Object.hasOwn(models, name) || source === undefined ? name : add(source);
  });
  const settings = { ...calling, ...(named && { fallbackModels: named }) };
  return Object.keys(settings).length === 0 ? undefined : settings;
}

/** The name of one of the runtime's models, or a model that only this agent has. */
function ownModel(
  agent: string,
  model: ModelEntry | undefined,
  models: AgentSources["models"],
): string | ModelSource | undefined {
  if (model === undefined || (typeof model === "string" && Object.hasOwn(models, model))) return model;
  if (typeof model === "string" && !isModule(model))
    throw invalidAgent(
      `${agent}.model is ${model}, which is no model of the runtime (${knownInstead(model, Object.keys(models))}); a module is named by URL`,
    );
  return resolveModel(model, `agents["${agent}"].model`);
}

function checkKeys(given: object, known: readonly string[], what: string): void {
  const stranger = Object.keys(given).find((key) => !known.includes(key));
  if (stranger !== undefined) throw invalidAgent(unknownName(stranger, known, what, "setting"));
}

function isNames(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((name) => typeof name === "string" && name !== "");
}
