import { type FrameRecord, isConversation, nodeUnknown, type TroupeError, turnRunning } from "../../kernel/index.js";
import type { Rewound } from "../calls/index.js";
import type { Session } from "../state/index.js";
import { checkAnswered } from "./fork.js";

/**
 * Moves the session's head to a node of its own tree, or with null before its first message: the next turn goes on from
 * there. The branch that is left stays readable, as a frame that was left. Plugins, tools, settings and what was spent stay
 * as they are.
 */
export async function rewindSession(session: Session, node: string | null): Promise<Rewound> {
  const { stored, past, catalog, services } = session;
  if (node !== null) await checkOwn(session, node);
  for (;;) {
    const { leaf: left } = stored;
    if (node === left) return { node, messageCount: await past.count(), frameId: stored.frameId, left: null };
    if (node !== null) await checkAnswered(services.store, node);
    const messageCount = (await services.store.history(node)).filter(isConversation).length;
    const frames = await framesLeft(session, node);
    let written = false;
    await stored.write((previous, revision) => {
      // A plugin appended something meanwhile: that is what is left now.
      if ((previous?.leaf ?? null) !== left) return undefined;
      written = true;
      const frameId = `frame-${revision}`;
      return {
        operation: `rewind:${frameId}`,
        head: { frameId, frames, leaf: node },
        messagesBefore: messageCount,
        adopted: () => past.goTo(node, messageCount),
      };
    });
    if (!written) continue;
    catalog.invalidate();
    return { node, messageCount, frameId: stored.frameId, left };
  }
}

/** The frames that were left, with the one that is left now, unless another one leads past its end: then nothing is lost. */
async function framesLeft(
  { stored, services: { store } }: Session,
  next: string | null,
): Promise<readonly FrameRecord[]> {
  const { leaf = null, frames = [] } = stored.head ?? {};
  if (leaf === null) return frames;
  for (const other of [next, ...frames.map((left) => left.leaf)])
    if (other !== null && (await store.onPath(other, leaf))) return frames;
  return [...frames, { frameId: stored.frameId, reason: "rewind", leaf }];
}

/** Of the conversation or of a branch that was left. A fork's own messages are the fork's. */
async function checkOwn({ id, stored, services: { store } }: Session, node: string): Promise<void> {
  const { head } = stored;
  const leaves = head === undefined ? [] : [head.leaf, ...(head.frames ?? []).map(({ leaf }) => leaf)];
  for (const leaf of leaves) if (leaf !== null && (await store.onPath(leaf, node))) return;
  const why = `Neither the conversation of session ${id} nor a branch it left has a node ${node.slice(0, MOST_SHOWN)}. session.tree() lists its nodes.`;
  throw nodeUnknown(why, id, node.slice(0, MOST_SHOWN));
}

const MOST_SHOWN = 300;

/** A turn's answer belongs behind what it was asked. */
export function turnAhead(sessionId: string): TroupeError {
  return turnRunning(sessionId, "has a turn running or waiting. Rewind it when the turn has ended");
}
