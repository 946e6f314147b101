import {
  type ChangeCount,
  type Head,
  parseNodeId,
  type StoreWrite,
  type SweepWrite,
  type WriteReceipt,
  type WriteResult,
} from "../../kernel/index.js";
import { type KeyTable, outlinesOf, type StoreBackend } from "../records/index.js";
import { hashesIn } from "../transfer/index.js";
import type { Pause } from "./progress.js";

/** What to keep. Everything a session leads to is kept always. */
export interface PrunePolicy {
  /**
   * How long something must have been unreachable before it goes, counted from the first pruning that found it so: a
   * turn may hold what it has not committed yet. Default one hour; 0 removes it at once, for a store nobody uses.
   */
  readonly graceMs?: number;
  /** Journals nothing was recorded in for so long are removed. Default: they are kept. */
  readonly journalsOlderThanMs?: number;
  /** Sessions whose turns are running: their journals are kept whatever their age. */
  readonly running?: readonly string[];
  /** Counts what would go, and removes nothing. */
  readonly dryRun?: boolean;
}

export interface PruneReport {
  readonly segments: SweepCount;
  readonly components: SweepCount;
  readonly journals: SweepCount;
}

export interface SweepCount {
  readonly kept: number;
  readonly removed: number;
  /** Unreachable, but not for long enough. */
  readonly waiting: number;
}

const HOUR = 3_600_000;
/** Records looked at in one step, and removed in one transaction. */
const STEP = 250;

type SweptTable = Extract<KeyTable, "segments" | "components">;

/** Since when each unreachable record has been known to be so. Lives as long as the store is open. */
export type Suspects = Map<string, number>;

/**
 * One pruning: marks what the heads lead to, then removes the rest. It runs in the store worker in short steps, and
 * commits are written between them. They cannot lose anything to it:
 *
 * - What a commit of that time stores or names is marked as it is written (`wrote`), before the next step.
 * - Each step of the sweep removes only what is unmarked, in one transaction, with no commit in between.
 * - What only memory knows of (a fork's snapshot on its way to another thread, an attachment before its turn is stored)
 *   is unreachable here. The grace covers it; and should it be gone all the same, the commit that names it is refused
 *   with `component_missing` or `history_missing` and nothing is left dangling.
 *
 * When something cannot be read, what it leads to is unknown: the pruning fails and removes nothing.
 */
export class Pruning {
  readonly #backend: StoreBackend;
  readonly #policy: PrunePolicy;
  readonly #suspects: Suspects;
  readonly #now: number;
  readonly #marked = { segments: new Set<string>(), components: new Set<string>() };
  /** Nodes and components that are reachable and not followed yet. */
  readonly #nodes: string[] = [];
  readonly #components: string[] = [];
  #followed = 0;
  #swept = 0;

  constructor(backend: StoreBackend, options: { policy: PrunePolicy; suspects: Suspects; now: number }) {
    this.#backend = backend;
    this.#policy = options.policy;
    this.#suspects = options.suspects;
    this.#now = options.now;
  }

  /** `pause`: lets the commits that wait be written. */
  async run(pause: Pause): Promise<PruneReport> {
    for (const sessionId of [...this.#backend.sessionIds()]) {
      const head = this.#backend.head(sessionId);
      // Deleted since the list was made.
      if (head !== undefined) this.#markHead(head);
      if (this.#nodes.length + this.#components.length >= STEP) await this.#follow(pause);
    }
    for (let after: string | undefined; ; ) {
      const sessions = this.#backend.keys("journals", after, STEP);
      for (const sessionId of sessions)
        for (const { bytes } of this.#backend.journal(sessionId)) this.#markNamedIn(bytes);
      await this.#follow(pause);
      after = sessions.at(-1);
      if (sessions.length < STEP) break;
    }
    const segments = await this.#sweep("segments", pause);
    const components = await this.#sweep("components", pause);
    return { segments, components, journals: await this.#sweepJournals(pause) };
  }

  /** Told of everything that is written while this runs. */
  wrote(write: StoreWrite): void {
    switch (write.kind) {
      case "commit": {
        const { head, segment, components } = write.commit;
        this.#markHead(head);
        if (segment !== undefined) this.#markNamedIn(segment.bytes);
        for (const { hash } of components) this.#markComponent(hash);
        break;
      }
      case "record":
        this.#markNamedIn(write.entry.bytes);
        break;
      // These only take away, and an import does not run beside a pruning.
      case "delete":
      case "sweep":
      case "import":
        break;
    }
  }

  #markHead({ leaf, frames = [], parent, components }: Head): void {
    for (const node of [leaf, parent?.leaf ?? null, ...frames.map((frame) => frame.leaf)]) {
      if (node !== null) this.#nodes.push(node);
    }
    for (const hash of Object.values(components)) {
      if (this.#markComponent(hash)) this.#components.push(hash);
    }
  }

  #markComponent(hash: string): boolean {
    if (this.#marked.components.has(hash)) return false;
    this.#marked.components.add(hash);
    return true;
  }

  /** Attachments are named inside of messages, and of components that hold messages (inputs that wait). */
  #markNamedIn(bytes: Uint8Array): void {
    for (const hash of hashesIn(bytes)) this.#markComponent(hash);
  }

  async #follow(pause: Pause): Promise<void> {
    while (this.#nodes.length > 0 || this.#components.length > 0) {
      for (let i = 0; i < STEP && this.#followOne(); i++) this.#followed++;
      await pause({ step: "mark", done: this.#followed, total: null });
    }
  }

  #followOne(): boolean {
    const node = this.#nodes.pop();
    if (node !== undefined) {
      this.#followNode(node);
      return true;
    }
    const hash = this.#components.pop();
    if (hash === undefined) return false;
    const bytes = this.#backend.component(hash);
    if (bytes !== undefined) this.#markNamedIn(bytes);
    return true;
  }

  #followNode(node: string): void {
    const { segment } = parseNodeId(node);
    if (this.#marked.segments.has(segment)) return;
    let bytes: Uint8Array | undefined;
    const reader = {
      segment: (id: string) => {
        bytes = this.#backend.segment(id);
        return bytes;
      },
    };
    const { parent } = outlinesOf(reader)(segment);
    this.#marked.segments.add(segment);
    if (parent !== null) this.#nodes.push(parent);
    if (bytes !== undefined) this.#markNamedIn(bytes);
  }

  async #sweep(table: SweptTable, pause: Pause): Promise<SweepCount> {
    const { graceMs = HOUR } = this.#policy;
    const count = { kept: 0, removed: 0, waiting: 0 };
    for (let after: string | undefined; ; ) {
      // What was written during the last pause leads somewhere too.
      await this.#follow(pause);
      const keys = this.#backend.keys(table, after, STEP);
      const condemned = keys.filter((key) => {
        const name = `${table} ${key}`;
        if (this.#marked[table].has(key)) {
          this.#suspects.delete(name);
          count.kept++;
          return false;
        }
        const since = this.#suspects.get(name) ?? this.#now;
        if (!this.#policy.dryRun) this.#suspects.set(name, since);
        if (this.#now - since >= graceMs) return true;
        count.waiting++;
        return false;
      });
      count.removed += this.#remove({ [table]: condemned });
      if (!this.#policy.dryRun) for (const key of condemned) this.#suspects.delete(`${table} ${key}`);
      after = keys.at(-1);
      if (keys.length < STEP) return count;
      await this.#pauseSweep(pause, keys.length);
    }
  }

  #pauseSweep(pause: Pause, swept: number): Promise<void> {
    this.#swept += swept;
    return pause({ step: "sweep", done: this.#swept, total: null });
  }

  async #sweepJournals(pause: Pause): Promise<SweepCount> {
    const { journalsOlderThanMs = Number.POSITIVE_INFINITY, running = [] } = this.#policy;
    const kept = new Set(running);
    const count = { kept: 0, removed: 0, waiting: 0 };
    for (let after: string | undefined; ; ) {
      const sessions = this.#backend.keys("journals", after, STEP);
      const journals = sessions.filter((sessionId) => !kept.has(sessionId));
      const removed = this.#remove({ journals, recordedSince: this.#now - journalsOlderThanMs });
      count.removed += removed;
      count.kept += sessions.length - removed;
      after = sessions.at(-1);
      if (sessions.length < STEP) return count;
      await this.#pauseSweep(pause, sessions.length);
    }
  }

  /** The journals a sweep would remove. */
  #outdated({ journals, recordedSince }: SweepWrite): string[] {
    return journals.filter(
      (sessionId) => (this.#backend.journal(sessionId).at(-1)?.at ?? recordedSince) < recordedSince,
    );
  }

  #remove(what: Partial<SweepWrite>): number {
    const sweep: SweepWrite = {
      kind: "sweep",
      segments: [],
      components: [],
      journals: [],
      recordedSince: 0,
      ...what,
    };
    if (sweep.segments.length + sweep.components.length + sweep.journals.length === 0) return 0;
    if (this.#policy.dryRun) return sweep.segments.length + sweep.components.length + this.#outdated(sweep).length;
    return (written(this.#backend, sweep) as ChangeCount).changed;
  }
}

/** Writes at once what nobody else can be waiting for. */
export function written(backend: StoreBackend, write: StoreWrite): WriteReceipt {
  // One answer per write.
  const [result] = backend.write([write]) as [WriteResult];
  if (!result.ok) throw result.error;
  return result.receipt;
}
