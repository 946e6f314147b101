import { refusal } from "../errors.js";
import type { Message } from "../history/index.js";
import { turnOfMessage } from "../ids.js";
import { isRecord } from "../json.js";
import { unknownField, unknownName } from "../known-names.js";

/**
 * The end of a part of a request up to which a provider is asked to keep what it has read: its `tools`; its `system`
 * text, which includes the tools; what the turn before asked (`previous`); what this turn asks, without what changes
 * every turn (`input`); everything (`end`).
 */
export type CachePlace = "tools" | "system" | "previous" | "input" | "end";

/** A place, and how long what was read up to there is to be kept; without it as long as the provider does by itself. */
export type CachePoint = CachePlace | { readonly at: CachePlace; readonly ttl: "5m" | "1h" };

/** Which points requests are marked at, for providers that cache only what is marked. */
export type CachePolicy = "auto" | "off" | readonly CachePoint[];

/** What a request says about caching. Absent: nothing is marked. */
export interface RequestCache {
  readonly policy: Exclude<CachePolicy, "off">;
  /** The same for a session and all its forks: tells a provider which requests begin alike. */
  readonly key: string;
  /** Messages of the turn that stand before what changes every turn. */
  readonly stable: number;
}

/** Anthropic and Bedrock refuse a request with more. */
const MAX_POINTS = 4;
const PLACES: readonly string[] = ["tools", "system", "previous", "input", "end"];
const TTLS: readonly unknown[] = ["5m", "1h"];
const AUTO: readonly CachePoint[] = ["system", "previous", "input", "end"];

/** What of a request is looked at. */
interface Conversation {
  readonly system: string;
  readonly tools: readonly unknown[];
  readonly history: readonly Message[];
  readonly turn: readonly Message[];
}

/** A mark on a part of a request. */
export interface CacheMark {
  readonly ttl?: "5m" | "1h";
}

/** The marks of one request. */
export interface CacheMarks {
  readonly tools?: CacheMark;
  readonly system?: CacheMark;
  readonly messages: ReadonlyMap<Message, CacheMark>;
}

/**
 * Where a request is marked. A part that is not there is not marked, but for the system text: without one the tools are.
 *
 * @example
 * cacheMarks(request, { policy: "auto", key, stable: 1 }).system; // {}
 */
export function cacheMarks(request: Conversation, cache: RequestCache): CacheMarks {
  const { system, tools } = request;
  const marks: { tools?: CacheMark; system?: CacheMark } = {};
  const messages = new Map<Message, CacheMark>();
  for (const point of cache.policy === "auto" ? AUTO : cache.policy) {
    const { at, ...mark } = typeof point === "string" ? { at: point } : point;
    switch (at) {
      case "tools":
        if (tools.length > 0) marks.tools = mark;
        break;
      case "system":
        if (system !== "") marks.system = mark;
        else if (tools.length > 0) marks.tools = mark;
        break;
      default: {
        const message = messageAt(at, request, cache);
        if (message !== undefined) messages.set(message, mark);
      }
    }
  }
  return { ...marks, messages };
}

function messageAt(
  place: Exclude<CachePlace, "tools" | "system">,
  { history, turn }: Conversation,
  { stable }: RequestCache,
): Message | undefined {
  switch (place) {
    case "previous":
      return turn.length > stable && turn[stable]?.role === "user" ? lastAsked(history) : beforeLastAnswer(history);
    case "input":
      return turn[stable - 1] ?? history.at(-1);
    case "end":
      return turn.at(-1) ?? history.at(-1);
  }
}

/** What the turn before began with, up to its first answer: behind it stood what has changed since. */
function lastAsked(history: readonly Message[]): Message | undefined {
  let at = history.length - 1;
  while (at >= 0 && turnOfMessage(history[at]?.id ?? "") === undefined) at--;
  const turn = turnOfMessage(history[at]?.id ?? "");
  while (at > 0 && turnOfMessage(history[at - 1]?.id ?? "") === turn) at--;
  while (at + 1 < history.length && isAsked(history[at + 1])) at++;
  return history[at];
}

/** The end of the last request before this turn, when nothing changed behind it. */
function beforeLastAnswer(history: readonly Message[]): Message | undefined {
  return history[history.findLastIndex(({ role }) => role === "assistant") - 1];
}

function isAsked(message: Message | undefined): boolean {
  return message?.role === "user" || message?.role === "system";
}

/** A policy from outside, checked: `invalid_cache_policy` says what is wrong. */
export function checkCachePolicy(policy: unknown): CachePolicy {
  if (policy === "auto" || policy === "off") return policy;
  if (!Array.isArray(policy)) throw invalid('it is "auto", "off" or a list of points');
  if (policy.length > MAX_POINTS) throw invalid(`providers take ${MAX_POINTS} points at most, not ${policy.length}`);
  for (const point of policy as readonly unknown[]) {
    const { at, ttl } = isRecord(point) ? point : { at: point, ttl: "5m" };
    const unknown = isRecord(point) ? unknownField(point, { at: true, ttl: true }, "a point") : undefined;
    if (unknown !== undefined) throw invalid(unknown);
    if (typeof at !== "string") throw invalid(`a point is one of ${PLACES.join(", ")}, or { at, ttl: "5m" or "1h" }`);
    if (!PLACES.includes(at)) throw invalid(unknownName(at, PLACES, "a request", "point"));
    if (!TTLS.includes(ttl)) throw invalid(`the ttl of a point is "5m" or "1h", not ${JSON.stringify(ttl)}`);
  }
  return policy as readonly CachePoint[];
}

const invalid = refusal("invalid_cache_policy", "The cache policy cannot be used");
