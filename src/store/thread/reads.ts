import { nodesBetween, sessionDeleted } from "../../kernel/index.js";
import type { StoreReader } from "../records/index.js";
import { isOnPath, outlinesOf, readTailInSlices, readTree } from "../records/index.js";
import type { StoreCalls } from "./store-calls.js";

/** The calls that change nothing. */
export type ReadMethod = Exclude<keyof StoreCalls, "commit" | "record" | "clearJournal" | "delete">;

/**
 * How each is answered: by the store worker for a memory store, by the asking thread for one with a path. What may take
 * long pauses now and then, and ends when `pause` throws.
 */
export const READS: {
  readonly [M in ReadMethod]: (
    reader: StoreReader,
    ask: StoreCalls[M]["ask"],
    pause: () => Promise<void>,
  ) => StoreCalls[M]["answer"] | Promise<StoreCalls[M]["answer"]>;
} = {
  head(reader, sessionId) {
    const head = reader.head(sessionId);
    if (head === undefined && reader.isDeleted(sessionId)) throw sessionDeleted(sessionId);
    return head ?? null;
  },
  async history(reader, leaf, pause) {
    return (await readTailInSlices(reader, leaf, Number.POSITIVE_INFINITY, pause)).messages;
  },
  tail: (reader, [leaf, count], pause) => readTailInSlices(reader, leaf, count, pause),
  onPath: (reader, [leaf, node]) => isOnPath(reader, leaf, node),
  nodesBetween: (reader, [from, to]) => nodesBetween(outlinesOf(reader), from, to),
  tree: readTree,
  journal: (reader, sessionId) => reader.journal(sessionId),
  component: (reader, hash) => reader.component(hash) ?? null,
  sessionIds: (reader) => [...reader.sessionIds()],
};
