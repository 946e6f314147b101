import { addUsage, NO_USAGE } from "../../kernel/index.js";
import type { SessionView } from "../../plugin/index.js";
import type { Session } from "./session.js";

/** The session as plugins see it: small, and with what the running turn has added. */
export async function viewOf(session: Session): Promise<SessionView> {
  const { id, settings, past, stored, life, spending, tools, hooks } = session;
  const messageCount = await past.count();
  const { head, revision, turnIndex, frameId, leaf } = stored;
  const turn = life.unstoredTurn?.state;
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
