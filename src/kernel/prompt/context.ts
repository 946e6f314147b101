import { refusal } from "../errors.js";
import type { Message } from "../history/index.js";
import type { PromptContribution } from "./prompt.js";

/**
 * A piece of what the model will read: messages of the history by their places (`to` exclusive), or one that is only
 * for this turn. Places instead of bodies, so that a transform never carries the history about.
 */
export type ContextPiece =
  | { readonly from: number; readonly to: number }
  | { readonly role: "user" | "system" | "assistant"; readonly text: string };

/** What a turn is prepared with. Lives for one turn; the history itself is never changed by it. */
export interface PreparedContext {
  readonly messages: readonly ContextPiece[];
  readonly promptContributions: readonly PromptContribution[];
  /** Ids of on-demand tools to have in this turn. They stand before base tools of the same name. */
  readonly tools: readonly string[];
  readonly includeBaseTools: boolean;
}

/** The context nobody has transformed: the history from a place on, the base tools. */
export function wholeContext(messageCount: number, from = 0): PreparedContext {
  return {
    messages: messageCount === 0 ? [] : [{ from, to: messageCount }],
    promptContributions: [],
    tools: [],
    includeBaseTools: true,
  };
}

/** The place of the oldest message of the history it has; none when it has no message of it. */
export function firstPlace({ messages }: Pick<PreparedContext, "messages">): number {
  let first = Number.POSITIVE_INFINITY;
  for (const piece of messages) if ("from" in piece && piece.to > piece.from) first = Math.min(first, piece.from);
  return first;
}

/** The end of a history: its messages from a place on. */
export interface HistoryEnd {
  readonly start: number;
  readonly messages: readonly Message[];
}

/**
 * The messages the model reads before those of the turn, from a history that reaches back far enough. The history itself
 * when nothing was changed.
 */
export function contextMessages(
  { messages }: Pick<PreparedContext, "messages">,
  { start, messages: history }: HistoryEnd,
  turnId: string,
): readonly Message[] {
  const [piece, ...others] = messages;
  const isAll = piece !== undefined && "from" in piece && piece.from === 0 && piece.to === history.length;
  if (isAll && start === 0 && others.length === 0) return history;
  return messages.flatMap((piece, index): readonly Message[] => {
    if ("from" in piece) return history.slice(Math.max(0, piece.from - start), Math.max(0, piece.to - start));
    return [{ id: `${turnId}.context.${index}`, role: piece.role, parts: [{ type: "text", text: piece.text }] }];
  });
}

/** Checks the pieces of a context a plugin made: places must be inside the history. */
export function checkPieces(pieces: unknown, messageCount: number): readonly ContextPiece[] {
  if (!Array.isArray(pieces)) throw invalid("its messages must be a list");
  for (const piece of pieces as readonly Partial<Record<string, unknown>>[]) {
    if (typeof piece !== "object" || piece === null) throw invalid("a piece of it is no object");
    if ("from" in piece || "to" in piece) {
      const { from, to } = piece;
      const places = Number.isInteger(from) && Number.isInteger(to);
      if (!places || (from as number) < 0 || (to as number) < (from as number) || (to as number) > messageCount) {
        throw invalid(`messages ${String(from)} to ${String(to)} are not in a history of ${messageCount}`);
      }
    } else if (typeof piece.text !== "string" || !["user", "system", "assistant"].includes(piece.role as string)) {
      throw invalid("a message of its own needs a role (user, system, assistant) and a text");
    }
  }
  return pieces as readonly ContextPiece[];
}

const invalid = refusal("invalid_context", "The prepared context cannot be used");
