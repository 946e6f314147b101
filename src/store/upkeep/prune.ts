import {
  type ChangeCount,
  type Head,
  parseNodeId,
  type RowWrite,
  rowNameOf,
  type StoreWrite,
  type SweepWrite,
  type WriteReceipt,
  type WriteResult,
} from "../../kernel/index.js";
import { type KeyTable, outlinedSegment, type StoreBackend } from "../records/index.js";
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

/** Does something while nothing else is being written: a batch that is away is waited for, and the next one waits. */
export type Alone = <T>(run: () => Promise<T>) => Promise<T>;

interface PruningParts {
  readonly policy: PrunePolicy;
  readonly suspects: Suspects;
  readonly now: number;
  /** Default: nobody else writes. */
  readonly alone?: Alone;
}

/**
 * One pruning: marks what heads, journals and rows lead to, then removes the rest. It runs in the store worker in short
 * steps, and commits are written between them. They cannot lose anything to it:
 *
 * - What a commit of that time stores or names is marked as it is written (`wrote`), before the next step.
 * - Each step of the sweep runs while nothing else is being written (`alone`): everything that was written before is
 *   marked by then, and what is still unmarked is removed in one transaction.
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
  readonly #alone: Alone;
  readonly #marked = { segments: new Set<string>(), components: new Set<string>() };
  /** Nodes and components that are reachable and not followed yet. */
  readonly #nodes: string[] = [];
  readonly #components: string[] = [];
  #followed = 0;
  #swept = 0;

  constructor(backend: StoreBackend, { policy, suspects, now, alone = (run) => run() }: PruningParts) {
    this.#backend = backend;
    this.#policy = policy;
    this.#suspects = suspects;
    this.#now = now;
    this.#alone = alone;
  }

  /** `pause`: lets the commits that wait be written. */
  async run(pause: Pause): Promise<PruneReport> {
    await this.#eachKey("heads", pause, async (sessionId) => {
      const head = await this.#backend.head(sessionId);
      // Deleted since the list was made.
      if (head !== undefined) this.#markHead(head);
    });
    await this.#eachKey("journals", pause, async (sessionId) => {
      for (const { bytes } of await this.#backend.journal(sessionId)) this.#markNamedIn(bytes);
    });
    await this.#eachKey("rows", pause, async (key) => {
      const row = await this.#backend.row(rowNameOf(key));
      if (row !== undefined) this.#markRow(row.value);
    });
    const segments = await this.#sweep("segments", pause);
    const components = await this.#sweep("components", pause);
    return { segments, components, journals: await this.#sweepJournals(pause) };
  }

  /** Goes through a table, and follows what was marked there. */
  async #eachKey(table: KeyTable, pause: Pause, mark: (key: string) => Promise<void>): Promise<void> {
    for (let after: string | undefined; ; ) {
      const keys = await this.#backend.keys(table, after, STEP);
      for (const key of keys) await mark(key);
      await this.#follow(pause);
      after = keys.at(-1);
      if (keys.length < STEP) return;
      await pause({ step: "mark", done: this.#followed, total: null });
    }
  }

  /** Told of everything that is written while this runs. */
  wrote(write: StoreWrite): void {
    switch (write.kind) {
      case "commit": {
        const { head, segment, components, rows } = write.commit;
        this.#markHead(head);
        if (segment !== undefined) this.#markNamedIn(segment.bytes);
        for (const { hash } of components) this.#markComponent(hash);
        this.#markRows(rows);
        break;
      }
      case "record":
        this.#markNamedIn(write.entry.bytes);
        this.#markRows(write.entry.rows);
        break;
      case "clear":
        this.#markRows(write.rows);
        break;
      case "rows":
        this.#markRows(write.changes);
        break;
      // These only take away, and an import does not run beside a pruning.
      case "delete":
      case "sweep":
      case "import":
        break;
    }
  }

  #markRows(changes: readonly RowWrite[] = []): void {
    for (const change of changes) if ("value" in change && change.value !== null) this.#markRow(change.value);
  }

  /** What a row names may be a component that names others. */
  #markRow(value: Uint8Array): void {
    for (const hash of hashesIn(value)) if (this.#markComponent(hash)) this.#components.push(hash);
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
      for (let i = 0; i < STEP && (await this.#followOne()); i++) this.#followed++;
      await pause({ step: "mark", done: this.#followed, total: null });
    }
  }

  async #followOne(): Promise<boolean> {
    const node = this.#nodes.pop();
    if (node !== undefined) {
      await this.#followNode(node);
      return true;
    }
    const hash = this.#components.pop();
    if (hash === undefined) return false;
    const bytes = await this.#backend.component(hash);
    if (bytes !== undefined) this.#markNamedIn(bytes);
    return true;
  }

  async #followNode(node: string): Promise<void> {
    const { segment } = parseNodeId(node);
    if (this.#marked.segments.has(segment)) return;
    const { bytes, outline } = await outlinedSegment(this.#backend, segment);
    this.#marked.segments.add(segment);
    if (outline.parent !== null) this.#nodes.push(outline.parent);
    this.#markNamedIn(bytes);
  }

  async #sweep(table: SweptTable, pause: Pause): Promise<SweepCount> {
    const count = { kept: 0, removed: 0, waiting: 0 };
    for (let after: string | undefined; ; ) {
      // What was written during the last pause leads somewhere too.
      await this.#follow(pause);
      const keys = await this.#alone(() => this.#sweepStep(table, after, count));
      after = keys.at(-1);
      if (keys.length < STEP) return count;
      await this.#pauseSweep(pause, keys.length);
    }
  }

  async #sweepStep(
    table: SweptTable,
    after: string | undefined,
    count: { kept: number; removed: number; waiting: number },
  ): Promise<readonly string[]> {
    // A batch that was away when this was asked for is written by now, and leads somewhere as well.
    while (await this.#followOne()) this.#followed++;
    const keys = await this.#backend.keys(table, after, STEP);
    const condemned = keys.filter((key) => {
      const fate = this.#fateOf(table, key);
      if (fate !== "removed") count[fate]++;
      return fate === "removed";
    });
    count.removed += await this.#remove({ [table]: condemned });
    if (!this.#policy.dryRun) for (const key of condemned) this.#suspects.delete(`${table} ${key}`);
    return keys;
  }

  #fateOf(table: SweptTable, key: string): keyof SweepCount {
    const { graceMs = HOUR } = this.#policy;
    const name = `${table} ${key}`;
    if (this.#marked[table].has(key)) {
      this.#suspects.delete(name);
      return "kept";
    }
    const since = this.#suspects.get(name) ?? this.#now;
    if (!this.#policy.dryRun) this.#suspects.set(name, since);
    return this.#now - since >= graceMs ? "removed" : "waiting";
  }

  #pauseSweep(pause: Pause, swept: number): Promise<void> {
    this.#swept += swept;
    return pause({ step: "sweep", done: this.#swept, total: null });
  }

  async #sweepJournals(pause: Pause): Promise<SweepCount> {
    const { journalsOlderThanMs: quietForMs = Number.POSITIVE_INFINITY, running = [] } = this.#policy;
    const kept = new Set(running);
    const count = { kept: 0, removed: 0, waiting: 0 };
    for (let after: string | undefined; ; ) {
      const sessions = await this.#backend.keys("journals", after, STEP);
      const journals = sessions.filter((sessionId) => !kept.has(sessionId));
      const removed = await this.#alone(() => this.#remove({ journals, quietForMs }));
      count.removed += removed;
      count.kept += sessions.length - removed;
      after = sessions.at(-1);
      if (sessions.length < STEP) return count;
      await this.#pauseSweep(pause, sessions.length);
    }
  }

  /** How many journals a sweep would remove. */
  async #outdated({ journals, quietForMs }: SweepWrite): Promise<number> {
    const recordedSince = this.#now - quietForMs;
    let outdated = 0;
    for (const sessionId of journals) {
      const rows = await this.#backend.journal(sessionId);
      if ((rows.at(-1)?.at ?? recordedSince) < recordedSince) outdated++;
    }
    return outdated;
  }

  async #remove(what: Partial<SweepWrite>): Promise<number> {
    const sweep: SweepWrite = {
      kind: "sweep",
      segments: [],
      components: [],
      journals: [],
      quietForMs: 0,
      ...what,
    };
    if (sweep.segments.length + sweep.components.length + sweep.journals.length === 0) return 0;
    if (this.#policy.dryRun) return sweep.segments.length + sweep.components.length + (await this.#outdated(sweep));
    return ((await written(this.#backend, sweep)) as ChangeCount).changed;
  }
}

/** Writes at once what nobody else can be waiting for. */
export async function written(backend: StoreBackend, write: StoreWrite): Promise<WriteReceipt> {
  // One answer per write.
  const [result] = (await backend.write([write])) as [WriteResult];
  if (!result.ok) throw result.error;
  return result.receipt;
}
