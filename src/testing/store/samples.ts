import assert from "node:assert/strict";
import {
  type Commit,
  type CommitReceipt,
  type Head,
  type JournalEntry,
  type JournalReceipt,
  type Message,
  NO_USAGE,
  nodeId,
  parseNodeId,
  type Segment,
  type StoreWrite,
  segmentId,
  type TroupeError,
  type WriteReceipt,
  type WriteResult,
} from "../../kernel/index.js";
import { type StoreBackend, sealEnvelope } from "../../store/index.js";
import { contentHash, decode, encode } from "../../wire/index.js";

/** A backend under test: each of its methods may answer at once or later. */
export type TestedBackend = StoreBackend;

/** One store under test. */
export interface ConformanceStore {
  readonly backend: TestedBackend;
  /** Closes the backend and opens what it left behind; absent for a store that keeps nothing. */
  readonly reopen?: () => Promise<TestedBackend>;
  /** Sets the store's clock forward, or back; absent for a store whose clock nobody can set. */
  readonly pass?: (ms: number) => void;
  readonly dispose: () => Promise<void> | void;
}

/** Named behaviours, each checked against an empty store of its own. */
export type Cases = Readonly<Record<string, (store: ConformanceStore) => Promise<void>>>;

/** One behaviour, for a test runner. */
export interface ConformanceCase {
  readonly name: string;
  readonly run: () => Promise<void>;
}

/** The cases of a suite, each over a store of its own. */
export function casesOver<Store extends Pick<ConformanceStore, "dispose">>(
  name: string,
  cases: Readonly<Record<string, (store: Store) => Promise<void>>>,
  open: () => Promise<Store>,
): ConformanceCase[] {
  return Object.entries(cases).map(([behaviour, check]) => ({
    name: `${name}: ${behaviour}`,
    async run() {
      const store = await open();
      try {
        await check(store);
      } finally {
        await store.dispose();
      }
    },
  }));
}

export interface TurnOptions {
  readonly operation?: string;
  readonly intent?: string;
  readonly components?: Commit["components"];
  /** The node the turn continues; by default the last one of the session's turn before. */
  readonly parent?: string | null;
  readonly head?: Partial<Head>;
  readonly clearsJournal?: boolean;
}

/** The commit of a session's n-th turn: a question and its answer. */
export function turn(sessionId: string, revision: number, options: TurnOptions = {}): Commit {
  const { operation, intent, components = [], clearsJournal } = options;
  const id = segmentId(sessionId, revision);
  const before = revision === 1 ? null : nodeId(segmentId(sessionId, revision - 1), 1);
  const parent = options.parent === undefined ? before : options.parent;
  const messages: Message[] = [
    { id: `${sessionId}/${revision}/user`, role: "user", parts: [{ type: "text", text: "question" }] },
    { id: `${sessionId}/${revision}/model`, role: "assistant", parts: [{ type: "text", text: "answer" }] },
  ];
  return {
    head: { ...headOf(sessionId, revision), ...(operation !== undefined && { operation }), ...options.head },
    expectedRevision: revision - 1,
    epoch: UNCLAIMED,
    segment: { id, bytes: encode({ id, parent, messages }) },
    components,
    ...(intent !== undefined && { intent }),
    ...(clearsJournal !== undefined && { clearsJournal }),
  };
}

/** A session's n-th head, over its n-th turn. */
export function headOf(sessionId: string, revision: number): Head {
  return {
    sessionId,
    revision,
    leaf: nodeId(segmentId(sessionId, revision), 1),
    turnIndex: revision,
    usage: NO_USAGE,
    components: {},
    operation: `${sessionId}/${revision}`,
  };
}

/** A commit that adds no message. */
export function bare(head: Head, components: Commit["components"] = []): Commit {
  return { head, expectedRevision: head.revision - 1, epoch: UNCLAIMED, components };
}

/** A fork of a session at a node: a new head over its history. */
export function fork(sessionId: string, leaf: string, head: Partial<Head> = {}): Commit {
  const parent = { sessionId: parseNodeId(leaf).segment.replace(/@\d+$/, ""), leaf };
  return bare({ ...headOf(sessionId, 1), leaf, parent, ...head });
}

export function component(value: unknown): Commit["components"][number] {
  const bytes = encode(value);
  return { hash: contentHash(bytes), bytes };
}

/** Fails in the middle of a transaction, as a disk would. */
export function unreadable(): Commit["components"][number] {
  return {
    hash: "unreadable",
    get bytes(): Uint8Array {
      throw new Error("the disk is full");
    },
  };
}

/** The outcome of a tool call in a session's first turn. */
export function entry(sessionId: string, key: string, changes: Partial<JournalEntry> = {}): JournalEntry {
  const request = sealEnvelope({ kind: "tool_attempt", key, args: { city: "Oslo" } });
  const outcome = encode({ answer: key });
  const over = { expectedRevision: 0, epoch: UNCLAIMED };
  return { sessionId, turnId: "t1", key, ...request, bytes: outcome, ...over, ...changes };
}

export const commitOf = (commit: Commit): StoreWrite => ({ kind: "commit", commit });
export const recordOf = (recorded: JournalEntry): StoreWrite => ({ kind: "record", entry: recorded });

export const deleteOf = (sessionId: string, expectedRevision?: number): StoreWrite => ({
  kind: "delete",
  sessionId,
  epoch: UNCLAIMED,
  ...(expectedRevision !== undefined && { expectedRevision }),
});

/** The epoch of a write whose session is claimed when it is written. No claim gives this one. */
export const UNCLAIMED = 0;

const claims = new WeakMap<TestedBackend, Map<string, Promise<number>>>();

/** The epoch of a session this helper writes to: claimed when it is first asked for, and once per backend. */
export function epochOf(backend: TestedBackend, sessionId: string): Promise<number> {
  const claimed = claims.get(backend) ?? new Map<string, Promise<number>>();
  claims.set(backend, claimed);
  const epoch =
    claimed.get(sessionId) ?? Promise.resolve(backend.claim(sessionId, { owner: "the suite", take: "always" }));
  claimed.set(sessionId, epoch);
  return epoch;
}

/** Writes a batch. A write that says no epoch of its own is its session's owner's. */
export async function written(backend: TestedBackend, batch: readonly StoreWrite[]): Promise<WriteResult[]> {
  const owned: StoreWrite[] = [];
  for (const write of batch) owned.push(await withEpoch(backend, write));
  return backend.write(owned);
}

async function withEpoch(backend: TestedBackend, write: StoreWrite): Promise<StoreWrite> {
  switch (write.kind) {
    case "commit": {
      const { commit } = write;
      if (commit.epoch !== UNCLAIMED) return write;
      return { ...write, commit: { ...commit, epoch: await epochOf(backend, commit.head.sessionId) } };
    }
    case "record": {
      const { entry } = write;
      if (entry.epoch !== UNCLAIMED) return write;
      return { ...write, entry: { ...entry, epoch: await epochOf(backend, entry.sessionId) } };
    }
    case "clear":
    case "delete":
      return write.epoch === UNCLAIMED ? { ...write, epoch: await epochOf(backend, write.sessionId) } : write;
    case "rows": {
      const { owner } = write;
      if (owner?.epoch !== UNCLAIMED) return write;
      return { ...write, owner: { ...owner, epoch: await epochOf(backend, owner.sessionId) } };
    }
    default:
      return write;
  }
}

/** Writes commits as one batch. */
export async function commit(backend: TestedBackend, ...commits: readonly Commit[]): Promise<WriteResult[]> {
  return written(backend, commits.map(commitOf));
}

/** Writes one commit that must be accepted. */
export async function committed(backend: TestedBackend, one: Commit): Promise<CommitReceipt> {
  return accepted((await commit(backend, one))[0]) as CommitReceipt;
}

/** Writes one record that must be accepted. */
export async function recorded(backend: TestedBackend, one: JournalEntry): Promise<JournalReceipt> {
  return accepted((await written(backend, [recordOf(one)]))[0]) as JournalReceipt;
}

export function accepted(result: WriteResult | undefined): WriteReceipt {
  if (result?.ok === false) throw result.error;
  assert.ok(result !== undefined, "the write should have been answered");
  return result.receipt;
}

export function whichAccepted(results: readonly WriteResult[]): boolean[] {
  return results.map(({ ok }) => ok);
}

export function refusal(result: WriteResult | undefined): TroupeError {
  assert.ok(result !== undefined && !result.ok, "the write should have been refused");
  return result.error;
}

/** Of a history read segment by segment, from backends that answer later too. */
export async function messageIds(backend: TestedBackend, sessionId: string): Promise<string[]> {
  let path: string[] = [];
  for (let node = (await backend.head(sessionId))?.leaf ?? null; node !== null; ) {
    const { segment: id, index } = parseNodeId(node);
    const bytes = await backend.segment(id);
    assert.ok(bytes !== undefined, `segment ${id} should be stored`);
    const segment = decode<Segment>(bytes);
    path = [...segment.messages.slice(0, index + 1).map((message) => message.id), ...path];
    node = segment.parent;
  }
  return path;
}

export async function sessionIds(backend: TestedBackend): Promise<string[]> {
  return [...(await backend.sessionIds())];
}

/** Node's Buffer and a plain byte array with the same content are the same answer. */
export function plain(bytes: Uint8Array | undefined): Uint8Array | undefined {
  return bytes === undefined ? undefined : new Uint8Array(bytes);
}

/** Everything these sessions are, to show that something changed nothing. */
export async function stateOf(backend: TestedBackend, ...sessions: readonly string[]): Promise<unknown> {
  const state = sessions.map(async (id) => ({
    head: await backend.head(id),
    history: await messageIds(backend, id),
    journal: (await backend.journal(id)).map(({ sequence, turnId, key, hash }) => ({ sequence, turnId, key, hash })),
  }));
  return { ids: await sessionIds(backend), counts: { ...backend.writes }, sessions: await Promise.all(state) };
}
