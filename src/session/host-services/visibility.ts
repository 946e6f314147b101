import { TroupeError } from "../../kernel/index.js";
import type { SessionServices } from "../state/index.js";

/** A chain of forks longer than this is not followed. */
const MAX_DEPTH = 64;

/** A session that makes others and may see them. */
export interface ParentSession {
  readonly id: string;
  /** Sessions this one's plugins made: it may see them, whatever their relation. */
  readonly created: Set<string>;
  readonly services: Pick<SessionServices, "store" | "relay" | "trace">;
}

/**
 * The id of a session another one may ask about: itself, its descendants, and what it made. Any other is refused
 * without a word on whether it exists. With `missing: "pass"` a session nobody knows gives undefined.
 */
export async function visibleSession(
  session: ParentSession,
  sessionId: unknown,
  options: { readonly missing?: "refuse" | "pass" } = {},
): Promise<string | undefined> {
  if (typeof sessionId !== "string")
    throw new TroupeError("invalid_host_call", "The call must say which session it is about.");
  if (sessionId === session.id || session.created.has(sessionId)) return sessionId;
  const { store } = session.services;
  const head = await store.head(sessionId);
  if (head === undefined && options.missing === "pass") return undefined;
  let ancestor = head?.parent?.sessionId;
  for (let depth = 0; ancestor !== undefined && depth < MAX_DEPTH; depth++) {
    if (ancestor === session.id) return sessionId;
    ancestor = (await store.head(ancestor))?.parent?.sessionId;
  }
  throw new TroupeError("session_not_visible", `Session ${session.id} has no descendant ${sessionId}.`, {
    details: { sessionId },
  });
}
