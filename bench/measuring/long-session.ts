import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createTroupe, type Session, scriptedModel, type Troupe, type TroupeOptions } from "troupe";
import { type Head, nodeId, parseNodeId, type Segment, segmentId } from "../../src/kernel/index.js";
import { openLmdb } from "../../src/store/index.js";
import { decode, encode } from "../../src/wire/index.js";
import { INPUT, SCRIPT } from "./reference-turn.js";

export interface WithTroupe extends TroupeOptions {
  /** Sessions that are there with so many turns when it starts, by id. */
  readonly grown?: Readonly<Record<string, number>>;
}

/** A runtime for the reference turn with its hooks inline, in a folder of its own that is gone afterwards. */
export async function withTroupe<T>(
  { grown = {}, ...given }: WithTroupe,
  run: (troupe: Troupe) => Promise<T>,
): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), "troupe-bench-"));
  const options: TroupeOptions = {
    model: scriptedModel(SCRIPT),
    store: { path: folder },
    journal: false,
    ...given,
    plugins: [
      { module: new URL("../plugins/reference.js", import.meta.url), tier: "inline" },
      ...(given.plugins ?? []),
    ],
  };
  try {
    if (Object.keys(grown).length > 0) await growStored(folder, options, grown);
    await using troupe = await createTroupe(options);
    return await run(troupe);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Asks for turns until the session has had so many; four messages each. */
export async function grow(session: Session, turns: number, progress: (line: string) => void): Promise<void> {
  const { turns: had } = await session.info();
  for (let n = had; n < turns; n++) {
    if (n % 500 === 0) progress(`${session.id}: ${n} of ${turns} turns`);
    const { outcome } = await session.turn(INPUT);
    if (outcome.type !== "finished") throw new Error(`A turn ended with ${JSON.stringify(outcome)}.`);
  }
}

/** Each session has one real turn; the others are that one again, written beforehand so that thousands need not be synced. */
async function growStored(
  folder: string,
  options: TroupeOptions,
  grown: Readonly<Record<string, number>>,
): Promise<void> {
  {
    await using troupe = await createTroupe(options);
    for (const id of Object.keys(grown)) await (await troupe.session(id)).turn(INPUT);
  }
  const backend = openLmdb(folder);
  try {
    for (const [id, turns] of Object.entries(grown)) {
      const head = backend.head(id) as Head;
      const { segment } = parseNodeId(head.leaf as string);
      const { messages } = decode<Segment>(backend.segment(segment) as Uint8Array);
      const epoch = backend.claim(id, { owner: "bench", take: "always" });
      const commits = [...repeated(head, messages, turns)];
      backend.write(commits.map((commit) => ({ kind: "commit", commit: { ...commit, epoch } })));
      if (backend.head(id)?.turnIndex !== turns) throw new Error(`Session ${id} did not grow to ${turns} turns.`);
    }
  } finally {
    backend.close();
  }
}

function* repeated(first: Head, turn: Segment["messages"], turns: number) {
  for (let head = first; head.turnIndex < turns; ) {
    const revision = head.revision + 1;
    const id = segmentId(head.sessionId, revision);
    const messages = turn.map((message, index) => ({ ...message, id: nodeId(id, index) }));
    const segment = { id, parent: head.leaf, messages };
    const leaf = nodeId(id, messages.length - 1);
    const messageCount = (head.messageCount ?? 0) + messages.length;
    head = { ...head, revision, leaf, turnIndex: head.turnIndex + 1, messageCount, operation: `grown:${revision}` };
    yield { head, expectedRevision: revision - 1, segment: { id, bytes: encode(segment) }, components: [] };
  }
}
