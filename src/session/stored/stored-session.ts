import { type Clock, Serial } from "../../async/index.js";
import {
  addLedgers,
  type Commit,
  FIRST_FRAME,
  fingerprint,
  type Head,
  type Identity,
  isConversation,
  type JournalEntry,
  type JournalReceipt,
  type Ledger,
  ledgerOf,
  NO_USAGE,
  nodeId,
  type RowChange,
  type RowWrite,
  rowKey,
  type Segment,
  sharingOwn,
  TroupeError,
} from "../../kernel/index.js";
import type { StoreClient } from "../../store/index.js";
import { encode } from "../../wire/index.js";
import type { Blobs } from "./blobs.js";
import { applyComponents, ComponentReader, type StoredComponent, UnwrittenUsage } from "./components.js";
import { RepeatedParts } from "./repeated-parts.js";
import { formerComponentOf, type SessionRows } from "./session-rows.js";

interface StoredParts {
  readonly id: string;
  readonly clock: Clock;
  readonly store: Pick<StoreClient, "commit" | "record" | "clearJournal" | "component" | "components">;
  readonly head: Head | undefined;
  /** The number this worker's claim of the session gave it; the store refuses it once somebody else has claimed it. */
  readonly epoch: number;
  /** What its first head says of whose it is. */
  readonly identity: Identity;
  readonly blobs: Blobs;
  /** Turns are written down as they go. */
  readonly journals: boolean;
  /** `known`: messages of the history up to the leaf, when they were counted. */
  readonly past: { readonly known: number | undefined };
  /** `turnsWait`: turns are to be begun by themselves, also after a crash. */
  readonly inputs: { readonly turnsWait: boolean };
  /** What is stored may no longer be what is here. */
  readonly life: { giveUp(error: unknown): void };
}

/** How a session keeps what its turn recorded. */
export type JournalWriter = (
  entry: Pick<JournalEntry, "turnId" | "key" | "hash" | "envelope" | "bytes" | "rows">,
  /** Asked when it is about to be written: it is of no use any more. */
  unless?: () => boolean,
) => Promise<JournalReceipt>;

/** Says what to write over a head; nothing, when it finds that there is nothing to be written. */
type Plan = (previous: Head | undefined, revision: number) => WritePlan | undefined;

/** What one write changes beside the components. */
interface WritePlan {
  readonly operation: string;
  /** Names the operation once and for all; otherwise it is one of its own. */
  readonly exactOperation?: string;
  readonly segment?: Segment;
  readonly head?: Partial<Head>;
  /** What its journal says of the turn is of no use any more. */
  readonly endsTurn?: boolean;
  /** By the session's own calls. */
  readonly spent?: Ledger;
  /** Messages up to the leaf it says, when that is another frame's; the segment's own are behind them. */
  readonly messagesBefore?: number;
  /** Rows of tables that are not this session's, written with it or not at all. */
  readonly rows?: readonly RowWrite[];
  /** Somebody else changed one of those rows, so nothing was stored: the plan takes back what it did. */
  readonly conflicted?: () => void;
  /** What else becomes true with it, at once. */
  readonly adopted?: () => void;
}

/** What of a session is stored: its head, what changed since, and the one write that is under way. */
export class StoredSession {
  readonly #parts: StoredParts;
  #head: Head | undefined;
  /** Everything that is stored beside the history, each with its owner. */
  #components: readonly StoredComponent[] = [];
  readonly #rows: SessionRows[] = [];
  /** Rows that are no reason to write, but go with what is written or recorded. */
  readonly #riding: SessionRows[] = [];
  /** Usage of other sources than the session's own turns. */
  readonly usage = new UnwrittenUsage(() => this.ledger);
  /** What the session's turns are asked with again and again. */
  readonly asked = new RepeatedParts();
  /** One at a time, because each builds on the head before. */
  readonly #writes = new Serial();
  #cacheKey: { readonly family: string; readonly key: string } | undefined;

  constructor(parts: StoredParts) {
    this.#parts = parts;
    this.#head = parts.head && withLedger(parts.head);
  }

  /** Undefined until something is stored. */
  get head(): Head | undefined {
    return this.#head;
  }

  /** The number this worker's claim of the session gave it. */
  get epoch(): number {
    return this.#parts.epoch;
  }

  /** Whose session it is, also before it is stored. */
  get identity(): Identity {
    return this.#head ?? this.#parts.identity;
  }

  /** See {@link Head.family}. */
  get family(): string {
    return this.#head?.family ?? this.#parts.id;
  }

  /** What providers keep a family's requests under. */
  get cacheKey(): string {
    const { family } = this;
    if (this.#cacheKey?.family !== family)
      this.#cacheKey = { family, key: `troupe-${fingerprint(family).toString(36)}` };
    return this.#cacheKey.key;
  }

  get leaf(): string | null {
    return this.#head?.leaf ?? null;
  }

  get revision(): number {
    return this.#head?.revision ?? 0;
  }

  get turnIndex(): number {
    return this.#head?.turnIndex ?? 0;
  }

  get frameId(): string {
    return this.#head?.frameId ?? FIRST_FRAME;
  }

  /** Reads the components as they are stored now. */
  reader(): ComponentReader {
    return new ComponentReader(this.#parts.store, this.#head);
  }

  /** Every write from now on takes along what of these is dirty, and of no others. */
  register(...components: readonly StoredComponent[]): void {
    this.#components = components;
  }

  registerRows(...rows: readonly SessionRows[]): void {
    this.#rows.push(...rows);
  }

  registerRiding(...rows: readonly SessionRows[]): void {
    this.#riding.push(...rows);
  }

  /** Something is to be stored. New blobs alone are not: nothing that is stored refers to them. */
  get dirty(): boolean {
    return this.usage.dirty || this.#components.some(({ dirty }) => dirty) || this.#rows.some(({ dirty }) => dirty);
  }

  /** Everything that is here is stored: who opens the session again finds it as it is. */
  get isSaved(): boolean {
    return this.#writes.size === 0 && !this.dirty;
  }

  /** What every source has spent, but for the running turn's own calls. */
  get ledger(): Ledger {
    return addLedgers(addLedgers(this.#head?.ledger ?? [], this.usage.encode()), this.usage.held);
  }

  /** Writes down something the running turn did; resolves when it is durable, with what counts if it was done before. */
  async record(...[entry, unless]: Parameters<JournalWriter>): Promise<JournalReceipt> {
    while (this.#writes.size > 0) await this.#writes.ended();
    if (unless?.() === true) return { replayed: false };
    const { id: sessionId, epoch, store } = this.#parts;
    const riding = this.#riding.flatMap((each) => each.encode());
    const rows = withoutRepeated(riding, entry.rows);
    const { turnId, key, hash, envelope, bytes } = entry;
    const expectedRevision = this.revision;
    try {
      const receipt = await store.record({
        sessionId,
        turnId,
        key,
        hash,
        ...(envelope !== undefined && { envelope }),
        bytes,
        expectedRevision,
        epoch,
        ...(rows.length > 0 && { rows }),
      });
      // What was recorded before changes no row again.
      if (!receipt.replayed) for (const each of this.#riding) each.written(riding);
      return receipt;
    } catch (error) {
      this.#ifMoved(error);
      throw error;
    }
  }

  /** Somebody else has the session: nothing of this one is stored any more, and nothing more is to be tried. */
  #ifMoved(error: unknown): void {
    if (error instanceof TroupeError && error.code === "session_moved") this.#parts.life.giveUp(error);
  }

  /** Nothing that was recorded is to be taken up again. */
  async clearJournal(): Promise<void> {
    if (!this.#parts.journals) return;
    while (this.#writes.size > 0) await this.#writes.ended();
    const { id: sessionId, epoch } = this.#parts;
    const rows = this.#riding.flatMap((each) => each.encode());
    await this.#parts.store
      .clearJournal({ sessionId, expectedRevision: this.revision, epoch, ...(rows.length > 0 && { rows }) })
      .then(() => {
        for (const each of this.#riding) each.written(rows);
      })
      // Whatever keeps the store from it keeps it from the next write too, and that one tells.
      .catch((error) => this.#ifMoved(error));
  }

  /**
   * Writes the first head of a session that was made of another, as it was planned and with what its protocol made of it
   * when it took it on.
   */
  async found({ components, ...planned }: Pick<Commit, "components" | "segment">): Promise<void> {
    const changes = this.changes();
    const applied = applyComponents(this.#head?.components ?? {}, changes);
    const head = { ...(this.#head as Head), components: applied.components };
    await this.#parts.store.commit({
      head,
      expectedRevision: 0,
      epoch: this.#parts.epoch,
      components: [...components, ...applied.bytes],
      ...planned,
    });
    this.#adopt(head, changes);
  }

  /**
   * Stores what is dirty, also of a session that was never stored; nothing when another write has by then. `unless` is
   * asked when it is about to be written: somebody else stores it.
   */
  async store(operation: string, unless = () => false): Promise<void> {
    await this.write(() => (this.dirty && !unless() ? { operation } : undefined));
  }

  /**
   * One atomic write: what `plan` says, and everything that changed beside the history. Whatever a write fails for,
   * what is stored may no longer be what is here.
   */
  write(plan: Plan): Promise<Head> {
    return this.#writes.run(() => this.#writeNow(plan));
  }

  async #writeNow(plan: Plan): Promise<Head> {
    const { id, store, epoch, blobs, journals, past, inputs } = this.#parts;
    const previous = this.#head;
    const revision = this.revision + 1;
    const planned = plan(previous, revision);
    if (planned === undefined) return previous as Head;
    const { segment, head: changes, endsTurn = false, spent = [], adopted } = planned;
    const { exactOperation = `${planned.operation}:${this.#parts.clock.uuid()}` } = planned;
    const components = this.changes();
    const attached = blobs.encode();
    const usage = this.usage.encode();
    const applied = applyComponents(previous?.components ?? {}, components);
    const rows = [...this.#changedRows(), ...(planned.rows ?? [])];
    for (const row of rows) delete applied.components[formerComponentOf(row) ?? ""];
    const ledger = addLedgers(addLedgers(previous?.ledger ?? [], spent), usage);
    // Only with messages: what somebody has counted in passing is not known to a session that was parked meanwhile.
    const counted = planned.messagesBefore ?? (segment && past.known);
    // What is added stands before what is copied: to a copy, V8 adds a field for the price of a hundred.
    const head: Head = {
      sessionId: id,
      leaf: null,
      turnIndex: 0,
      usage: NO_USAGE,
      ...(previous ?? this.#parts.identity),
      ...changes,
      ...(segment !== undefined && { leaf: nodeId(segment.id, segment.messages.length - 1) }),
      ...(counted !== undefined && {
        messageCount: counted + (segment?.messages.filter(isConversation).length ?? 0),
      }),
      ...(ledger.length > 0 && { ledger: sharingOwn(ledger, changes?.usage ?? previous?.usage ?? NO_USAGE) }),
      revision,
      components: applied.components,
      operation: exactOperation,
    };
    const commit: Commit = {
      head,
      expectedRevision: revision - 1,
      epoch,
      ...(rows.length > 0 && { rows }),
      ...(segment !== undefined && { segment: { id: segment.id, bytes: encode(segment) } }),
      components: [...applied.bytes, ...attached],
      ...(endsTurn && journals && { clearsJournal: true }),
      ...(journals && inputs.turnsWait && { turnsWait: true }),
    };
    try {
      await store.commit(commit);
    } catch (error) {
      // The store decided against the write, for a row that is not the session's: what is stored is still what is here.
      if (planned.conflicted !== undefined && isRowConflict(error)) planned.conflicted();
      else this.#parts.life.giveUp(error);
      throw error;
    }
    // Nothing awaits between the store's word and adopting it.
    this.#adopt(head, components, adopted);
    blobs.written(attached);
    for (const each of [...this.#rows, ...this.#riding]) each.written(rows);
    this.usage.written(usage);
    return head;
  }

  #changedRows(): RowChange[] {
    const changed: RowChange[] = [];
    for (const each of this.#rows) if (each.dirty) changed.push(...each.encode());
    for (const each of this.#riding) if (each.dirty) changed.push(...each.encode());
    return changed;
  }

  /** The components that are dirty, as they are now. */
  changes(): Change[] {
    const changes: Change[] = [];
    for (const owner of this.#components) {
      if (owner.dirty) changes.push({ owner, name: owner.name, bytes: owner.encode() });
    }
    return changes;
  }

  #adopt(head: Head, changes: readonly Change[], adopted?: () => void): void {
    this.#head = head;
    adopted?.();
    for (const { owner, bytes } of changes) owner.written(bytes);
  }
}

function isRowConflict(error: unknown): boolean {
  return error instanceof TroupeError && error.code === "row_conflict";
}

/** No row twice in one write: what is said with it counts. */
function withoutRepeated(riding: readonly RowWrite[], own: readonly RowWrite[] = []): readonly RowWrite[] {
  if (own.length === 0) return riding;
  const said = new Set(own.map(rowKey));
  return [...riding.filter((row) => !said.has(rowKey(row))), ...own];
}

/** A head of an older release says what was spent in another way. What is not there is not added: parking is no change. */
function withLedger(head: Head): Head {
  const ledger = ledgerOf(head);
  return ledger.length === 0 && head.ledger === undefined ? head : { ...head, ledger };
}

/** A component as a write takes it along; null for one that is no more. */
interface Change {
  readonly owner: StoredComponent;
  readonly name: string;
  readonly bytes: Uint8Array | null;
}
