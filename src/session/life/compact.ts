import { type AppendNode, asTroupeError, TroupeError } from "../../kernel/index.js";
import { readCompaction } from "../plugins/index.js";
import type { Session } from "../state/index.js";

/**
 * Asks the compactors, the highest priority first, for what a new frame is to begin with; the first that has something
 * decides. False when none has. The old frame stays readable.
 */
export async function compactSession(session: Session, instructions: string | null): Promise<boolean> {
  const { hooks, id: sessionId, stored, settings } = session;
  if (!hooks.has("context_compactor")) return false;
  const messageCount = await session.past.count();
  const facts = {
    sessionId,
    turnIndex: stored.turnIndex,
    messageCount,
    maxContextTokens: settings.config.maxContextTokens,
    instructions,
  };
  let found: { readonly nodes: readonly AppendNode[]; readonly pluginId: string } | undefined;
  try {
    for await (const { pluginId, answer } of hooks.oneByOne("context_compactor", () => facts)) {
      found = { nodes: readCompaction(answer(), pluginId), pluginId };
      if (found.nodes.length > 0) break;
    }
  } catch (error) {
    const cause = asTroupeError(error, "hook_failed");
    throw new TroupeError("plugin_compact", `A context compactor failed: ${cause.message}`, { cause });
  }
  if (found === undefined || found.nodes.length === 0) return false;
  const { nodes, pluginId } = found;
  const frameId = `frame-${stored.revision + 1}`;
  await session.graph.openFrame({ frameId, reason: "compaction", nodes, origin: { kind: "plugin", pluginId } });
  return true;
}
