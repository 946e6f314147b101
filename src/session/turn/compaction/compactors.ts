import { asTroupeError, TroupeError } from "../../../kernel/index.js";
import { readCompaction } from "../../plugins/index.js";
import type { AskedCompactors, Compacted, CompactingSession } from "./compacted.js";
import { summarise } from "./summary.js";

/**
 * Asks the plugins' compactors, the highest priority first, and the first that has something decides; where none has, the
 * runtime sums up by itself if the session's policy says so. Undefined when nobody has anything.
 */
export async function askCompactors(
  session: CompactingSession,
  asked: AskedCompactors,
): Promise<Compacted | undefined> {
  const { hooks } = session;
  if (hooks.has("context_compactor")) {
    const found = await askPlugins(session, asked);
    if (found !== undefined) return found;
  }
  return summarise(session, asked);
}

async function askPlugins(
  { hooks, id: sessionId, past, stored, settings }: CompactingSession,
  { instructions, signal }: AskedCompactors,
): Promise<Compacted | undefined> {
  const { maxContextTokens } = settings.config;
  const facts = {
    sessionId,
    turnIndex: stored.turnIndex,
    messageCount: await past.count(),
    maxContextTokens,
    instructions,
  };
  try {
    for await (const { pluginId, answer } of hooks.oneByOne("context_compactor", () => facts, readCompaction, {
      signal,
    })) {
      const { initialNodes: nodes, keep } = answer();
      if (nodes.length > 0) return { pluginId, nodes, keep };
    }
  } catch (error) {
    const cause = asTroupeError(error, "hook_failed");
    throw new TroupeError("plugin_compact", `A context compactor failed: ${cause.message}`, { cause });
  }
  return undefined;
}

/** Leaves the frame for one that begins with what was said of it. The old one stays readable. */
export async function openCompacted(
  { graph, past }: Pick<CompactingSession, "graph" | "past">,
  frameId: string,
  { pluginId, nodes, keep, from }: Compacted,
): Promise<void> {
  const repeated = from === undefined ? [] : (await past.read()).slice(from);
  const origin = { kind: "plugin", pluginId } as const;
  await graph.openFrame({ frameId, reason: "compaction", nodes, keep, repeated, origin });
}
