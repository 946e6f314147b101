import { expect } from "vitest";
import type { Commit, Head, Message, RowChange, StoreWrite } from "../../src/kernel/index.js";
import { NO_USAGE, nodeId, segmentId } from "../../src/kernel/index.js";
import { type BackendAtOnce, Pruning, readHistory, sealEnvelope } from "../../src/store/index.js";
import { contentHash, decode, encode } from "../../src/wire/index.js";
import { textsOf, thrownBy, UNCLAIMED } from "./commits.js";
import { lateWrite, ModelOwners, ModelRows } from "./model-parts.js";

/** What a store should hold, in the simplest words. */
interface ModelSession {
  revision: number;
  texts: readonly string[];
  left: readonly (readonly string[])[];
  state: string | undefined;
  /** Newest first. */
  operations: readonly string[];
  journal: readonly { readonly key: string; readonly request: string; readonly outcome: string }[];
}
type Model = Map<string, ModelSession>;

export const KINDS = [
  "commit",
  "stale commit",
  "repeated operation",
  "fork",
  "frame",
  "record",
  "recorded again",
  "recorded for another request",
  "stale record",
  "clear",
  "delete",
  "commit after delete",
  "reopen",
  "prune",
  "claim",
  "claim of a free session",
  "claim of another's session",
  "release",
  "leave",
  "write of who lost it",
  "commit of who lost it",
  "record of who lost it",
  "row",
  "row with a commit",
  "row with a record",
  "row with a clearing",
  "row that is not as expected",
  "row of a deleted session",
] as const;
type Kind = (typeof KINDS)[number];

export interface Step {
  readonly kind: Kind;
  readonly session: number;
  readonly pick: number;
}

export interface DrivenStore {
  readonly backend: BackendAtOnce;
  readonly reopen: () => BackendAtOnce;
}

/** Drives a store and the model side by side. */
export class Run {
  readonly #store: DrivenStore;
  #backend: BackendAtOnce;
  readonly #model: Model = new Map();
  readonly #deleted: string[] = [];
  readonly #owners = new ModelOwners();
  readonly #rows = new ModelRows();
  readonly #counts: Map<string, number>;
  #next = 0;

  constructor(store: DrivenStore, counts: Map<string, number>) {
    this.#store = store;
    this.#backend = store.backend;
    this.#counts = counts;
  }

  async take({ kind, session, pick }: Step): Promise<void> {
    const id = this.#idOf(session);
    if (await this.#perform(kind, id, pick)) this.#counts.set(kind, (this.#counts.get(kind) ?? 0) + 1);
    this.#check();
  }

  /** Deleted ids are not used again, so each place gets a new one. */
  #idOf(session: number): string {
    const generation = this.#deleted.filter((id) => id.startsWith(`s${session}.`)).length;
    return `s${session}.${generation}`;
  }

  /** False when the step had nothing to act on. */
  async #perform(kind: Kind, id: string, pick: number): Promise<boolean> {
    const known = this.#model.get(id);
    switch (kind) {
      case "commit":
        return this.#commit(id, known, { pick });
      case "clear":
        return this.#commit(id, known, { pick, clearsJournal: true }) && (known?.journal.length ?? 0) > 0;
      case "frame":
        return known !== undefined && known.texts.length > 0 && this.#commit(id, known, { pick, frame: true });
      case "stale commit":
        return this.#staleCommit(id, known);
      case "repeated operation":
        return this.#repeat(id, known, pick);
      case "fork":
        return this.#fork(id, known, pick);
      case "record":
        return this.#record(id, known, { key: `k${this.#next++}`, request: "asked", outcome: `${pick}` });
      case "recorded again":
        return this.#recordAgain(id, known, pick);
      case "recorded for another request":
        return this.#recordMismatch(id, known, pick);
      case "stale record":
        return this.#refused(
          { kind: "record", entry: this.#entry(id, (known?.revision ?? 0) + 1, "k", "r", "o") },
          "head_conflict",
        );
      case "delete":
        return this.#delete(id, known);
      case "commit after delete":
        return this.#commitAfterDelete();
      case "reopen": {
        const before = this.#backend;
        this.#backend = this.#store.reopen();
        if (this.#backend !== before) this.#owners.reopened();
        return true;
      }
      case "claim":
        return this.#claim(id, this.#owners.owner(pick), "always");
      case "claim of a free session":
        return !this.#owners.isOwned(id) && this.#claim(id, this.#owners.owner(pick), "free");
      case "claim of another's session":
        return this.#claimOfAnothers(id, this.#owners.owner(pick));
      case "release":
        return this.#release(id);
      case "leave":
        this.#backend.leave(this.#owners.left(pick));
        return true;
      case "write of who lost it":
      case "commit of who lost it":
      case "record of who lost it":
        return this.#late(kind, pick);
      case "row":
        return this.#row(pick % 2 === 0 ? undefined : id, pick);
      case "row with a commit":
        return this.#commit(id, known, { pick, rows: [this.#rows.change(id, pick, this.#next++)] });
      case "row with a record": {
        const row = { key: `k${this.#next++}`, request: "asked", outcome: `${pick}` };
        return this.#record(id, known, row, [this.#rows.change(undefined, pick, this.#next++)]);
      }
      case "row with a clearing":
        return this.#clear(id, known, [this.#rows.change(id, pick, this.#next++)]);
      case "row that is not as expected":
        return this.#wrongRow(id, known, pick);
      case "row of a deleted session": {
        const gone = this.#deleted.at(-1);
        if (gone === undefined) return false;
        return this.#refused({ kind: "rows", changes: [this.#rows.change(gone, pick, 0)] }, "session_deleted");
      }
      case "prune": {
        const pruning = new Pruning(this.#backend, { policy: { graceMs: 0 }, suspects: new Map(), now: 1 });
        await pruning.run(() => Promise.resolve());
        return true;
      }
    }
  }

  #commit(
    id: string,
    known: ModelSession | undefined,
    {
      pick,
      frame = false,
      clearsJournal = false,
      rows = [],
    }: { pick: number; frame?: boolean; clearsJournal?: boolean; rows?: readonly RowChange[] },
  ): boolean {
    const texts = Array.from({ length: 1 + (pick % 3) }, () => `text ${this.#next++}`);
    const operation = `op ${this.#next++}`;
    const state = pick % 4 === 0 ? undefined : `state ${pick % 5}`;
    const commit = { ...this.#commitOf(id, { texts, operation, state, frame, clearsJournal }), rows };
    expect(this.#write({ kind: "commit", commit })).toEqual({ revision: commit.head.revision, replayed: false });
    this.#model.set(id, {
      revision: commit.head.revision,
      texts: frame ? texts : [...(known?.texts ?? []), ...texts],
      left: frame ? [...(known?.left ?? []), known?.texts ?? []] : (known?.left ?? []),
      state,
      operations: [operation, ...(known?.operations ?? [])],
      journal: clearsJournal ? [] : (known?.journal ?? this.#journals.get(id) ?? []),
    });
    this.#journals.delete(id);
    for (const row of rows) this.#rows.changed(row);
    return true;
  }

  /** Journals of sessions that have no head yet. */
  readonly #journals = new Map<string, ModelSession["journal"]>();

  #commitOf(
    id: string,
    what: {
      texts: readonly string[];
      operation: string;
      state: string | undefined;
      frame: boolean;
      clearsJournal: boolean;
    },
  ): Commit {
    const { texts, operation, state, frame, clearsJournal } = what;
    const head = this.#backend.head(id);
    const revision = (head?.revision ?? 0) + 1;
    const segment = segmentId(id, revision);
    const messages = texts.map(
      (text, i): Message => ({ id: nodeId(segment, i), role: "user", parts: [{ type: "text", text }] }),
    );
    const component = state === undefined ? undefined : encode(state);
    const frames = head?.frames ?? [];
    return {
      head: {
        ...(head ?? { sessionId: id, turnIndex: 0, usage: NO_USAGE }),
        sessionId: id,
        revision,
        leaf: nodeId(segment, texts.length - 1),
        components: component === undefined ? {} : { state: contentHash(component) },
        operation,
        ...(frame && {
          frameId: `frame ${revision}`,
          frames: [...frames, { frameId: head?.frameId ?? "main", reason: "test", leaf: head?.leaf ?? null }],
        }),
      } as Head,
      expectedRevision: revision - 1,
      epoch: UNCLAIMED,
      segment: { id: segment, bytes: encode({ id: segment, parent: frame ? null : (head?.leaf ?? null), messages }) },
      components: component === undefined ? [] : [{ hash: contentHash(component), bytes: component }],
      ...(clearsJournal && { clearsJournal }),
    };
  }

  #staleCommit(id: string, known: ModelSession | undefined): boolean {
    if (known === undefined || known.revision < 2) return false;
    const commit = this.#commitOf(id, {
      texts: ["stale"],
      operation: "stale",
      state: "stale",
      frame: false,
      clearsJournal: true,
    });
    const revision = known.revision;
    const segment = segmentId(id, revision);
    const messages = [{ id: "stale", role: "user", parts: [] }];
    const stale: Commit = {
      ...commit,
      head: { ...commit.head, revision, leaf: `${segment}.0` },
      expectedRevision: revision - 1,
      segment: { id: segment, bytes: encode({ id: segment, parent: null, messages }) },
    };
    return this.#refused({ kind: "commit", commit: stale }, "head_conflict");
  }

  #repeat(id: string, known: ModelSession | undefined, pick: number): boolean {
    if (known === undefined) return false;
    const at = pick % Math.min(known.operations.length, 16);
    const operation = known.operations[at] as string;
    const commit = this.#commitOf(id, {
      texts: ["again"],
      operation,
      state: undefined,
      frame: false,
      clearsJournal: true,
    });
    expect(this.#write({ kind: "commit", commit })).toEqual({ revision: known.revision - at, replayed: true });
    return true;
  }

  #fork(id: string, known: ModelSession | undefined, pick: number): boolean {
    const head = this.#backend.head(id);
    if (known === undefined || head === undefined || known.texts.length === 0) return false;
    const cut = 1 + (pick % known.texts.length);
    const leaf = this.#nodes(id)[cut - 1] as string;
    const fork = `fork ${this.#next++}`;
    const child: Head = {
      sessionId: fork,
      revision: 1,
      leaf,
      turnIndex: 0,
      usage: NO_USAGE,
      components: head.components,
      operation: fork,
      parent: { sessionId: id, leaf },
    };
    this.#write({ kind: "commit", commit: { head: child, expectedRevision: 0, epoch: UNCLAIMED, components: [] } });
    const texts = known.texts.slice(0, cut);
    this.#model.set(fork, { revision: 1, texts, left: [], state: known.state, operations: [fork], journal: [] });
    return true;
  }

  /** The nodes of a session's path, read as a person would: message ids of this test are node ids. */
  #nodes(id: string): string[] {
    return readHistory(this.#backend, this.#backend.head(id)?.leaf ?? null).map((message) => message.id);
  }

  #entry(sessionId: string, expectedRevision: number, key: string, request: string, outcome: string) {
    return {
      sessionId,
      turnId: "t",
      key,
      ...sealEnvelope({ request }),
      bytes: encode(outcome),
      expectedRevision,
      epoch: UNCLAIMED,
    };
  }

  #record(
    id: string,
    known: ModelSession | undefined,
    row: ModelSession["journal"][number],
    rows: readonly RowChange[] = [],
  ): boolean {
    const entry = { ...this.#entry(id, known?.revision ?? 0, row.key, row.request, row.outcome), rows };
    expect(this.#write({ kind: "record", entry })).toEqual({ replayed: false });
    for (const each of rows) this.#rows.changed(each);
    const journal = [...this.#journalOf(id), row];
    if (known === undefined) this.#journals.set(id, journal);
    else this.#model.set(id, { ...known, journal });
    return true;
  }

  #recordAgain(id: string, known: ModelSession | undefined, pick: number): boolean {
    const journal = this.#journalOf(id);
    const row = journal[pick % Math.max(1, journal.length)];
    if (row === undefined) return false;
    const entry = this.#entry(id, known?.revision ?? 0, row.key, row.request, "another outcome");
    const receipt = this.#write({ kind: "record", entry }) as { replayed: boolean; bytes: Uint8Array };
    expect([receipt.replayed, decode(receipt.bytes)]).toEqual([true, row.outcome]);
    return true;
  }

  #recordMismatch(id: string, known: ModelSession | undefined, pick: number): boolean {
    const journal = this.#journalOf(id);
    const row = journal[pick % Math.max(1, journal.length)];
    if (row === undefined) return false;
    const entry = this.#entry(id, known?.revision ?? 0, row.key, "another request", "outcome");
    return this.#refused({ kind: "record", entry }, "replay_mismatch");
  }

  #journalOf(id: string): ModelSession["journal"] {
    return this.#model.get(id)?.journal ?? this.#journals.get(id) ?? [];
  }

  #delete(id: string, known: ModelSession | undefined): boolean {
    this.#write({ kind: "delete", sessionId: id, epoch: UNCLAIMED });
    this.#journals.delete(id);
    this.#rows.deleted(id);
    if (known === undefined) return false;
    this.#model.delete(id);
    this.#deleted.push(id);
    return true;
  }

  #commitAfterDelete(): boolean {
    const id = this.#deleted.at(-1);
    if (id === undefined) return false;
    const commit = this.#commitOf(id, {
      texts: ["late"],
      operation: "late",
      state: undefined,
      frame: false,
      clearsJournal: false,
    });
    return this.#refused({ kind: "commit", commit }, "session_deleted");
  }

  #claim(id: string, owner: string, take: "always" | "free"): boolean {
    this.#owners.claimed(id, owner, this.#backend.claim(id, { owner, take }));
    return true;
  }

  #claimOfAnothers(id: string, owner: string): boolean {
    if (!this.#owners.isOwned(id)) return false;
    if (this.#owners.isOf(id, owner)) return this.#claim(id, owner, "free") && false;
    expect(thrownBy(() => this.#backend.claim(id, { owner, take: "free" }))).toMatchObject({ code: "session_moved" });
    return true;
  }

  #release(id: string): boolean {
    const epoch = this.#owners.epoch(id);
    if (epoch === undefined) return false;
    // Who lost it takes nothing away by releasing.
    for (const lost of this.#owners.lost.slice(-3)) this.#backend.release(lost.sessionId, lost.epoch);
    expect(this.#backend.isOwned(id)).toBe(this.#owners.isOwned(id));
    this.#backend.release(id, epoch);
    this.#owners.released(id);
    return true;
  }

  /** Whatever who lost a session sends, it changes nothing. */
  #late(kind: Kind, pick: number): boolean {
    const lost = this.#owners.lost[pick % Math.max(1, this.#owners.lost.length)];
    if (lost === undefined || this.#deleted.includes(lost.sessionId)) return false;
    const { sessionId, epoch } = lost;
    const revision = this.#backend.head(sessionId)?.revision ?? 0;
    if (kind === "write of who lost it") return this.#refused(lateWrite(lost, revision, pick), "session_moved");
    if (kind === "record of who lost it") {
      const entry = { ...this.#entry(sessionId, revision, "late", "asked", "late"), epoch };
      return this.#refused({ kind: "record", entry }, "session_moved");
    }
    const texts = ["late"];
    const late = { texts, operation: "late", state: "late", frame: false, clearsJournal: true };
    return this.#refused({ kind: "commit", commit: { ...this.#commitOf(sessionId, late), epoch } }, "session_moved");
  }

  #row(session: string | undefined, pick: number): boolean {
    const change = this.#rows.change(session, pick, this.#next++);
    const owner = session === undefined ? {} : { owner: { sessionId: session, epoch: UNCLAIMED } };
    const receipt = this.#write({ kind: "rows", changes: [change], ...owner });
    expect(receipt).toEqual({ versions: [this.#rows.changed(change)] });
    return true;
  }

  #clear(id: string, known: ModelSession | undefined, rows: readonly RowChange[]): boolean {
    const expectedRevision = known?.revision ?? 0;
    this.#write({ kind: "clear", sessionId: id, expectedRevision, epoch: UNCLAIMED, rows });
    if (known === undefined) this.#journals.delete(id);
    else this.#model.set(id, { ...known, journal: [] });
    for (const row of rows) this.#rows.changed(row);
    return true;
  }

  /** Refuses all it came with. */
  #wrongRow(id: string, known: ModelSession | undefined, pick: number): boolean {
    const rows = [this.#rows.change(id, pick, this.#next++, { wrong: true })];
    const revision = known?.revision ?? 0;
    const what = { texts: ["no"], operation: `op ${this.#next++}`, state: "no", frame: false, clearsJournal: true };
    const writes: readonly StoreWrite[] = [
      { kind: "rows", changes: rows },
      { kind: "commit", commit: { ...this.#commitOf(id, what), rows } },
      { kind: "record", entry: { ...this.#entry(id, revision, `k${this.#next++}`, "asked", "no"), rows } },
      { kind: "clear", sessionId: id, expectedRevision: revision, epoch: UNCLAIMED, rows },
    ];
    return this.#refused(writes[pick % writes.length] as StoreWrite, "row_conflict");
  }

  /** The epoch of who has the session; nobody's is claimed first. */
  #epoch(id: string): number {
    if (this.#owners.epoch(id) === undefined) this.#claim(id, this.#owners.owner(this.#next), "free");
    return this.#owners.epoch(id) as number;
  }

  #owned(write: StoreWrite): StoreWrite {
    if (write.kind === "commit" && write.commit.epoch === UNCLAIMED)
      return { ...write, commit: { ...write.commit, epoch: this.#epoch(write.commit.head.sessionId) } };
    if (write.kind === "record" && write.entry.epoch === UNCLAIMED)
      return { ...write, entry: { ...write.entry, epoch: this.#epoch(write.entry.sessionId) } };
    if ((write.kind === "clear" || write.kind === "delete") && write.epoch === UNCLAIMED)
      return { ...write, epoch: this.#epoch(write.sessionId) };
    if (write.kind === "rows" && write.owner?.epoch === UNCLAIMED)
      return { ...write, owner: { ...write.owner, epoch: this.#epoch(write.owner.sessionId) } };
    return write;
  }

  #write(write: StoreWrite): unknown {
    const [result] = this.#backend.write([this.#owned(write)]);
    if (result?.ok !== true) throw result?.error;
    return result.receipt;
  }

  #refused(write: StoreWrite, code: string): boolean {
    const owned = this.#owned(write);
    const before = { ...this.#backend.writes };
    const [result] = this.#backend.write([owned]);
    expect(result).toMatchObject({ ok: false, error: { code } });
    expect({ ...this.#backend.writes }).toEqual(before);
    return true;
  }

  /** Everything the store says is what the model says. */
  #check(): void {
    const backend = this.#backend;
    expect([...backend.sessionIds()]).toEqual([...this.#model.keys()].sort());
    for (const [id, session] of this.#model) {
      const head = backend.head(id) as Head;
      const state = head.components.state === undefined ? undefined : backend.component(head.components.state);
      expect({
        revision: head.revision,
        texts: textsOf(readHistory(backend, head.leaf)),
        left: (head.frames ?? []).map(({ leaf }) => textsOf(readHistory(backend, leaf))),
        state: state && decode(state),
        journal: journalIn(backend, id),
      }).toEqual({
        revision: session.revision,
        texts: session.texts,
        left: session.left,
        state: session.state,
        journal: session.journal.map(({ key, outcome }) => [key, outcome]),
      });
    }
    for (const [id, journal] of this.#journals) {
      expect(journalIn(backend, id)).toEqual(journal.map(({ key, outcome }) => [key, outcome]));
    }
    for (const id of this.#deleted) expect(backend.journal(id)).toEqual([]);
    const sessions = new Set([...this.#model.keys(), ...[0, 1, 2, 3].map((session) => this.#idOf(session))]);
    this.#owners.check(backend, sessions);
    this.#rows.check(backend, sessions);
    for (const id of this.#model.keys()) {
      const children = [...this.#model.keys()].filter((each) => backend.head(each)?.parent?.sessionId === id);
      expect([...backend.children(id)].sort()).toEqual(children.sort());
    }
    const listed = backend.sessionsInOrder({ limit: 1_000 }).map(({ sessionId }) => sessionId);
    expect(listed.sort()).toEqual([...this.#model.keys()].sort());
  }
}

function journalIn(backend: BackendAtOnce, id: string): unknown[] {
  return backend.journal(id).map(({ key, bytes }) => [key, decode(bytes)]);
}
