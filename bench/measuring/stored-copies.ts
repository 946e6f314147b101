import { createTroupe, type TroupeOptions } from "troupe";
import { type Head, nodeId, parseNodeId, type Segment, segmentId } from "../../src/kernel/index.js";
import { openLmdb } from "../../src/store/index.js";
import { decode, encode } from "../../src/wire/index.js";
import { INPUT } from "./reference-turn.js";

/** Written in one transaction. */
const BATCH = 1_000;

/** Fills a store with sessions of one turn each: one has it, the others are copies written beforehand. */
export async function storeCopies(folder: string, options: TroupeOptions, ids: readonly string[]): Promise<void> {
  {
    await using troupe = await createTroupe(options);
    await (await troupe.session("original")).turn(INPUT);
  }
  const backend = openLmdb(folder);
  try {
    const head = backend.head("original") as Head;
    const { messages } = decode<Segment>(backend.segment(parseNodeId(head.leaf as string).segment) as Uint8Array);
    for (let n = 0; n < ids.length; n += BATCH)
      backend.write(
        ids.slice(n, n + BATCH).map((sessionId) => {
          const id = segmentId(sessionId, 1);
          const segment = { id, parent: null, messages: messages.map((each, at) => ({ ...each, id: nodeId(id, at) })) };
          const leaf = nodeId(id, messages.length - 1);
          const epoch = backend.claim(sessionId, { owner: "bench", take: "always" });
          const copy: Head = { ...head, sessionId, revision: 1, leaf, operation: `copied:${sessionId}` };
          const written = { id, bytes: encode(segment) };
          return {
            kind: "commit",
            commit: { head: copy, expectedRevision: 0, segment: written, components: [], epoch },
          };
        }),
      );
    const last = ids.at(-1);
    if (last !== undefined && backend.head(last)?.turnIndex !== head.turnIndex)
      throw new Error(`Session ${last} was not copied.`);
  } finally {
    backend.close();
  }
}
