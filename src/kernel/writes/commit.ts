import { TroupeError } from "../errors.js";
import { parseNodeId, type SegmentOutline, segmentId } from "../history/index.js";
import { fingerprint } from "../ids.js";
import { commitTooLarge, componentMissing } from "../refusals.js";
import type { Head } from "../session/index.js";
import type { RowWrite } from "./rows.js";

/** One atomic write: everything a turn (or a fork) changed. */
export interface Commit {
  readonly head: Head;
  /** The revision the head must have before; 0 for a session that does not exist yet. */
  readonly expectedRevision: number;
  /** The number the writer's claim of the session gave it. After a later claim the store refuses it: `session_moved`. */
  readonly epoch: number;
  /** Encoded segment, or absent when no message was added. */
  readonly segment?: { readonly id: string; readonly bytes: Uint8Array };
  /** Only components whose content is not stored yet. */
  readonly components: readonly { readonly hash: string; readonly bytes: Uint8Array }[];
  /**
   * What the operation means, in words of its own. Repeated with another intent it is refused instead of answered.
   * Left to the caller, because positions, clocks and captured state differ between two attempts that mean the same.
   */
  readonly intent?: string;
  /** Deletes the session's journal in the same write: the turn it belongs to is stored now. */
  readonly clearsJournal?: boolean;
  /** Turns that were asked for wait in the session: it stays among the unfinished ones, also when its journal is cleared. */
  readonly turnsWait?: boolean;
  /** Rows of named tables that change in the same write, or not at all. */
  readonly rows?: readonly RowWrite[];
}

/** How large one commit may be. A breach is refused before anything is written. */
export interface CommitBudget {
  /** Of its segment and of the components it brings. */
  readonly bytes: number;
  /** Messages it adds. */
  readonly nodes: number;
}

/** Generous: a record larger than this could not be read back anyway. */
export const COMMIT_BUDGET: CommitBudget = Object.freeze({ bytes: 64 * 1024 * 1024, nodes: 10_000 });

/** A head, when it was written, and the operations that led to it. */
export interface StoredHead {
  readonly head: Head;
  /** By the store's clock, in milliseconds; 0 where an older release did not say. */
  readonly at: number;
  /**
   * Receipts of the last operations, newest first: two numbers each, the fingerprint of the operation's id and the one
   * of its intent (0: it had none). Every revision has one operation, so the n-th receipt is of revision − n.
   */
  readonly receipts: readonly number[];
}

/** How many operations of a session can be repeated and are answered, not repeated. 16 bytes each in the stored head. */
export const KEPT_RECEIPTS = 16;

/** What the planner must know of a store. A backend that cannot answer at once fetches what a batch names beforehand. */
export interface CommitFacts {
  /** The store's clock, in milliseconds: the same for every writer. */
  now(): number;
  /** The number the session's last claim gave; undefined while nobody has claimed it. */
  epoch(sessionId: string): number | undefined;
  head(sessionId: string): StoredHead | undefined;
  isDeleted(sessionId: string): boolean;
  segment(id: string): SegmentOutline | undefined;
  hasComponent(hash: string): boolean;
  /** Reads a segment's outline from its bytes. */
  outline(bytes: Uint8Array): SegmentOutline;
}

/** What becomes of one commit, given the head it meets. */
export type Decision =
  | { readonly kind: "write"; readonly stored: StoredHead; readonly before: StoredHead | undefined }
  | { readonly kind: "replay"; readonly revision: number };

/**
 * Decides one commit; the same for every backend. In this order: is it well formed and within the budget, was its
 * operation done before, is the session still there and its writer's, is the head the expected one, does it hang
 * together.
 *
 * A receipt is looked at before the owner and the revision, so an operation whose answer was lost is answered although
 * the session has moved on. What cannot be written throws.
 */
export function decide(facts: CommitFacts, commit: Commit, budget: CommitBudget = COMMIT_BUDGET): Decision {
  const outline = commit.segment === undefined ? undefined : facts.outline(commit.segment.bytes);
  const { head, expectedRevision } = commit;
  if (head.revision !== expectedRevision + 1)
    throw invalid(commit, `over revision ${expectedRevision} it must carry revision ${expectedRevision + 1}`);
  if (outline !== undefined) checkSegment(commit, outline);
  checkBudget(commit, outline, budget);
  const stored = facts.head(head.sessionId);
  const receipt = receiptOf(commit);
  const done = stored === undefined ? undefined : findReceipt(stored, commit, receipt);
  if (done !== undefined) return done;
  const actual = stored?.head.revision ?? 0;
  if (stored === undefined && facts.isDeleted(head.sessionId)) throw sessionDeleted(head.sessionId);
  checkOwner(facts, head.sessionId, commit.epoch);
  if (actual !== expectedRevision)
    throw expectedRevision === 0
      ? sessionExists(head.sessionId)
      : headConflict(head.sessionId, expectedRevision, actual);
  // What the new history continues: the segment's parent, or, when no message was added, the leaf itself.
  const base = outline === undefined ? head.leaf : outline.parent;
  checkHistory(facts, commit, stored?.head, base);
  checkComponents(facts, commit, stored?.head);
  return { kind: "write", stored: withReceipt(stored, head, receipt, facts.now()), before: stored };
}

/** Only the last who claimed a session writes to it. */
export function checkOwner(facts: CommitFacts, sessionId: string, epoch: number): void {
  const owned = facts.epoch(sessionId);
  if (owned === undefined || owned !== epoch) throw sessionMoved(sessionId);
}

/** Refuses a commit that says two things at once. */
function checkSegment(commit: Commit, { id, count }: SegmentOutline): void {
  const { sessionId, revision, leaf } = commit.head;
  // Derived, never chosen: no two commits can write the same segment, and a repeated one writes the same names.
  const derived = segmentId(sessionId, revision);
  const named = commit.segment?.id;
  if (named !== derived) throw invalid(commit, `its segment must be ${derived}, not ${named}`);
  if (id !== derived) throw invalid(commit, `its segment calls itself ${id}`);
  if (count === 0) throw invalid(commit, "its segment has no messages");
  if (leaf !== `${derived}.${count - 1}`) throw invalid(commit, `its leaf must be its last message, not ${leaf}`);
}

function checkBudget(commit: Commit, outline: SegmentOutline | undefined, budget: CommitBudget): void {
  const { segment, components, head } = commit;
  let bytes = segment?.bytes.length ?? 0;
  for (const component of components) bytes += component.bytes.length;
  const nodes = outline?.count ?? 0;
  if (bytes <= budget.bytes && nodes <= budget.nodes) return;
  const what = `A commit of session ${head.sessionId} has ${bytes} bytes and ${nodes} messages`;
  throw commitTooLarge(what, { sessionId: head.sessionId, bytes, nodes }, budget);
}

type Receipt = readonly [operation: number, intent: number];

function receiptOf({ head, intent }: Commit): Receipt {
  return [fingerprint(head.operation), intent === undefined ? 0 : fingerprint(intent)];
}

function findReceipt({ head, receipts }: StoredHead, commit: Commit, receipt: Receipt): Decision | undefined {
  const [operation, intent] = receipt;
  for (let i = 0; i < receipts.length; i += 2) {
    if (receipts[i] !== operation) continue;
    // Without a word on what it meant, the same operation means the same.
    if (intent !== 0 && receipts[i + 1] !== 0 && receipts[i + 1] !== intent) throw operationConflict(commit);
    return { kind: "replay", revision: head.revision - i / 2 };
  }
  return undefined;
}

function withReceipt(stored: StoredHead | undefined, head: Head, receipt: Receipt, at: number): StoredHead {
  const earlier = stored?.receipts.slice(0, 2 * (KEPT_RECEIPTS - 1)) ?? [];
  // A clock that was set back must not take a session back in the lists.
  return { head, at: Math.max(at, stored?.at ?? 0), receipts: [...receipt, ...earlier] };
}

/** Refuses a commit that would leave a head over a history that is not there. `base`: what it continues. */
function checkHistory(facts: CommitFacts, commit: Commit, previous: Head | undefined, base: string | null): void {
  const { head } = commit;
  if (base === (previous?.leaf ?? null)) return;
  // A new session may begin anywhere, and so may a frame; but not nowhere.
  const entersFrame = previous === undefined || head.frameId !== previous.frameId;
  if (!entersFrame) throw invalid(commit, `it must continue the stored leaf ${previous.leaf}, not ${base}`);
  if (base === null) return;
  const { segment, index } = parseNodeId(base);
  if (index < (facts.segment(segment)?.count ?? 0)) return;
  throw new TroupeError("history_missing", `Session ${head.sessionId} cannot continue ${base}: it is not stored.`, {
    retryable: true,
    details: { sessionId: head.sessionId, node: base },
  });
}

/** Components are named by their content, so one that is neither brought nor stored can only have been pruned meanwhile. */
function checkComponents(facts: CommitFacts, { head, components }: Commit, previous: Head | undefined): void {
  for (const [name, hash] of Object.entries(head.components)) {
    if (previous?.components[name] === hash) continue;
    if (components.some((component) => component.hash === hash) || facts.hasComponent(hash)) continue;
    const details = { sessionId: head.sessionId, name, hash };
    throw componentMissing(`The ${name} of session ${head.sessionId}`, { retryable: true, details });
  }
}

export function headConflict(sessionId: string, expected: number, actual: number): TroupeError {
  return new TroupeError(
    "head_conflict",
    `Session ${sessionId} is at revision ${actual}, not ${expected}: somebody else committed. Reload it.`,
    { retryable: true, details: { sessionId, expected, actual } },
  );
}

export function sessionMoved(sessionId: string): TroupeError {
  return new TroupeError(
    "session_moved",
    `Session ${sessionId} was opened elsewhere, and nothing of this was stored. Open it again to go on with it here.`,
    { retryable: true, details: { sessionId } },
  );
}

export function sessionDeleted(sessionId: string): TroupeError {
  return new TroupeError("session_deleted", `Session ${sessionId} was deleted. Its id is not used again.`, {
    details: { sessionId },
  });
}

export function sessionExists(sessionId: string): TroupeError {
  return new TroupeError("session_exists", `There already is a session ${sessionId}. Open it, or choose another id.`, {
    details: { sessionId },
  });
}

function operationConflict({ head: { sessionId, operation } }: Commit): TroupeError {
  return new TroupeError(
    "operation_conflict",
    `Operation ${operation} of session ${sessionId} was done before, and meant something else then.`,
    { details: { sessionId, operation } },
  );
}

function invalid({ head }: Commit, why: string): TroupeError {
  return new TroupeError("invalid_commit", `A commit of session ${head.sessionId} cannot be stored: ${why}.`, {
    details: { sessionId: head.sessionId, revision: head.revision },
  });
}
