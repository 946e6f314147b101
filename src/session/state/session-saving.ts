import type { SessionHooks } from "../plugins/index.js";
import type { SessionProtocol } from "../protocol/index.js";
import type { StoredSession } from "../stored/index.js";
import { betweenTurns, isUnsettled, type SessionLife } from "./session-life.js";

/** What of a session is looked at to store what its turns did not. */
export interface SavedSession {
  readonly hooks: Pick<SessionHooks, "capture" | "needCapture">;
  readonly protocol: Pick<SessionProtocol, "captureExecution" | "codeExecutor">;
  readonly life: Pick<SessionLife, "now">;
  readonly stored: Pick<StoredSession, "head" | "dirty" | "store">;
}

/** Stores state that changed since the last commit; a session that never had a turn stays unstored unless `always`. */
export async function saveSession(
  { hooks, protocol, life, stored }: SavedSession,
  { always = false, unless = never }: { readonly always?: boolean; readonly unless?: () => boolean } = {},
): Promise<void> {
  // One plugin whose state cannot be captured does not cost the others theirs.
  const captures = await Promise.allSettled([hooks.capture(), protocol.captureExecution()]);
  // A turn that began meanwhile stores it itself.
  if (always || stored.head !== undefined)
    await stored.store("save", { unless: () => !betweenTurns(life.now) || unless() });
  for (const captured of captures) if (captured.status === "rejected") throw captured.reason;
}

/** Something may have changed behind the last write that no turn is about to store. */
export function isUnsaved({ hooks, protocol, life, stored }: SavedSession): boolean {
  if (!isUnsettled(life.now) || stored.head === undefined) return false;
  return hooks.needCapture() || stored.dirty || protocol.codeExecutor !== undefined;
}

/**
 * Stores what hooks changed behind the last write. Whatever was asked of a session, its answer finds everything stored:
 * what is on the disk does not depend on when a session is parked, and a crash right after takes nothing back.
 * `unless`: somebody else is about to.
 */
export async function settleSession(session: SavedSession, unless = never): Promise<void> {
  if (isUnsaved(session) && !unless()) await saveSession(session, { unless });
}

const never = () => false;
