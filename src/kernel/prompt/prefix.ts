import type { Message } from "../history/index.js";
import type { ToolSpec } from "../tools/index.js";

/** What one request began with. */
export interface SentPrefix {
  readonly turnId: string;
  readonly system: string;
  readonly tools: readonly ToolSpec[];
  readonly history: readonly Message[];
  /** Of the history when it was sent: the list itself grows. */
  readonly historyLength: number;
  /** Everything behind the history. */
  readonly turn: readonly Message[];
  /** Messages of `turn` that the next turn finds in its history; what stands behind them need not come again. */
  readonly stable: number;
}

/** The first piece of a request that the next one of the same session did not repeat. */
export type BrokenPiece =
  | { readonly piece: "system" }
  | { readonly piece: "tools" }
  | { readonly piece: "message"; readonly index: number };

/**
 * What keeps a provider from reading the last request from its cache: undefined when this one begins with it, to the
 * byte. Providers read tools, then the system text, then the messages.
 */
export function brokenPiece(before: SentPrefix, now: SentPrefix): BrokenPiece | undefined {
  if (!sameBytes(before.tools, now.tools)) return { piece: "tools" };
  if (before.system !== now.system) return { piece: "system" };
  const repeated = before.turnId === now.turnId ? before.turn.length : before.stable;
  const sharesHistory = before.history === now.history;
  // A history that only grew is the same list: of a long one nothing is looked at again.
  const first = sharesHistory ? before.historyLength : 0;
  for (let index = first; index < before.historyLength + repeated; index++) {
    if (!sameMessage(messageOf(before, index), messageOf(now, index))) return { piece: "message", index };
  }
  return undefined;
}

/** Bytes of text a request began with, up to the piece that was not repeated; no more is counted than `enough`. */
export function bytesBefore({ system, tools, ...sent }: SentPrefix, enough: number): number {
  let bytes = system.length + JSON.stringify(tools).length;
  for (let index = 0; index < sent.historyLength + sent.stable && bytes < enough; index++) {
    bytes += JSON.stringify(messageOf(sent, index)?.parts).length;
  }
  return bytes;
}

function messageOf(
  { history, historyLength, turn }: Pick<SentPrefix, "history" | "historyLength" | "turn">,
  index: number,
): Message | undefined {
  return index < historyLength ? history[index] : turn[index - historyLength];
}

/** Ids and origins are not sent. */
function sameMessage(a: Message | undefined, b: Message | undefined): boolean {
  if (a === b) return true;
  return a !== undefined && b !== undefined && a.role === b.role && sameBytes(a.parts, b.parts);
}

function sameBytes(a: unknown, b: unknown): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}
