import { TroupeError } from "../errors.js";
import { parseNodeId } from "../history/index.js";
import type { Json } from "../json.js";
import { commitTooLarge, replayMismatched } from "../refusals.js";
import type { Head } from "../session/index.js";
import {
  COMMIT_BUDGET,
  type Commit,
  type CommitBudget,
  checkOwner,
  type Decision,
  decide,
  headConflict,
  type StoredHead,
  sessionDeleted,
  sessionExists,
} from "./commit.js";
import { differingPaths, type JournalEntry, type JournalRow, TURNS_WAIT } from "./journal.js";
import { PlannedFacts } from "./planned-facts.js";
import {
  addedTo,
  checkRowChange,
  invalidRow,
  isOfJournal,
  type Row,
  type RowName,
  type RowWrite,
  rowConflict,
  rowKey,
} from "./rows.js";
import type {
  Change,
  DeleteWrite,
  ImportWrite,
  JournalClearing,
  JournalReceipt,
  RowsWrite,
  SessionPlace,
  StoreWrite,
  SweepWrite,
  WriteFacts,
  WriteReceipt,
  WriteResult,
} from "./writes.js";

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
  readonly receipt: WriteReceipt;
  readonly changes: readonly Change[];
}

function planWrite(facts: WriteFacts, write: StoreWrite, budget: CommitBudget): Planned {
  switch (write.kind) {
    case "commit":
      return planCommit(facts, write.commit, budget);
    case "record":
      return planRecord(facts, write.entry, budget);
    case "clear":
      return planClear(facts, write, budget);
    case "delete":
      return planDelete(facts, write);
    case "rows":
      return planRows(facts, write, budget);
    case "sweep":
      return planSweep(facts, write);
    case "import":
      return planImport(facts, write);
  }
}

function planCommit(facts: WriteFacts, commit: Commit, budget: CommitBudget): Planned {
  const decision = decide(facts, commit, budget);
  if (decision.kind === "replay") return { receipt: { revision: decision.revision, replayed: true }, changes: [] };
  const { revision } = commit.head;
  return { receipt: { revision, replayed: false }, changes: changesOf(facts, commit, decision, budget) };
}

function planClear(
  facts: WriteFacts,
  { sessionId, expectedRevision, epoch, rows = [] }: JournalClearing,
  budget: CommitBudget,
): Planned {
  checkOwner(facts, sessionId, epoch);
  const actual = facts.head(sessionId)?.head.revision ?? 0;
  if (actual !== expectedRevision) throw headConflict(sessionId, expectedRevision, actual);
  const changes = [...clearingTurn(facts, sessionId), ...changingRows(facts, rows, budget)];
  return { receipt: { replayed: false }, changes };
}

function changesOf(
  facts: WriteFacts,
  commit: Commit,
  { stored, before }: Extract<Decision, { kind: "write" }>,
  budget: CommitBudget,
): Change[] {
  const { sessionId } = stored.head;
  const changes: Change[] = commit.rows === undefined ? [] : changingRows(facts, commit.rows, budget);
  if (commit.segment !== undefined) changes.push({ kind: "put_segment", ...commit.segment });
  for (const { hash, bytes } of commit.components) changes.push({ kind: "put_component", hash, bytes });
  if (commit.clearsJournal === true) changes.push(...clearing(facts, sessionId));
  if (commit.turnsWait === true && (commit.clearsJournal === true || facts.journal(sessionId).length === 0))
    changes.push({ kind: "put_journal", sessionId, row: TURNS_WAIT });
  changes.push({ kind: "put_head", stored, before: before && placeOf(before) });
  return changes;
}

/** A session that is written again and again changes its place once a second: lists need no more, and each time costs. */
const PLACE_MS = 1_000;

/** The time a session written at this time stands at in lists. */
export function placeTime(at: number): number {
  return at - (at % PLACE_MS);
}

/** Where a session stands in lists. */
export function placeOf({ head: { tenant, parent }, at }: StoredHead): SessionPlace {
  const order = { at: placeTime(at), ...(tenant !== undefined && { owner: tenant }) };
  return { order, parent: parent?.sessionId };
}

function planRows(facts: WriteFacts, { changes, owner }: RowsWrite, budget: CommitBudget): Planned {
  if (owner !== undefined) checkOwner(facts, owner.sessionId, owner.epoch);
  const planned = changingRows(facts, changes, budget);
  const versions = planned.map((change) => (change.kind === "put_row" ? change.row.version : 0));
  return { receipt: { versions }, changes: planned };
}

/** Each over the rows as they are before; one that is not as expected refuses all. */
function changingRows(facts: WriteFacts, changes: readonly RowWrite[], budget: CommitBudget): Change[] {
  const seen = new Set<string>();
  return changes.map((change) => {
    checkRowChange(change);
    const { table, key, session, order } = change;
    const name: RowName = { table, key, ...(session !== undefined && { session }) };
    const place = rowKey(name);
    if (seen.has(place)) throw invalidRow(`row ${key} of ${table} is changed twice in one write`);
    seen.add(place);
    if (session !== undefined && facts.isDeleted(session)) throw sessionDeleted(session);
    const before = facts.row(name);
    const { value, expectedVersion } = "add" in change ? { value: addedTo(before, change) } : change;
    if (value !== null && value.length > budget.bytes) throw rowTooLarge(name, value.length, budget);
    const version = before?.version ?? 0;
    if (expectedVersion !== undefined && expectedVersion !== version) throw rowConflict(name, expectedVersion, version);
    if (value === null) return { kind: "delete_row", name, before: before?.order };
    const row: Row = { ...name, value, version: version + 1, ...(order !== undefined && { order }) };
    return { kind: "put_row", row, before: before?.order };
  });
}

function rowTooLarge({ table, key }: RowName, bytes: number, budget: CommitBudget): TroupeError {
  return commitTooLarge(`Row ${key} of ${table} has ${bytes} bytes`, { table, key, bytes }, budget);
}

function clearing(facts: WriteFacts, sessionId: string): Change[] {
  const sequences = facts.journal(sessionId).map(({ sequence }) => sequence);
  return sequences.length === 0 ? [] : [{ kind: "clear_journal", sessionId, sequences }];
}

/** Clears what a turn recorded, and nothing else. */
function clearingTurn(facts: WriteFacts, sessionId: string): Change[] {
  const changes = clearing(facts, sessionId);
  if (facts.journal(sessionId)[0]?.key === TURNS_WAIT.key)
    changes.push({ kind: "put_journal", sessionId, row: TURNS_WAIT });
  return changes;
}

/** Deleting what is not there is done already. */
function planDelete(facts: WriteFacts, { sessionId, expectedRevision, epoch }: DeleteWrite): Planned {
  checkOwner(facts, sessionId, epoch);
  const stored = facts.head(sessionId);
  const revision = stored?.head.revision;
  if (expectedRevision !== undefined && revision !== undefined && revision !== expectedRevision) {
    throw headConflict(sessionId, expectedRevision, revision);
  }
  const changes = clearing(facts, sessionId);
  for (const name of facts.rowsOf(sessionId)) {
    changes.push({ kind: "delete_row", name, before: facts.row(name)?.order });
  }
  if (stored !== undefined) {
    const { revision } = stored.head;
    changes.push({ kind: "delete_head", sessionId, revision, at: facts.now(), before: placeOf(stored) });
  }
  return { receipt: { changed: changes.length }, changes };
}

function planSweep(facts: WriteFacts, { segments, components, journals, quietForMs }: SweepWrite): Planned {
  const recordedSince = facts.now() - quietForMs;
  const over = journals.filter((sessionId) => {
    const last = facts.journal(sessionId).at(-1)?.sequence;
    const row = last === undefined ? undefined : facts.journalRow(sessionId, last);
    return row !== undefined && row.at < recordedSince;
  });
  const changes: Change[] = [
    ...segments.map((id): Change => ({ kind: "delete_segment", id })),
    ...components.map((hash): Change => ({ kind: "delete_component", hash })),
    ...over.flatMap((sessionId) => clearingTurn(facts, sessionId)),
  ];
  return { receipt: { changed: changes.length }, changes: [...changes, ...over.flatMap(withoutWaiting(facts))] };
}

/** Calls that waited in a journal that goes can be answered no more. Whoever clears a journal itself says which rows go. */
function withoutWaiting(facts: WriteFacts): (sessionId: string) => Change[] {
  return (sessionId) =>
    facts
      .rowsOf(sessionId)
      .filter(isOfJournal)
      .map((name): Change => ({ kind: "delete_row", name, before: facts.row(name)?.order }));
}

/** Parts of a session that is not there yet; nobody sees them before its head, which is refused while one is missing. */
function planImport(facts: WriteFacts, { sessionId, segments, components, head, rows = [] }: ImportWrite): Planned {
  // An unfinished first turn is a session too.
  const isTaken = facts.head(sessionId) !== undefined || facts.journal(sessionId).length > 0;
  if (isTaken) throw sessionExists(sessionId);
  if (facts.isDeleted(sessionId)) throw sessionDeleted(sessionId);
  const stranger = segments.find(
    ({ id }) => !id.startsWith(`${sessionId}@`) || !/^\d+$/.test(id.slice(sessionId.length + 1)),
  );
  if (stranger !== undefined) throw importIncomplete(sessionId, `${stranger.id} is another session's`);
  const changes: Change[] = [
    ...segments.map((segment): Change => ({ kind: "put_segment", ...segment })),
    ...components.map((component): Change => ({ kind: "put_component", ...component })),
  ];
  if (head !== undefined) {
    const brought = new Set([...segments.map(({ id }) => id), ...components.map(({ hash }) => hash)]);
    checkImported(facts, head, brought);
    for (const row of rows) {
      checkRowChange(row);
      if (row.session !== sessionId) throw importIncomplete(sessionId, `a row of ${row.table} is another session's`);
      changes.push({ kind: "put_row", row, before: undefined });
    }
    changes.push({ kind: "put_head", stored: { head, at: facts.now(), receipts: [] }, before: undefined });
  }
  return { receipt: { changed: changes.length }, changes };
}

function checkImported(facts: WriteFacts, head: Head, brought: ReadonlySet<string>): void {
  const leaves = [head.leaf, ...(head.frames ?? []).map(({ leaf }) => leaf)].filter((leaf) => leaf !== null);
  const missing =
    leaves.find((leaf) => {
      const { segment } = parseNodeId(leaf);
      return !brought.has(segment) && facts.segment(segment) === undefined;
    }) ?? Object.values(head.components).find((hash) => !brought.has(hash) && !facts.hasComponent(hash));
  if (missing !== undefined) throw importIncomplete(head.sessionId, `${missing} is missing`);
}

function importIncomplete(sessionId: string, why: string): TroupeError {
  return new TroupeError("import_incomplete", `Session ${sessionId} cannot be imported: ${why}.`, {
    details: { sessionId },
  });
}

/** First writer wins: per turn and replay key there is one outcome, and everybody who asks gets it. */
function planRecord(facts: WriteFacts, entry: JournalEntry, budget: CommitBudget): Planned {
  const { sessionId, turnId, key, hash, envelope, bytes, epoch, rows: named = [] } = entry;
  const stored = facts.head(sessionId);
  const actual = stored?.head.revision ?? 0;
  if (stored === undefined && facts.isDeleted(sessionId)) throw sessionDeleted(sessionId);
  checkOwner(facts, sessionId, epoch);
  if (actual !== entry.expectedRevision) throw headConflict(sessionId, entry.expectedRevision, actual);
  const size = bytes.length + (envelope?.length ?? 0);
  if (size > budget.bytes) throw recordTooLarge(entry, size, budget);
  const rows = facts.journal(sessionId);
  const known = rows.find((row) => row.turnId === turnId && row.key === key);
  if (known !== undefined) return { receipt: replay(facts, entry, known.sequence), changes: [] };
  const sequence = (rows.at(-1)?.sequence ?? -1) + 1;
  const at = facts.now();
  const row: JournalRow = { sequence, turnId, key, hash, bytes, at, ...(envelope !== undefined && { envelope }) };
  const changes: Change[] = [{ kind: "put_journal", sessionId, row }, ...changingRows(facts, named, budget)];
  return { receipt: { replayed: false }, changes };
}

function replay(facts: WriteFacts, entry: JournalEntry, sequence: number): JournalReceipt {
  const row = facts.journalRow(entry.sessionId, sequence);
  if (row === undefined) throw new Error(`Journal row ${sequence} of session ${entry.sessionId} vanished.`);
  if (row.hash !== entry.hash) throw replayMismatch(row, entry);
  return { replayed: true, bytes: row.bytes, at: row.at };
}

function recordTooLarge({ sessionId, key }: JournalEntry, bytes: number, budget: CommitBudget): TroupeError {
  const what = `The outcome of ${key} in session ${sessionId} has ${bytes} bytes`;
  return commitTooLarge(what, { sessionId, key, bytes }, budget);
}

/** Another request under the key of one that was recorded, and where the two differ. */
export function replayMismatch(
  row: JournalRow,
  { sessionId, turnId, key, hash, envelope }: Pick<JournalEntry, "sessionId" | "turnId" | "key" | "hash" | "envelope">,
): TroupeError {
  const paths = row.envelope === undefined || envelope === undefined ? [] : pathsBetween(row.envelope, envelope);
  const where = paths.length === 0 ? "" : ` They differ at ${paths.join(", ")}.`;
  return replayMismatched(
    `${key} of turn ${turnId} in session ${sessionId} was recorded for another request: the turn is not repeating itself.${where}`,
    { sessionId, turnId, key, recorded: row.hash, given: hash, paths },
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
