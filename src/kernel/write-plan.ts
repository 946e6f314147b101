import {
  COMMIT_BUDGET,
  type CommitBudget,
  type CommitFacts,
  decide,
  headConflict,
  type StoredHead,
  sessionDeleted,
} from "./commit.js";
import { TroupeError } from "./errors.js";
import { differingPaths, type JournalEntry, type JournalRow } from "./journal.js";
import type { Json } from "./json.js";
import type { Commit } from "./state.js";

/** One thing to write. A batch of them is one transaction. */
export type StoreWrite =
  | { readonly kind: "commit"; readonly commit: Commit }
  | { readonly kind: "record"; readonly entry: JournalEntry; readonly at: number }
  | ({ readonly kind: "clear" } & JournalClearing);

/** A turn came to nothing: what it recorded is forgotten. */
export interface JournalClearing {
  readonly sessionId: string;
  readonly expectedRevision: number;
}

export interface CommitReceipt {
  readonly revision: number;
  /** True when this operation had already been committed: nothing was written, the first answer is given again. */
  readonly replayed: boolean;
}

/** The answer to a record: it is kept now, or was before, and then the first outcome counts. */
export type JournalReceipt = { readonly replayed: false } | { readonly replayed: true; readonly bytes: Uint8Array };

export type WriteResult =
  | { readonly ok: true; readonly receipt: CommitReceipt | JournalReceipt }
  | { readonly ok: false; readonly error: TroupeError };

/** One row to write or to delete. Backends carry these out and decide nothing. */
export type Change =
  | { readonly kind: "put_head"; readonly stored: StoredHead }
  | { readonly kind: "put_segment"; readonly id: string; readonly bytes: Uint8Array }
  | { readonly kind: "put_component"; readonly hash: string; readonly bytes: Uint8Array }
  | { readonly kind: "put_journal"; readonly sessionId: string; readonly row: JournalRow }
  | { readonly kind: "clear_journal"; readonly sessionId: string; readonly sequences: readonly number[] };

/** A journal row without what it recorded. */
export type JournalMark = Pick<JournalRow, "sequence" | "turnId" | "key" | "hash">;

export interface WriteFacts extends CommitFacts {
  /** The session's journal, in order. */
  journal(sessionId: string): readonly JournalMark[];
  journalRow(sessionId: string, sequence: number): JournalRow | undefined;
}

/** A batch, decided: the answer to each write, and what a backend has to change, in order. */
export interface WritePlan {
  readonly results: WriteResult[];
  readonly changes: readonly Change[];
}

/**
 * Decides a whole batch; a later write sees what an earlier one is about to change. A record that cannot be read refuses
 * the writes of its own session, not the batch.
 */
export function planWrites(
  facts: WriteFacts,
  batch: readonly StoreWrite[],
  budget: CommitBudget = COMMIT_BUDGET,
): WritePlan {
  const planned = new PlannedFacts(facts);
  const results = batch.map((write): WriteResult => {
    try {
      const { receipt, changes } = planWrite(planned, write, budget);
      planned.add(changes);
      return { ok: true, receipt };
    } catch (error) {
      if (error instanceof TroupeError) return { ok: false, error };
      throw error;
    }
  });
  return { results, changes: planned.changes };
}

interface Planned {
  readonly receipt: CommitReceipt | JournalReceipt;
  readonly changes: readonly Change[];
}

function planWrite(facts: WriteFacts, write: StoreWrite, budget: CommitBudget): Planned {
  switch (write.kind) {
    case "commit":
      return planCommit(facts, write.commit, budget);
    case "record":
      return planRecord(facts, write, budget);
    case "clear":
      return planClear(facts, write);
  }
}

function planCommit(facts: WriteFacts, commit: Commit, budget: CommitBudget): Planned {
  const decision = decide(facts, commit, budget);
  switch (decision.kind) {
    case "write":
      return {
        receipt: { revision: commit.head.revision, replayed: false },
        changes: changesOf(facts, commit, decision.stored),
      };
    case "replay":
      return { receipt: { revision: decision.revision, replayed: true }, changes: [] };
    case "refuse":
      throw decision.error;
  }
}

function planClear(facts: WriteFacts, clearing: JournalClearing): Planned {
  const { sessionId, expectedRevision } = clearing;
  const actual = facts.head(sessionId)?.head.revision ?? 0;
  if (actual !== expectedRevision) throw headConflict(sessionId, clearing, actual);
  return { receipt: { replayed: false }, changes: clearingOf(facts, sessionId) };
}

function clearingOf(facts: WriteFacts, sessionId: string): Change[] {
  const sequences = facts.journal(sessionId).map(({ sequence }) => sequence);
  return sequences.length === 0 ? [] : [{ kind: "clear_journal", sessionId, sequences }];
}

function changesOf(facts: WriteFacts, commit: Commit, stored: StoredHead): Change[] {
  const { sessionId } = stored.head;
  const changes: Change[] = [];
  if (commit.segment !== undefined) changes.push({ kind: "put_segment", ...commit.segment });
  for (const { hash, bytes } of commit.components) changes.push({ kind: "put_component", hash, bytes });
  if (commit.clearsJournal === true) changes.push(...clearingOf(facts, sessionId));
  changes.push({ kind: "put_head", stored });
  return changes;
}

/** First writer wins: per turn and replay key there is one outcome, and everybody who asks gets it. */
function planRecord(
  facts: WriteFacts,
  { entry, at }: Extract<StoreWrite, { kind: "record" }>,
  budget: CommitBudget,
): Planned {
  const { sessionId, turnId, key, hash, envelope, bytes } = entry;
  const stored = facts.head(sessionId);
  const actual = stored?.head.revision ?? 0;
  if (stored === undefined && facts.isDeleted(sessionId)) throw sessionDeleted(sessionId);
  if (actual !== entry.expectedRevision) throw headConflict(sessionId, entry, actual);
  const size = bytes.length + (envelope?.length ?? 0);
  if (size > budget.bytes) throw recordTooLarge(entry, size, budget);
  const rows = facts.journal(sessionId);
  const known = rows.find((row) => row.turnId === turnId && row.key === key);
  if (known !== undefined) return { receipt: replay(facts, entry, known.sequence), changes: [] };
  const sequence = (rows.at(-1)?.sequence ?? -1) + 1;
  const row: JournalRow = { sequence, turnId, key, hash, bytes, at, ...(envelope !== undefined && { envelope }) };
  return { receipt: { replayed: false }, changes: [{ kind: "put_journal", sessionId, row }] };
}

function replay(facts: WriteFacts, entry: JournalEntry, sequence: number): JournalReceipt {
  const row = facts.journalRow(entry.sessionId, sequence);
  if (row === undefined) throw new Error(`Journal row ${sequence} of session ${entry.sessionId} vanished.`);
  if (row.hash !== entry.hash) throw replayMismatch(row, entry);
  return { replayed: true, bytes: row.bytes };
}

/** The facts with what earlier writes of the batch will change. */
class PlannedFacts implements WriteFacts {
  readonly changes: Change[] = [];
  readonly #facts: WriteFacts;
  readonly #heads = new Map<string, StoredHead>();
  readonly #segments = new Map<string, Uint8Array>();
  readonly #components = new Set<string>();
  readonly #journals = new Map<string, JournalMark[]>();

  constructor(facts: WriteFacts) {
    this.#facts = facts;
  }

  add(changes: readonly Change[]): void {
    for (const change of changes) this.#apply(change);
    this.changes.push(...changes);
  }

  #apply(change: Change): void {
    switch (change.kind) {
      case "put_head":
        this.#heads.set(change.stored.head.sessionId, change.stored);
        break;
      case "put_segment":
        this.#segments.set(change.id, change.bytes);
        break;
      case "put_component":
        this.#components.add(change.hash);
        break;
      case "put_journal":
        this.#journals.set(change.sessionId, [...this.journal(change.sessionId), change.row]);
        break;
      case "clear_journal":
        this.#journals.set(change.sessionId, []);
        break;
    }
  }

  head(sessionId: string): StoredHead | undefined {
    return this.#heads.get(sessionId) ?? this.#facts.head(sessionId);
  }

  isDeleted(sessionId: string): boolean {
    return this.#facts.isDeleted(sessionId);
  }

  segment(id: string) {
    const bytes = this.#segments.get(id);
    return bytes === undefined ? this.#facts.segment(id) : this.outline(bytes);
  }

  hasComponent(hash: string): boolean {
    return this.#components.has(hash) || this.#facts.hasComponent(hash);
  }

  outline(bytes: Uint8Array) {
    return this.#facts.outline(bytes);
  }

  journal(sessionId: string): readonly JournalMark[] {
    return this.#journals.get(sessionId) ?? this.#facts.journal(sessionId);
  }

  journalRow(sessionId: string, sequence: number): JournalRow | undefined {
    for (const change of this.changes.toReversed()) {
      if (change.kind === "clear_journal" && change.sessionId === sessionId) return undefined;
      if (change.kind === "put_journal" && change.sessionId === sessionId && change.row.sequence === sequence) {
        return change.row;
      }
    }
    return this.#facts.journalRow(sessionId, sequence);
  }
}

function recordTooLarge({ sessionId, key }: JournalEntry, bytes: number, budget: CommitBudget): TroupeError {
  return new TroupeError(
    "commit_too_large",
    `The outcome of ${key} in session ${sessionId} has ${bytes} bytes; allowed are ${budget.bytes}.`,
    { details: { sessionId, key, bytes, budget: { ...budget } } },
  );
}

/** Another request under the key of one that was recorded, and where the two differ. */
export function replayMismatch(
  row: JournalRow,
  { sessionId, turnId, key, hash, envelope }: Pick<JournalEntry, "sessionId" | "turnId" | "key" | "hash" | "envelope">,
): TroupeError {
  const paths = row.envelope === undefined || envelope === undefined ? [] : pathsBetween(row.envelope, envelope);
  const where = paths.length === 0 ? "" : ` They differ at ${paths.join(", ")}.`;
  return new TroupeError(
    "replay_mismatch",
    `${key} of turn ${turnId} in session ${sessionId} was recorded for another request: the turn is not repeating itself.${where}`,
    { details: { sessionId, turnId, key, recorded: row.hash, given: hash, paths } },
  );
}

function pathsBetween(recorded: string, given: string): string[] {
  try {
    return differingPaths(JSON.parse(recorded) as Json, JSON.parse(given) as Json);
  } catch {
    // Only a caller that keeps something other than JSON; the hashes say enough.
    return [];
  }
}
