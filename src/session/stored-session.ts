import { randomUUID } from "node:crypto";
import {
  addEntry,
  addLedgers,
  type Commit,
  FIRST_FRAME,
  type Head,
  isConversation,
  type JournalEntry,
  type Ledger,
  type LedgerEntry,
  ledgerOf,
  ledgerSince,
  type Message,
  NO_USAGE,
  nodeId,
  sharingOwn,
} from "../kernel/index.js";
import type { StoreClient } from "../store/index.js";
import { encode } from "../wire/index.js";
import type { Blobs } from "./blobs.js";
import { applyComponents, ChangedComponents, pluginComponent } from "./components.js";
import type { PluginSlot } from "./plugin-link.js";

export interface StoredParts {
  readonly id: string;
  readonly store: StoreClient;
  readonly head: Head | undefined;
  readonly blobs: Blobs;
  readonly slots: readonly (PluginSlot | undefined)[];
  /** Whose slot is at an index. */
  readonly pluginIds: (index: number) => string;
  /** Of the history up to the leaf, when they were counted. */
  readonly messageCount: () => number | undefined;
  /** What is stored may no longer be what is here. */
  readonly onWriteFailed: (error: unknown) => void;
}

/** How a session keeps what its turn recorded. */
export type JournalWriter = (entry: Omit<JournalEntry, "sessionId" | "expectedRevision">) => Promise<unknown>;

/** Says what to write over a head; nothing, when it finds that there is nothing to be written. */
export type Plan = (previous: Head | undefined, revision: number) => WritePlan | undefined;

/** What one write changes beside the components. */
export interface WritePlan {
  readonly operation: string;
  /** Names the operation once and for all; otherwise it is one of its own. */
  readonly exactOperation?: string;
  readonly segment?: { readonly id: string; readonly parent: string | null; readonly messages: readonly Message[] };
  readonly head?: Partial<Head>;
  readonly clearsJournal?: boolean;
  /** By the session's own calls. */
  readonly spent?: Ledger;
  /** What else becomes true with it, at once. */
  readonly adopted?: () => void;
}

/** What of a session is stored: its head, what changed since, and the one write that is under way. */
export class StoredSession {
  readonly #parts: StoredParts;
  #head: Head | undefined;
  readonly #changed = new ChangedComponents();
  /** Usage of other sources that no commit has written yet. */
  #unwrittenUsage: Ledger = [];
  /** One at a time, because each builds on the head before. */
  #writing: Promise<unknown> | undefined;

  constructor(parts: StoredParts) {
    this.#parts = parts;
    this.#head = parts.head && withLedger(parts.head);
  }

  /** Undefined until something is stored. */
  get head(): Head | undefined {
    return this.#head;
  }

  get leaf(): string | null {
    return this.#head?.leaf ?? null;
  }

  get revision(): number {
    return this.#head?.revision ?? 0;
  }

  get frameId(): string {
    return this.#head?.frameId ?? FIRST_FRAME;
  }

  /** Has a component stored with the next write; null for one that is no more. */
  change(component: string, bytes: Uint8Array | null): void {
    this.#changed.set(component, bytes);
  }

  isChanged(component: string): boolean {
    return this.#changed.has(component);
  }

  get hasChanges(): boolean {
    return this.#changed.size > 0 || this.#unsavedSlots().length > 0 || this.#unwrittenUsage.length > 0;
  }

  /** Everything that is here is stored: who opens the session again finds it as it is. */
  get isSaved(): boolean {
    return this.#writing === undefined && !this.hasChanges;
  }

  /** What every source has spent, but for the running turn's own calls. */
  get ledger(): Ledger {
    return addLedgers(this.#head?.ledger ?? [], this.#unwrittenUsage);
  }

  /** Written with whatever is written next. What the whole ledger could not hold is refused here, and not then. */
  countUsage(entry: LedgerEntry): void {
    addEntry(this.ledger, entry);
    this.#unwrittenUsage = addEntry(this.#unwrittenUsage, entry);
  }

  get isWriting(): boolean {
    return this.#writing !== undefined;
  }

  /** Waits for the write under way; the next one may have begun by then. */
  async written(): Promise<void> {
    await this.#writing?.catch(ignore);
  }

  /** Writes down something the running turn did; resolves when it is durable. */
  async record(entry: Parameters<JournalWriter>[0]): Promise<unknown> {
    while (this.isWriting) await this.written();
    return this.#parts.store.record({ ...entry, sessionId: this.#parts.id, expectedRevision: this.revision });
  }

  /** Nothing that was recorded is to be taken up again. */
  async clearJournal(): Promise<void> {
    while (this.isWriting) await this.written();
    await this.#parts.store
      .clearJournal({ sessionId: this.#parts.id, expectedRevision: this.revision })
      // Whatever keeps the store from it keeps it from the next write too, and that one tells.
      .catch(ignore);
  }

  /**
   * Writes the first head of a session that was made of another, as it was planned and with what its protocol made of it
   * when it took it on.
   */
  async found({ components, ...planned }: Pick<Commit, "components" | "segment">): Promise<void> {
    const changes = this.changes();
    const slots = this.#unsavedSlots();
    const applied = applyComponents(this.#head?.components ?? {}, changes);
    const head = { ...(this.#head as Head), components: applied.components };
    await this.#parts.store.commit({
      head,
      expectedRevision: 0,
      components: [...components, ...applied.bytes],
      ...planned,
    });
    this.#head = head;
    this.#written(changes, slots);
  }

  /**
   * One atomic write: what `plan` says, and everything that changed beside the history. Whatever a write fails for,
   * what is stored may no longer be what is here.
   */
  async write(plan: Plan): Promise<Head> {
    while (this.isWriting) await this.written();
    const writing = this.#writeNow(plan);
    this.#writing = writing;
    try {
      return await writing;
    } finally {
      this.#writing = undefined;
    }
  }

  async #writeNow(plan: Plan): Promise<Head> {
    const { id, store, blobs, messageCount } = this.#parts;
    const previous = this.#head;
    const revision = this.revision + 1;
    const planned = plan(previous, revision);
    if (planned === undefined) return previous as Head;
    const { segment, head: changes, clearsJournal = false, spent = [], adopted } = planned;
    const { exactOperation = `${planned.operation}:${randomUUID()}` } = planned;
    const components = this.changes();
    const slots = this.#unsavedSlots();
    const unsaved = blobs.unsaved();
    const usage = this.#unwrittenUsage;
    const applied = applyComponents(previous?.components ?? {}, components);
    const ledger = addLedgers(addLedgers(previous?.ledger ?? [], spent), usage);
    // Only with messages: what somebody has counted in passing is not known to a session that was parked meanwhile.
    const counted = changes?.leaf === null ? 0 : segment && messageCount();
    const head: Head = {
      sessionId: id,
      leaf: null,
      turnIndex: 0,
      usage: NO_USAGE,
      ...previous,
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
      ...(segment !== undefined && { segment: { id: segment.id, bytes: encode(segment) } }),
      components: unsaved.length === 0 ? applied.bytes : [...applied.bytes, ...unsaved],
      ...(clearsJournal && { clearsJournal }),
    };
    try {
      await store.commit(commit);
    } catch (error) {
      this.#parts.onWriteFailed(error);
      throw error;
    }
    // Nothing awaits between the store's word and adopting it.
    this.#head = head;
    adopted?.();
    this.#written(components, slots);
    blobs.written(unsaved);
    this.#unwrittenUsage = ledgerSince(this.#unwrittenUsage, usage);
    return head;
  }

  /** Components that changed since the last write, plugin state among them; null for one that is no more. */
  changes(): [string, Uint8Array | null][] {
    const slots = this.#unsavedSlots();
    if (slots.length === 0) return this.#changed.size === 0 ? [] : this.#changed.entries();
    return [
      ...this.#changed.entries(),
      ...slots.map(({ pluginId, bytes }): [string, Uint8Array] => [pluginComponent(pluginId), bytes]),
    ];
  }

  #written(components: readonly [string, Uint8Array | null][], slots: readonly UnsavedSlot[]): void {
    this.#changed.written(components);
    for (const { slot, bytes } of slots) if (slot.captured === bytes) slot.unsaved = false;
  }

  #unsavedSlots(): UnsavedSlot[] {
    const unsaved: UnsavedSlot[] = [];
    this.#parts.slots.forEach((slot, index) => {
      if (slot?.unsaved !== true || slot.captured === undefined) return;
      unsaved.push({ slot, pluginId: this.#parts.pluginIds(index), bytes: slot.captured });
    });
    return unsaved;
  }
}

/** A head of an older release says what was spent in another way. What is not there is not added: parking is no change. */
function withLedger(head: Head): Head {
  const ledger = ledgerOf(head);
  return ledger.length === 0 && head.ledger === undefined ? head : { ...head, ledger };
}

/** A plugin's state that was captured and is not stored. */
interface UnsavedSlot {
  readonly slot: PluginSlot;
  readonly pluginId: string;
  readonly bytes: Uint8Array;
}

function ignore(): void {}
