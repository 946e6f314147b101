import { refusal } from "../errors.js";
import { definedOnly, isRecord, type Json, type JsonObject, sameJson, wellFormed } from "../json.js";
import { type FieldsOf, unknownField } from "../known-names.js";
import { type CachePolicy, checkCachePolicy, type ModelOptions, modelOptionsProblem } from "../model/index.js";
import {
  type CompactionPolicy,
  checkCompaction,
  checkPromptLayer,
  checkWindow,
  type HistoryWindow,
  type PromptLayer,
} from "../prompt/index.js";

/** What a host (and the plugins that watch over it) can set for one session. */
export interface SessionConfig {
  /** The first part of the system prompt. */
  readonly instructions: string;
  /** Its share of the system prompt, over the host's; null for none. */
  readonly prompt: PromptLayer | null;
  /** Which of the host's models answers; null for the one it gave as `model`. */
  readonly model: string | null;
  /** How its models are to answer, over what the runtime says; null for nothing more. */
  readonly modelOptions: ModelOptions | null;
  /** Model calls one turn may make; null for as many as it takes. */
  readonly maxSteps: number | null;
  /** Steps in a row in which nothing worked before a turn is stopped; null for as many as it takes. */
  readonly noProgressLimit: number | null;
  /** How much the model can read; null when nobody said. Told to context transforms; `compaction` goes by it. */
  readonly maxContextTokens: number | null;
  /** When the conversation is summed up by itself; null for never. */
  readonly compaction: CompactionPolicy | null;
  /** How much of a long history the model is given; null for all of it. */
  readonly window: HistoryWindow | null;
  /** Where requests are marked for providers that cache only what is marked. */
  readonly cache: CachePolicy;
  /** The host's own: kept with the session, shown to plugins. */
  readonly metadata: JsonObject;
}

/** What a session is configured with when nobody says anything. */
export const DEFAULT_CONFIG: SessionConfig = Object.freeze({
  instructions: "",
  prompt: null,
  model: null,
  modelOptions: null,
  maxSteps: 32,
  noProgressLimit: 12,
  maxContextTokens: null,
  compaction: null,
  window: null,
  cache: "auto",
  metadata: {},
});

/** A config with some fields set anew; the same object when nothing changes by it. */
export function changeConfig(current: SessionConfig, change: Partial<SessionConfig>): SessionConfig {
  if (!isRecord(change)) throw invalid("what changes is an object of settings, such as { instructions }");
  const next = checkConfig({ ...current, ...definedOnly(change) });
  return sameConfig(current, next) ? current : next;
}

export function sameConfig(a: SessionConfig, b: SessionConfig): boolean {
  return sameJson(a as unknown as Json, b as unknown as Json);
}

const SETTINGS: FieldsOf<SessionConfig> = {
  instructions: true,
  prompt: true,
  model: true,
  modelOptions: true,
  maxSteps: true,
  noProgressLimit: true,
  maxContextTokens: true,
  compaction: true,
  window: true,
  cache: true,
  metadata: true,
};

const ELSEWHERE: Readonly<Record<string, string>> = {
  agent: "session.setAgent(name) gives it another one.",
  budget: "session.setBudget(budget) changes it.",
  modelRetry: "It is of the runtime, an agent, a model or a turn.",
  fallbackModels: "They are of the runtime, an agent or a turn.",
  tools: "An agent says which of the runtime's tools it has.",
};

/** Throws `invalid_config` with what is wrong; unknown fields are wrong too, they are mostly spelling mistakes. */
export function checkConfig(config: SessionConfig): SessionConfig {
  const {
    instructions,
    prompt,
    model,
    modelOptions,
    maxSteps,
    noProgressLimit,
    maxContextTokens,
    compaction,
    window,
    cache,
    metadata,
  } = config;
  const unknown = unknownField(config, SETTINGS, "a session", "setting", ELSEWHERE);
  if (unknown !== undefined) throw invalid(unknown);
  if (typeof instructions !== "string") throw invalid("instructions must be a string");
  if (prompt !== null) checkPromptLayer(prompt);
  if (model !== null && typeof model !== "string")
    throw invalid("model must be the name of one of the models, or null");
  const problem = modelOptions === null ? undefined : modelOptionsProblem(modelOptions);
  if (problem !== undefined) throw invalid(problem);
  for (const [name, value] of Object.entries({ maxSteps, noProgressLimit, maxContextTokens }))
    if (value !== null && !isCount(value)) throw invalid(`${name} must be a whole number from 1, or null`);
  if (compaction !== null) checkCompaction(compaction);
  if (window !== null) checkWindow(window);
  checkCachePolicy(cache);
  if (!isRecord(metadata)) throw invalid("metadata must be an object");
  return wellFormed({
    instructions,
    prompt,
    model,
    modelOptions,
    maxSteps,
    noProgressLimit,
    maxContextTokens,
    compaction,
    window,
    cache,
    metadata,
  });
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 1;
}

const invalid = refusal("invalid_config", "The session's configuration cannot be changed");
