import { type PendingCall, type RowChange, WAITING_CALLS, WAITING_OF_TENANTS } from "../../kernel/index.js";
import { rowsOfCall, type StoreClient, waitingRowKey } from "../../store/index.js";
import { SessionRows, type StoredSession } from "../stored/index.js";

interface WaitingParts {
  readonly sessionId: string;
  readonly store: StoreClient;
  readonly stored: Pick<StoredSession, "identity" | "registerRiding">;
  /** Turns are written down as they go, and what waits in them too. */
  readonly journals: boolean;
}

/** A call that begins to wait, before it is known whose. */
export type NewWaitingCall = Omit<PendingCall, "sessionId" | "tenant">;

/**
 * The calls of a session that wait for somebody outside, as hosts are told of them. With a journal each is a row, written
 * with the journal's row that waits, and removed with the answer or with whatever is written next.
 */
export class WaitingCalls {
  readonly #parts: WaitingParts;
  /** Made with the first call, as what is expected is: most sessions have none, and are many. */
  #calls: Map<string, PendingCall> | undefined;
  /** Keys of an unfinished turn whose calls have not come to wait again. */
  #expected: Set<string> | undefined;
  /** What is to be removed; made with the first call. */
  #removed: { readonly rows: SessionRows; readonly ofTenant: SessionRows } | undefined;

  constructor(parts: WaitingParts) {
    this.#parts = parts;
  }

  /** Those of the running turn, in the order they began to wait. */
  get all(): readonly PendingCall[] {
    return [...(this.#calls?.values() ?? [])];
  }

  /** The call as it is told and stored. It is among them from {@link begin} on. */
  whole(call: NewWaitingCall): PendingCall {
    const { sessionId, stored } = this.#parts;
    const { tenant } = stored.identity;
    return { ...call, sessionId, ...(tenant !== undefined && { tenant }) };
  }

  begin(call: PendingCall): void {
    this.#expected?.delete(call.key);
    this.#calls ??= new Map();
    this.#calls.set(call.key, call);
  }

  /** It waited before a crash. */
  expect(key: string): void {
    this.#expected ??= new Set();
    this.#expected.add(key);
  }

  /** What is written with the journal's row that waits. */
  rowsOf(call: PendingCall): readonly RowChange[] {
    return rowsOfCall(call);
  }

  /** A call that waits since an older release, which wrote no rows: they are written by themselves. */
  async adopt(call: PendingCall, epoch: number): Promise<void> {
    const { journals, store, sessionId } = this.#parts;
    if (journals) await store.changeRows({ changes: this.rowsOf(call), owner: { sessionId, epoch } });
  }

  /** What is written with the answer. */
  removalOf(key: string): readonly RowChange[] {
    const { sessionId: session, stored } = this.#parts;
    const removed = (table: string): RowChange => ({ table, session, key: waitingRowKey(key), value: null });
    return stored.identity.tenant === undefined
      ? [removed(WAITING_CALLS)]
      : [removed(WAITING_CALLS), removed(WAITING_OF_TENANTS)];
  }

  /** It waits no more. `answered`: its rows went with the answer. */
  end(key: string, { answered }: { readonly answered: boolean }): void {
    this.#calls?.delete(key);
    const { journals, stored, store, sessionId } = this.#parts;
    if (answered || !journals) return;
    if (this.#removed === undefined) {
      const rows = new SessionRows({ store, sessionId, table: WAITING_CALLS });
      const ofTenant = new SessionRows({ store, sessionId, table: WAITING_OF_TENANTS });
      this.#removed = { rows, ofTenant };
      stored.registerRiding(rows, ofTenant);
    }
    this.#removed.rows.change(waitingRowKey(key), null);
    if (stored.identity.tenant !== undefined) this.#removed.ofTenant.change(waitingRowKey(key), null);
  }

  /** The turn is decided: what it did not come to wait for again, such as a call of a tool that is gone, waits no more. */
  settle(): void {
    const unanswered = [...(this.#calls?.keys() ?? []), ...(this.#expected ?? [])];
    for (const key of unanswered) this.end(key, { answered: false });
    this.#expected = undefined;
  }

  /** The turn is over, or left as it is for the next runtime: nothing of it is removed. */
  leave(): void {
    this.#calls = undefined;
  }
}
