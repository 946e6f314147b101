import { type Clock, type Deferred, deferred, ignore } from "../../async/index.js";
import {
  addLedgers,
  type Cancellation,
  type JournalReceipt,
  type JournalRow,
  type Json,
  type Ledger,
  ledgerSince,
  type RowWrite,
  replayMismatch,
  replayMismatched,
  type TroupeError,
} from "../../kernel/index.js";
import type { TurnFacts } from "../../plugin/index.js";
import { sealEnvelope } from "../../store/index.js";
import { decode, encode } from "../../wire/index.js";
import type { SessionHooks } from "../plugins/index.js";
import type { JournalWriter, UnwrittenUsage } from "../stored/index.js";
import { HeldStart } from "./held-start.js";
import type { TurnJournal } from "./no-journal.js";
import type { Once } from "./once.js";
import { type Passed, Trial } from "./trial.js";
import {
  CANCEL,
  cancellationIn,
  doneIn,
  notedIn,
  RESUMED,
  START,
  type TurnStart,
  type UnfinishedTurn,
} from "./unfinished-turn.js";

interface StoredJournalParts extends Pick<TurnFacts, "sessionId" | "turnId"> {
  readonly clock: Clock;
  readonly write: JournalWriter;
  /** The turn is stored: what it recorded is cleared. */
  readonly isStored: () => boolean;
  readonly hooks: Pick<SessionHooks, "unsavedState" | "stateSoFar" | "restoreState">;
  /** Of other sources than the turn's own calls. */
  readonly usage: Pick<UnwrittenUsage, "held" | "hold">;
  readonly unfinished: UnfinishedTurn | undefined;
  /** A turn that was taken up again has found all it had done. Told before it does anything new. */
  readonly onCaughtUp: () => void;
  /** It goes on with what it was asked with: what was recorded counts, whatever is asked for now. */
  readonly goesOn?: boolean;
}

export class StoredJournal implements TurnJournal {
  readonly #parts: StoredJournalParts;
  readonly #start: HeldStart;
  readonly #rows: ReadonlyMap<string, JournalRow>;
  /** What was given out and not recorded, because nothing was built on it yet. */
  #unrecorded: { readonly key: string; readonly envelope: Json; readonly value: unknown } | undefined;
  /** Of a turn that was taken up again. */
  #trial: Trial | undefined;
  #note: ((what: Passed | "left") => Promise<unknown>) | undefined;
  /** Which row each plugin has its state of. */
  readonly #restored = new Map<string, number>();
  readonly #numbers = new Map<string, number>();
  /** Of other sources than the turn's own calls: what there was before it, and what of the turn's is recorded. */
  readonly #usageBefore: Ledger;
  #recordedUsage: Ledger;
  /** The place of the row that has all the turn had spent when it was prepared: those before it have a part of that. */
  #spentUntil = -1;

  #replaying: boolean;
  readonly cancellation: Cancellation | undefined;
  /** What a turn that was taken up again has still to find; undefined for any other. */
  readonly #ahead: Set<string> | undefined;
  /** It waits for somebody, or for a time to come. */
  #waits = false;
  #replayedAt: number | undefined;
  /** Whether the turn was begun, as soon as that is known; set by {@link hold}. */
  #begun: Deferred<boolean> | undefined;

  constructor(parts: StoredJournalParts) {
    this.#parts = parts;
    this.#start = new HeldStart({ clock: parts.clock, put: (start) => this.#put(START, null, encode(start)) });
    this.#replaying = parts.unfinished !== undefined;
    this.#usageBefore = parts.usage.held;
    this.#recordedUsage = this.#usageBefore;
    this.#rows = new Map(parts.unfinished?.rows.map((row) => [row.key, row]));
    this.#ahead = parts.unfinished && doneIn(parts.unfinished);
    this.cancellation = parts.unfinished && cancellationIn(parts.unfinished);
    this.#replayedAt = this.#rows.get(START)?.at;
  }

  hold(): void {
    this.#begun = deferred();
  }

  get held(): boolean {
    return this.#begun !== undefined;
  }

  begin(start: () => TurnStart, { held } = { held: false }): Promise<unknown> | undefined {
    this.#begun?.resolve(true);
    this.#begun = undefined;
    if (held) {
      this.#start.hold(start);
      return undefined;
    }
    return this.#record({ key: START, envelope: null }, start());
  }

  async resume(n: number, past: () => void): Promise<void> {
    await this.#record({ key: `${RESUMED}:${n}`, envelope: null }, null);
    this.#note = (what) => this.#put(`${what}:${n}`, null, encode(null));
    this.#trial = new Trial({ clock: this.#parts.clock, note: this.#note, past });
  }

  waits(): void {
    this.#trial?.end("waits");
    this.#waits = true;
    if (this.#ahead?.size === 0) this.#parts.onCaughtUp();
  }

  async cancel(cancellation: Cancellation): Promise<unknown> {
    // Of a turn that is never begun nothing is there to be cancelled.
    if (this.#begun !== undefined && !(await this.#begun.promise)) return undefined;
    const { turnId, write, isStored } = this.#parts;
    void this.#start.write()?.catch(ignore);
    // Behind the turn's own write there is no turn left to cancel.
    return write({ turnId, key: CANCEL, ...sealEnvelope(null), bytes: encode(cancellation) }, isStored);
  }

  get isAhead(): boolean {
    return this.#ahead !== undefined && this.#ahead.size > 0;
  }

  #found(key: string): void {
    if (this.#ahead?.delete(key) === true && this.#waits && this.#ahead.size === 0) this.#parts.onCaughtUp();
  }

  /** Nothing behind it was done before; but the tools that code calls were done before the code had ended. */
  #misses(key: string): void {
    if (this.#ahead === undefined || (key.startsWith("code:") && this.#ahead.size > 0)) return;
    this.#ahead.clear();
    this.#parts.onCaughtUp();
  }

  async left(): Promise<void> {
    await this.#start.write()?.catch(ignore);
    this.ended();
    await this.#note?.("left").catch(ignore);
  }

  storing(): void {
    this.#start.drop();
  }

  ended(): void {
    this.#begun?.resolve(false);
    this.#start.drop();
    this.#trial?.end();
  }

  async once<T, R = T>(step: Once<T, R>): Promise<T> {
    const { key, run, keep, inside = false } = step;
    if (this.#begun !== undefined) return run();
    const envelope = step.envelope();
    const row = this.#rows.get(key);
    if (row !== undefined) {
      const counts = this.#counts(row, envelope, step);
      if (!counts && (this.#parts.goesOn !== true || step.otherwise === undefined)) throw this.#mismatch(row, envelope);
      this.#found(key);
      return counts ? this.#replay(row, step) : (step.otherwise as () => T)();
    }
    if (!inside) this.#misses(key);
    // A step that only looks inside the turn is recorded when something came of it: none proves nothing.
    if (!inside) this.#replaying = false;
    const owed = inside ? undefined : this.#settled();
    if (owed !== undefined) await owed;
    const value = await run();
    const kept = keep === undefined ? value : await keep(value);
    if (kept === undefined) return value;
    if (step.owes?.(value) === true) this.#unrecorded = { key, envelope, value: kept };
    else {
      const state = await this.#stateLeft(step.changes?.(value));
      // A step that may be refused takes nothing along that would be missed then.
      const spent = step.rows === undefined ? this.#unrecordedUsage() : undefined;
      const aside = state === undefined && spent === undefined ? undefined : asideOf(state, spent);
      const outcome = aside === undefined ? kept : { ...kept, ...aside };
      const rows = step.rows ?? step.rowsOf?.(value);
      const receipt = await this.#record({ key, envelope, rows }, outcome);
      // It was recorded before: that is what came of it, whatever came of it now.
      if (receipt.replayed) return this.#replay({ ...receipt, sequence: Number.POSITIVE_INFINITY }, step);
    }
    return value;
  }

  get replaying(): boolean {
    return this.#replaying;
  }

  get replayedAt(): number | undefined {
    return this.#replaying ? this.#replayedAt : undefined;
  }

  number(place: string): number {
    const number = this.#numbers.get(place) ?? 0;
    this.#numbers.set(place, number + 1);
    return number;
  }

  has(key: string): boolean {
    return this.#rows.has(key);
  }

  find<T>(key: string, envelope: Json = null): T | undefined {
    const row = this.#rows.get(key);
    if (row === undefined) return undefined;
    if (!this.#counts(row, envelope)) throw this.#mismatch(row, envelope);
    return decode<T>(row.bytes);
  }

  note(key: string, value: object): void {
    // What is recorded next fails for the same reason, and is waited for.
    this.#put(key, null, encode(value)).catch(ignore);
  }

  noteDone(key: string, value: object, plugins: readonly string[]): Promise<void> | undefined {
    if (plugins.length > 0) {
      const { hooks } = this.#parts;
      return hooks.stateSoFar(plugins).then((state) => this.#noteWith(key, value, state));
    }
    this.#noteWith(key, value, undefined);
    return undefined;
  }

  /** All that the turn spent until then: the rows behind it are of what comes to it. */
  #noteWith(key: string, value: object, state: PluginStates | undefined): void {
    const { held } = this.#parts.usage;
    const spent = held === this.#usageBefore ? undefined : ledgerSince(held, this.#usageBefore);
    this.#recordedUsage = held;
    const done = state === undefined && spent === undefined ? value : { ...value, ...asideOf(state, spent) };
    const together = this.#start.write(done);
    if (together === undefined) this.note(key, done);
    else together.catch(ignore);
  }

  takeUp(): void {
    const noted = notedIn<Aside>(this.#rows);
    if (noted === undefined) return;
    const { state = {}, spent = NO_LEDGER } = noted.value;
    this.#restoreState(state, noted.sequence);
    this.#restoreUsage(spent);
    this.#spentUntil = noted.sequence;
  }

  /** Is a row the record of what is asked for? */
  #counts(row: JournalRow, envelope: Json, { earlier, counts }: Pick<Once<never>, "earlier" | "counts"> = {}): boolean {
    if (row.hash === sealEnvelope(envelope).hash) return true;
    if (earlier !== undefined && row.hash === sealEnvelope(earlier()).hash) return true;
    return this.#parts.goesOn === true && counts?.(keptOf(row)) === true;
  }

  #mismatch(row: JournalRow, envelope: Json): TroupeError {
    const { sessionId, turnId } = this.#parts;
    this.#misses("");
    return replayMismatch(row, { sessionId, turnId, key: row.key, ...sealEnvelope(envelope) });
  }

  #replay<T, R>(
    { bytes, at, sequence }: Pick<JournalRow, "bytes" | "at" | "sequence">,
    { found }: Once<T, R>,
  ): T | Promise<T> {
    const { state = {}, spent = NO_LEDGER, ...recorded } = decode<(R & Aside) | null>(bytes) ?? {};
    this.#restoreState(state, sequence);
    if (sequence > this.#spentUntil) this.#restoreUsage(spent);
    this.#replayedAt = Math.max(this.#replayedAt ?? 0, at);
    return found === undefined ? (recorded as T) : found(recorded as R, at);
  }

  /** Resolves when it is durable, and what it builds on. */
  async #record({ key, envelope, rows }: Recording, value: unknown): Promise<JournalReceipt> {
    const before = this.#settled();
    const written = this.#put(key, envelope, encode(value), rows);
    if (before !== undefined) await Promise.all([before, written]);
    const receipt = await written;
    this.#trial?.end();
    return receipt;
  }

  #put(key: string, envelope: Json, bytes: Uint8Array, rows?: readonly RowWrite[]): Promise<JournalReceipt> {
    // What the turn began with stands before everything else of it.
    void this.#start.write()?.catch(ignore);
    const { turnId, write } = this.#parts;
    return write({ turnId, key, ...sealEnvelope(envelope), bytes, ...(rows && { rows }) });
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
    throw replayMismatched(
      `${key} of turn ${turnId} in session ${sessionId} came to something else before: the turn is not repeating itself.`,
      { sessionId, turnId, key },
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

function asideOf(state: PluginStates | undefined, spent: Ledger | undefined): Aside {
  return { ...(state && { state }), ...(spent && { spent }) };
}

/** What a row was recorded for, as far as it is kept. */
function keptOf({ envelope }: JournalRow): Json | undefined {
  return envelope === undefined ? undefined : (JSON.parse(envelope) as Json);
}

/** What is recorded, and with what. */
interface Recording {
  readonly key: string;
  readonly envelope: Json;
  readonly rows?: readonly RowWrite[] | undefined;
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
