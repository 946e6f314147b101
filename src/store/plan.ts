import { type Commit, type Head, messageOf, TroupeError } from "../kernel/index.js";
import type { CommitResult } from "./contract.js";

/** What becomes of one commit, given the head it meets. */
export type Decision =
  | { readonly kind: "write" }
  | { readonly kind: "replay"; readonly revision: number }
  | { readonly kind: "refuse"; readonly error: TroupeError };

/**
 * The compare-and-set rule, the same for every backend.
 *
 * @example
 * decide(undefined, { head: { ...head, revision: 1 }, expectedRevision: 0, components: [] }); // { kind: "write" }
 */
export function decide(current: Head | undefined, commit: Commit): Decision {
  const { head, expectedRevision } = commit;
  const actual = current?.revision ?? 0;
  if (head.revision !== expectedRevision + 1) return { kind: "refuse", error: brokenRevision(commit) };
  if (actual === expectedRevision) return { kind: "write" };
  if (current?.operation === head.operation) return { kind: "replay", revision: actual };
  return { kind: "refuse", error: expectedRevision === 0 ? sessionExists(commit) : headConflict(commit, actual) };
}

/** A batch, decided: the answer to each commit, and the commits a backend has to write, in order. */
export interface BatchPlan {
  readonly results: CommitResult[];
  readonly accepted: readonly Commit[];
}

/**
 * Decides a whole batch; a later commit of a session sees the head an earlier one is about to write. A head that cannot
 * be decoded refuses the commits of its own session, not the batch.
 */
export function planBatch(headOf: (sessionId: string) => Head | undefined, batch: readonly Commit[]): BatchPlan {
  const planned = new Map<string, Head>();
  const results: CommitResult[] = [];
  const accepted: Commit[] = [];
  for (const commit of batch) {
    const { head } = commit;
    const decision = decideWith(() => planned.get(head.sessionId) ?? headOf(head.sessionId), commit);
    switch (decision.kind) {
      case "write":
        planned.set(head.sessionId, head);
        accepted.push(commit);
        results.push({ ok: true, revision: head.revision, replayed: false });
        break;
      case "replay":
        results.push({ ok: true, revision: decision.revision, replayed: true });
        break;
      case "refuse":
        results.push({ ok: false, error: decision.error });
        break;
    }
  }
  return { results, accepted };
}

function decideWith(current: () => Head | undefined, commit: Commit): Decision {
  try {
    return decide(current(), commit);
  } catch (error) {
    if (error instanceof TroupeError) return { kind: "refuse", error };
    throw error;
  }
}

/** The answers to a batch whose transaction failed as a whole. Repeating a commit is safe: it has its operation id. */
export function writeFailed(batch: readonly Commit[], cause: unknown): CommitResult[] {
  return batch.map(({ head }) => ({
    ok: false,
    error: new TroupeError(
      "store_write_failed",
      `Nothing of session ${head.sessionId} was stored: ${messageOf(cause)}. Check the disk, then try again.`,
      { retryable: true, details: { sessionId: head.sessionId }, cause },
    ),
  }));
}

/** How many records a commit writes. */
export function recordsOf(commit: Commit): number {
  return 1 + (commit.segment === undefined ? 0 : 1) + commit.components.length;
}

function headConflict({ head, expectedRevision }: Commit, actual: number): TroupeError {
  const { sessionId } = head;
  return new TroupeError(
    "head_conflict",
    `Session ${sessionId} is at revision ${actual}, not ${expectedRevision}: somebody else committed. Reload it.`,
    { retryable: true, details: { sessionId, expected: expectedRevision, actual } },
  );
}

function sessionExists({ head: { sessionId } }: Commit): TroupeError {
  return new TroupeError("session_exists", `There already is a session ${sessionId}. Open it, or choose another id.`, {
    details: { sessionId },
  });
}

function brokenRevision({ head, expectedRevision }: Commit): TroupeError {
  return new TroupeError(
    "invalid_commit",
    `A commit over revision ${expectedRevision} must carry revision ${expectedRevision + 1}, not ${head.revision}.`,
    { details: { sessionId: head.sessionId, expected: expectedRevision + 1, actual: head.revision } },
  );
}
