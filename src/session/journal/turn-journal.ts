import { type Clock, deferred, ignore, type Timer, untilAborted } from "../../async/index.js";
import {
  addLedgers,
  type JournalReceipt,
  type JournalRow,
  type Json,
  type Ledger,
  ledgerSince,
  replayMismatch,
  TroupeError,
} from "../../kernel/index.js";
import type { TurnFacts } from "../../plugin/index.js";
import { sealEnvelope } from "../../store/index.js";
import { decode, encode } from "../../wire/index.js";
import type { SessionHooks } from "../plugins/index.js";
import type { JournalWriter, UnwrittenUsage } from "../stored/index.js";
import { RESUMED, START, type TurnStart, type UnfinishedTurn } from "./unfinished-turn.js";

/** Something a turn does once, whatever becomes of its worker. `T`: what came of it; `R`: what is recorded of that. */
export interface Once<T, R = T> {
  /** The same in every life of the turn. */
  readonly key: string;
  /** What is asked for. A turn that asks for something else under the same key is not the same turn. */
  readonly envelope: () => Json;
  readonly run: () => T | Promise<T>;
  /** What is recorded; undefined: nothing, and it is done again. Default: what came of it. */
  readonly keep?: (value: T) => R | undefined | Promise<R | undefined>;
  /** Nothing is built on it yet: it is recorded only when something is. */
  readonly owes?: (value: T) => boolean;
  /** The plugins it may have left in another state, by id: their state is recorded and restored with it. */
  readonly changes?: (value: T) => readonly string[] | "all";
  /** Makes of what was recorded, and when, what came of it. Default: that is what was recorded. */
  readonly found?: (recorded: R, at: number) => T | Promise<T>;
  /** It does nothing outside of the turn, so what the turn owes need not be recorded first. */
  readonly inside?: boolean;
}

/**
 * What a turn has done, recorded before anything is built on it: a paid answer, a finished tool call, what a checkpoint
 * delivered. A turn that is taken up again runs as it did the first time, and finds here what it need not do twice.
 */
export interface TurnJournal {
  /** Not waited for: what is recorded later is stored behind it, and without anything recorded nothing was done. */
  begin(start: () => TurnStart): Promise<unknown> | undefined;
  /** The turn is taken up again, for the n-th time. `past` is called when it is clear that this does not kill its worker. */
  resume(n: number, past: () => void): Promise<void>;
  /** Finds what was done, or does and records it. Rejects with `replay_mismatch` when something else was asked for then. */
  once<T, R = T>(step: Once<T, R>): T | Promise<T>;
  /** How many were given a number at this place before: tells apart what else would have the same key. */
  number(place: string): number;
  /** What somebody else recorded for the turn. */
  find<T>(key: string): T | undefined;
  /** The turn waits for somebody outside. */
  waits(): void;
  /** The turn is left as it is, and no death's fault is it. */
  left(): Promise<void>;
  ended(): void;
}

/** Of a runtime that records nothing: everything is done as if there were no journal. */
export const NO_JOURNAL: TurnJournal = {
  begin: () => undefined,
  resume: async () => undefined,
  once: ({ run }) => run(),
  number: () => 0,
  find: () => undefined,
  waits: ignore,
  left: async () => undefined,
  ended: ignore,
};

interface StoredJournalParts extends Pick<TurnFacts, "sessionId" | "turnId"> {
  readonly clock: Clock;
  readonly write: JournalWriter;
  readonly hooks: Pick<SessionHooks, "unsavedState" | "restoreState">;
  /** Of other sources than the turn's own calls. */
  readonly usage: Pick<UnwrittenUsage, "held" | "hold">;
  readonly unfinished: UnfinishedTurn | undefined;
}

export class StoredJournal implements TurnJournal {
  readonly #parts: StoredJournalParts;
  readonly #rows: ReadonlyMap<string, JournalRow>;
  /** What was given out and not recorded, because nothing was built on it yet. */
  #unrecorded: { readonly key: string; readonly envelope: Json; readonly value: unknown } | undefined;
  /** Of a turn that was taken up again. */
  #trial: Trial | undefined;
  #note: ((what: Passed | "left") => Promise<unknown>) | undefined;
  /** Which row each plugin has its state of. */
  readonly #restored = new Map<string, number>();
  readonly #numbers = new Map<string, number>();
  /** What of the turn's usage beside its own calls is recorded. */
  #recordedUsage: Ledger;

  constructor(parts: StoredJournalParts) {
    this.#parts = parts;
    this.#recordedUsage = parts.usage.held;
    this.#rows = new Map(parts.unfinished?.rows.map((row) => [row.key, row]));
  }

  begin(start: () => TurnStart): Promise<unknown> {
    return this.#record(START, null, start());
  }

  async resume(n: number, past: () => void): Promise<void> {
    await this.#record(`${RESUMED}:${n}`, null, null);
    this.#note = (what) => this.#put(`${what}:${n}`, null, encode(null));
    this.#trial = new Trial({ clock: this.#parts.clock, note: this.#note, past });
  }

  waits(): void {
    this.#trial?.end("waits");
  }

  async left(): Promise<void> {
    this.ended();
    await this.#note?.("left").catch(ignore);
  }

  ended(): void {
    this.#trial?.end();
  }

  async once<T, R = T>(step: Once<T, R>): Promise<T> {
    const { key, run, keep, inside = false } = step;
    const envelope = step.envelope();
    const row = this.#row(key, envelope);
    if (row !== undefined) return this.#replay(row, step);
    const owed = inside ? undefined : this.#settled();
    if (owed !== undefined) await owed;
    const value = await run();
    const kept = keep === undefined ? value : await keep(value);
    if (kept === undefined) return value;
    if (step.owes?.(value) === true) this.#unrecorded = { key, envelope, value: kept };
    else {
      const state = await this.#stateLeft(step.changes?.(value));
      const spent = this.#unrecordedUsage();
      const aside = { ...(state && { state }), ...(spent && { spent }) };
      const outcome = state === undefined && spent === undefined ? kept : { ...kept, ...aside };
      const receipt = await this.#record(key, envelope, outcome);
      // It was recorded before: that is what came of it, whatever came of it now.
      if (receipt.replayed) return this.#replay({ ...receipt, sequence: Number.POSITIVE_INFINITY }, step);
    }
    return value;
  }

  number(place: string): number {
    const number = this.#numbers.get(place) ?? 0;
    this.#numbers.set(place, number + 1);
    return number;
  }

  find<T>(key: string): T | undefined {
    const row = this.#row(key, null);
    return row && decode<T>(row.bytes);
  }

  #row(key: string, envelope: Json): JournalRow | undefined {
    const row = this.#rows.get(key);
    if (row === undefined) return undefined;
    const asked = sealEnvelope(envelope);
    if (row.hash === asked.hash) return row;
    const { sessionId, turnId } = this.#parts;
    throw replayMismatch(row, { sessionId, turnId, key, ...asked });
  }

  #replay<T, R>(
    { bytes, at, sequence }: Pick<JournalRow, "bytes" | "at" | "sequence">,
    { found }: Once<T, R>,
  ): T | Promise<T> {
    const { state = {}, spent = NO_LEDGER, ...recorded } = decode<(R & Aside) | null>(bytes) ?? {};
    this.#restoreState(state, sequence);
    this.#restoreUsage(spent);
    return found === undefined ? (recorded as T) : found(recorded as R, at);
  }

  /** Resolves when it is durable, and what it builds on. */
  async #record(key: string, envelope: Json, value: unknown): Promise<JournalReceipt> {
    const before = this.#settled();
    const written = this.#put(key, envelope, encode(value));
    if (before !== undefined) await Promise.all([before, written]);
    const receipt = await written;
    this.#trial?.end();
    return receipt;
  }

  #put(key: string, envelope: Json, bytes: Uint8Array): Promise<JournalReceipt> {
    const { turnId, write } = this.#parts;
    return write({ turnId, key, ...sealEnvelope(envelope), bytes });
  }

  /** Everything that was given out is durable; undefined when it is already. */
  #settled(): Promise<void> | undefined {
    const owed = this.#unrecorded;
    if (owed === undefined) return undefined;
    this.#unrecorded = undefined;
    return this.#recordOwed(owed.key, owed.envelope, encode(owed.value));
  }

  /** What was given out already must be what counts. */
  async #recordOwed(key: string, envelope: Json, bytes: Uint8Array): Promise<void> {
    const receipt = await this.#put(key, envelope, bytes);
    this.#trial?.end();
    if (!receipt.replayed || Buffer.compare(receipt.bytes, bytes) === 0) return;
    const { sessionId, turnId } = this.#parts;
    throw new TroupeError(
      "replay_mismatch",
      `${key} of turn ${turnId} in session ${sessionId} came to something else before: the turn is not repeating itself.`,
      { details: { sessionId, turnId, key } },
    );
  }

  async #stateLeft(changed: readonly string[] | "all" = NOBODY): Promise<PluginStates | undefined> {
    const { hooks } = this.#parts;
    if (changed === "all") return hooks.unsavedState();
    return changed.length === 0 ? undefined : hooks.unsavedState(changed);
  }

  /** What the turn spent beside its own calls since the last row: it is kept with this one, or a crash would lose it. */
  #unrecordedUsage(): Ledger | undefined {
    const { held } = this.#parts.usage;
    if (held === this.#recordedUsage) return undefined;
    const spent = ledgerSince(held, this.#recordedUsage);
    this.#recordedUsage = held;
    return spent;
  }

  #restoreUsage(spent: Ledger): void {
    for (const entry of spent) this.#parts.usage.hold(entry);
    this.#recordedUsage = addLedgers(this.#recordedUsage, spent);
  }

  /** Gives plugins the state they had when a row was recorded: what left them with it is not done again. */
  #restoreState(states: PluginStates, sequence: number): void {
    for (const [pluginId, bytes] of Object.entries(states)) {
      // Calls that ran at the same time ended in an order of their own: the last one's state has all of them.
      if ((this.#restored.get(pluginId) ?? -1) > sequence) continue;
      this.#restored.set(pluginId, sequence);
      this.#parts.hooks.restoreState(pluginId, bytes);
    }
  }
}

const NOBODY: readonly string[] = [];

const NO_LEDGER: Ledger = [];

/** What is recorded beside what came of something. */
interface Aside {
  readonly state?: PluginStates;
  readonly spent?: Ledger;
}

/** The state of plugins as bytes, by plugin id. */
type PluginStates = Readonly<Record<string, Uint8Array>>;

/** How long a suspect has to show what it is. What kills a worker does so as soon as it is done again. */
const ALONE_MS = 2_000;

/**
 * Turns whose worker died with them more than once, on one worker. One of them may be what kills it, and the others only
 * share the worker: they are taken up one at a time, so that the next death is that one's.
 */
export class Suspects {
  #last: Promise<void> = Promise.resolve();

  /** Resolves when those before it have shown what they are, with what says the same of this one; or when it aborts. */
  async alone(signal: AbortSignal): Promise<() => void> {
    const before = this.#last;
    const { promise, resolve: past } = deferred();
    this.#last = promise;
    await untilAborted(before, signal).catch(ignore);
    if (!signal.aborted) return past;
    // Whoever is behind it still waits for those before it.
    void before.then(past);
    return ignore;
  }
}

/** How a turn came through its trial: it waits for somebody, or it has simply gone on for so long. */
export type Passed = "waits" | "lasted";

interface TrialParts {
  readonly clock: Clock;
  /** Writes down how it was passed. */
  readonly note: (passed: Passed) => Promise<unknown>;
  /** Lets the next suspect begin. */
  readonly past: () => void;
}

/**
 * The time from when a turn is taken up again until it has done something new, has ended, waits for somebody outside or
 * has lasted. A worker that dies before that counts against the turn, and later it does not.
 */
export class Trial {
  readonly #parts: TrialParts;
  readonly #timer: Timer;
  #over = false;

  constructor(parts: TrialParts) {
    this.#parts = parts;
    this.#timer = parts.clock.timeout(ALONE_MS, () => this.end("lasted"));
  }

  /** It has something to show, or has ended; or it has passed without. */
  end(passed?: Passed): void {
    if (this.#over) return;
    this.#over = true;
    this.#timer.cancel();
    const { note, past } = this.#parts;
    // The next suspect begins when this one's good name is written down.
    if (passed === undefined) past();
    else void note(passed).then(past, past);
  }
}
