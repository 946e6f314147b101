import { TroupeError } from "./errors.js";
import { type JsonObject, sameJson } from "./json.js";

/** What a host (and the plugins that watch over it) can set for one session. */
export interface SessionConfig {
  /** The first part of the system prompt. */
  readonly instructions: string;
  /** Model calls one turn may make. */
  readonly maxSteps: number;
  /** How much the model can read; null when nobody said. Told to context transforms, not enforced. */
  readonly maxContextTokens: number | null;
  /** The host's own: kept with the session, shown to plugins. */
  readonly metadata: JsonObject;
}

/** A config with some fields set anew; the same object when nothing changes by it. */
export function changeConfig(current: SessionConfig, change: Partial<SessionConfig>): SessionConfig {
  const next = checkConfig({ ...current, ...definedOnly(change) });
  return sameConfig(current, next) ? current : next;
}

export function sameConfig(a: SessionConfig, b: SessionConfig): boolean {
  return (
    a.instructions === b.instructions &&
    a.maxSteps === b.maxSteps &&
    a.maxContextTokens === b.maxContextTokens &&
    sameJson(a.metadata, b.metadata)
  );
}

/** Throws `invalid_config` with what is wrong; unknown fields are wrong too, they are mostly spelling mistakes. */
export function checkConfig(config: SessionConfig): SessionConfig {
  const { instructions, maxSteps, maxContextTokens, metadata, ...unknown } = config;
  const [stranger] = Object.keys(unknown);
  if (stranger !== undefined) throw invalid(`there is no setting ${stranger}`);
  if (typeof instructions !== "string") throw invalid("instructions must be a string");
  if (!isCount(maxSteps)) throw invalid("maxSteps must be a whole number from 1");
  if (maxContextTokens !== null && !isCount(maxContextTokens))
    throw invalid("maxContextTokens must be a whole number from 1, or null");
  if (typeof metadata !== "object" || metadata === null || Array.isArray(metadata))
    throw invalid("metadata must be an object");
  return { instructions, maxSteps, maxContextTokens, metadata };
}

function definedOnly<T extends object>(change: T): Partial<T> {
  return Object.fromEntries(Object.entries(change).filter(([, value]) => value !== undefined)) as Partial<T>;
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 1;
}

function invalid(why: string): TroupeError {
  return new TroupeError("invalid_config", `The session's configuration cannot be changed: ${why}.`);
}
