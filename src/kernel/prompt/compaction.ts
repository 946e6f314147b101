import { refusal } from "../errors.js";
import type { Message } from "../history/index.js";
import { isRecord } from "../json.js";
import { type FieldsOf, unknownField } from "../known-names.js";

/** When a conversation is summed up by itself, and what of it stays word for word. */
export interface CompactionPolicy {
  /** The share of `maxContextTokens` from which on the conversation is summed up before a model call. Default 0.8. */
  readonly at?: number;
  /** Turns at the end of the conversation that stay as they are. Default 4. */
  readonly keepTurns?: number;
  /** What the model is told when it sums up, in the place of Troupe's own words. */
  readonly instructions?: string;
  /** Does the runtime sum up where no plugin's compactor has anything? Default true. */
  readonly summary?: boolean;
}

const DEFAULT_AT = 0.8;
const DEFAULT_KEEP_TURNS = 4;

/** Why a conversation is summed up: its share of the context is reached, or a provider refused it as too long. */
export type CompactionReason = "threshold" | "overflow";

/** The name a summary that the runtime made stands under in the history. */
export const SUMMARY_AUTHOR = "troupe.compaction";

/** Four bytes of text are about a token: good enough to decide when to sum up, not for a bill. */
const CHARS_PER_TOKEN = 4;

/** About as many tokens as these messages are. */
export function estimatedTokens(messages: readonly Message[]): number {
  return Math.ceil(messages.reduce((sum, { parts }) => sum + JSON.stringify(parts).length, 0) / CHARS_PER_TOKEN);
}

/** A context before a model call. */
export interface ContextSize {
  /** What the last model call read and said, when there was one that is known. */
  readonly counted: number | null;
  /** What stands before the turn's own messages. */
  readonly history: readonly Message[];
  readonly turn: readonly Message[];
}

/** How many tokens a model call would read: those counted last with what was said since, or else all by its length. */
export function contextTokens({ counted, history, turn }: ContextSize): number {
  if (counted === null) return estimatedTokens(history) + estimatedTokens(turn);
  const answered = lastAnswer(turn);
  return counted + estimatedTokens(answered === undefined ? turn : turn.slice(answered + 1));
}

function lastAnswer(turn: readonly Message[]): number | undefined {
  const index = turn.findLastIndex(({ role }) => role === "assistant");
  return index < 0 ? undefined : index;
}

/** Has a context of this size reached the share from which on it is summed up? Never without `maxContextTokens`. */
export function isCrowded(
  tokens: number,
  { maxContextTokens, policy }: { readonly maxContextTokens: number | null; readonly policy: CompactionPolicy },
): boolean {
  return maxContextTokens !== null && tokens >= (policy.at ?? DEFAULT_AT) * maxContextTokens;
}

/** What becomes of a conversation that is summed up, by places. */
export interface CompactionPlan {
  /** Messages of the beginning that stay: a provider reads them from its cache. */
  readonly keep: number;
  /** The first message of the end that stays; those from `keep` to here are summed up. */
  readonly from: number;
}

/**
 * What of a conversation is summed up: everything but the longest beginning and the last turns that there is room for.
 *
 * The end may take half of the room, the beginning a quarter. The beginning goes up to the last summary, so that summing
 * up again adds a summary behind the one before; where that is too much it is the first turn, and else nothing. Undefined
 * when what is left to sum up is less than a tenth of the share: what is long is then something else.
 *
 * @example
 * planCompaction(messages, { policy: { keepTurns: 2 }, maxContextTokens: 8_000 }); // { keep: 2, from: 31 }
 */
export function planCompaction(
  messages: readonly Message[],
  { policy, maxContextTokens }: { readonly policy: CompactionPolicy; readonly maxContextTokens: number | null },
): CompactionPlan | undefined {
  const sizes = messages.map((message) => estimatedTokens([message]));
  const between = (from: number, to: number) => sizes.slice(from, to).reduce((sum, size) => sum + size, 0);
  const all = between(0, messages.length);
  const share = maxContextTokens === null ? all : (policy.at ?? DEFAULT_AT) * maxContextTokens;
  const room = Math.min(all, share) / 2;
  const begins = messages.flatMap((message, index) => (beginsTurn(message) ? [index] : []));
  const keepTurns = policy.keepTurns ?? DEFAULT_KEEP_TURNS;
  const last = keepTurns === 0 ? [] : begins.slice(-keepTurns);
  const from = last.find((place) => between(place, messages.length) <= room / 2) ?? messages.length;
  const summary = messages.findLastIndex(isSummary) + 1;
  const next = messages.findIndex((message, index) => index > 0 && (beginsTurn(message) || isSummary(message)));
  const firstTurn = next < 0 ? messages.length : next;
  const keep = [summary, firstTurn].find((place) => place > 0 && place <= from && between(0, place) <= room / 4) ?? 0;
  return keep === from || between(keep, from) < share / 10 ? undefined : { keep, from };
}

/** A turn begins with it. What was said into a running turn does not begin one. */
function beginsTurn({ role, origin }: Message): boolean {
  if (role !== "user" || origin?.kind === "plugin" || origin?.kind === "protocol") return false;
  return origin?.kind !== "turn_input" || origin.inputId === undefined;
}

function isSummary({ origin }: Message): boolean {
  return origin?.kind === "plugin" && origin.pluginId === SUMMARY_AUTHOR;
}

const FIELDS: FieldsOf<CompactionPolicy> = { at: true, keepTurns: true, instructions: true, summary: true };

/** When to sum up, from outside, checked: `invalid_compaction` says what is wrong. */
export function checkCompaction(policy: unknown): CompactionPolicy {
  if (!isRecord(policy)) throw invalid("it is an object such as { at: 0.8, keepTurns: 4 }; {} takes these");
  const unknown = unknownField(policy, FIELDS, "compaction", "field");
  if (unknown !== undefined) throw invalid(unknown);
  const { at, keepTurns, instructions, summary } = policy;
  if (at !== undefined && !(typeof at === "number" && at > 0 && at <= 1))
    throw invalid("at must be a share of maxContextTokens: more than 0, and 1 at most");
  if (keepTurns !== undefined && !(Number.isSafeInteger(keepTurns) && (keepTurns as number) >= 0))
    throw invalid("keepTurns must be a whole number from 0");
  if (instructions !== undefined && (typeof instructions !== "string" || instructions.trim() === ""))
    throw invalid("instructions must be a text that says something");
  if (summary !== undefined && typeof summary !== "boolean") throw invalid("summary must be true or false");
  return policy as CompactionPolicy;
}

const invalid = refusal("invalid_compaction", "The compaction cannot be used");
