import { addUsage, NO_USAGE } from "../kernel/index.js";
import type { SessionView } from "../plugin/index.js";
import type { SessionTools } from "../tools/index.js";
import type { SessionHooks } from "./hooks.js";
import type { SessionHistory } from "./session-history.js";
import type { SessionLife } from "./session-life.js";
import type { SessionSettings } from "./session-settings.js";
import type { Spending } from "./spending.js";
import type { StoredSession } from "./stored-session.js";

/** What of a session its view is made of. */
export interface ViewedSession {
  readonly id: string;
  readonly settings: Pick<SessionSettings, "config">;
  readonly past: Pick<SessionHistory, "count">;
  readonly stored: StoredSession;
  readonly life: Pick<SessionLife, "turn" | "unstoredTurn">;
  readonly spending: Pick<Spending, "ledger">;
  readonly tools: Pick<SessionTools, "generation">;
  readonly hooks: Pick<SessionHooks, "fingerprint">;
}

/** The session as plugins see it: small, and with what the running turn has added. */
export async function viewOf(session: ViewedSession): Promise<SessionView> {
  const { id, settings, past, stored, life, spending, tools, hooks } = session;
  const messageCount = await past.count();
  const { head, revision, turnIndex, frameId, leaf } = stored;
  const turn = life.unstoredTurn;
  return {
    sessionId: id,
    parentSessionId: stored.parentId ?? null,
    config: settings.config,
    revision,
    turnIndex,
    running: life.turn !== undefined,
    messageCount: messageCount + (turn?.messages.length ?? 0),
    leafNodeId: leaf,
    frameId,
    frames: head?.frames ?? [],
    usage: addUsage(head?.usage ?? NO_USAGE, turn?.usage ?? NO_USAGE),
    ledger: spending.ledger,
    toolGeneration: tools.generation,
    pluginFingerprint: String(hooks.fingerprint()),
    components: head?.components ?? {},
  };
}
