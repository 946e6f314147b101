import {
  answerKeyOf,
  completionKeyOf,
  type JournalRow,
  type Json,
  type Part,
  replayMismatch,
  type TurnConfig,
  type TurnResult,
} from "../kernel/index.js";
import type { TurnFacts } from "../plugin/index.js";
import { sealEnvelope } from "../store/index.js";
import { decode, encode } from "../wire/index.js";
import type { SessionHooks } from "./hooks.js";
import type { SessionPluginOptions, TurnExtras } from "./protocol.js";
import type { JournalWriter } from "./stored-session.js";
import { type Passed, Trial } from "./suspects.js";
import type { TurnKey } from "./turn-keys.js";

/** What a turn was begun with: enough to begin it again. */
export interface TurnStart {
  /** Whose call it was; nobody's when an input that waited began it. */
  readonly call: string | undefined;
  readonly input: string;
  readonly parts: readonly Part[];
  readonly extras: TurnExtras;
  /** Attachments no commit has stored yet. */
  readonly blobs: readonly Uint8Array[];
  /** Inputs it was begun with, by id. */
  readonly inputIds: readonly string[];
  /** Its caller's name for it. The name is of what was asked for, which may be several turns before. */
  readonly name?: TurnKey;
  /** What came of those. */
  readonly before?: readonly TurnResult[];
  /** What its session was opened with: no store has that otherwise. */
  readonly pluginOptions?: SessionPluginOptions;
  /** It was asked for with something of no use. */
  readonly stopped?: TurnConfig["stopped"];
}

const START = "start";
const RESUMED = "resumed";
const LASTED = "lasted";
/** How often in a row a worker may die with a turn that was taken up and had nothing to show yet. */
export const MAX_STRIKES = 3;
/** How often in a row a turn is taken up that never has anything to show, although it lasts. */
export const MAX_IDLE = 12;

/** A turn a crash left behind, as its journal has it. */
export interface UnfinishedTurn {
  readonly turnId: string;
  readonly start: TurnStart;
  readonly rows: readonly JournalRow[];
  /** How often it was taken up again already. */
  readonly resumed: number;
  /** Of those, how often its worker died at once, and how often it died at all, since the turn last did something. */
  readonly strikes: number;
  readonly idle: number;
}

/** The turn a session's journal tells of; what is left of one that was stored, or that cannot be begun again, is none. */
export function unfinishedTurn(rows: readonly JournalRow[], turnId: string): UnfinishedTurn | undefined {
  const own = rows.filter((row) => row.turnId === turnId);
  const start = own.find(({ key }) => key === START);
  if (start === undefined) return undefined;
  return { turnId, start: decode<TurnStart>(start.bytes), rows: own, ...deathsIn(own) };
}

/** What the rows say of the times the turn was taken up. Any other row is something it did, or a wait it came to. */
function deathsIn(rows: readonly JournalRow[]): Pick<UnfinishedTurn, "resumed" | "strikes" | "idle"> {
  let [resumed, strikes, idle] = [0, 0, 0];
  for (const { key } of rows) {
    if (key.startsWith(RESUMED)) {
      resumed++;
      strikes++;
      idle++;
    } else {
      strikes = 0;
      if (!key.startsWith(LASTED)) idle = 0;
    }
  }
  return { resumed, strikes, idle };
}

/** The calls of an unfinished turn that wait for an answer from outside, by completion key. */
export function awaitedCalls(sessionId: string, { turnId, rows }: UnfinishedTurn): string[] {
  return rows.flatMap(({ key, bytes }) => {
    if (!key.startsWith("tools:")) return [];
    const { pending, callId } = decode<{ readonly pending?: unknown; readonly callId?: string }>(bytes) ?? {};
    if (pending === undefined || callId === undefined) return [];
    const completionKey = completionKeyOf(sessionId, turnId, callId);
    return rows.some((row) => row.key === answerKeyOf(completionKey)) ? [] : [completionKey];
  });
}

/** The last code the turn ran left its executor without state: what the last commit has of it is not to come back. */
export function leavesNoExecution({ rows }: UnfinishedTurn): boolean {
  const left = rows.flatMap(({ key, bytes }) => {
    if (!key.startsWith("code:")) return [];
    const { execution } = decode<{ readonly execution?: Uint8Array | null }>(bytes);
    return execution === undefined ? [] : [execution];
  });
  return left.at(-1) === null;
}

/**
 * What a turn has done, recorded before anything is built on it: a paid answer, a finished tool call, what a checkpoint
 * delivered. A turn that is taken up again runs as it did the first time, and finds here what it need not do twice.
 */
export class TurnJournal {
  readonly #sessionId: string;
  readonly #turnId: string;
  readonly #write: JournalWriter;
  readonly #rows: ReadonlyMap<string, JournalRow>;
  /** What was given out and not recorded, because nothing was built on it yet. */
  #unrecorded: { readonly key: string; readonly envelope: Json; readonly value: unknown } | undefined;
  /** Of a turn that was taken up again. */
  #trial: Trial | undefined;
  #note: ((what: Passed | "left") => Promise<unknown>) | undefined;
  /** Which row each plugin has its state of. */
  readonly #restored = new Map<string, number>();

  constructor(
    { sessionId, turnId }: Pick<TurnFacts, "sessionId" | "turnId">,
    write: JournalWriter,
    unfinished?: UnfinishedTurn,
  ) {
    this.#sessionId = sessionId;
    this.#turnId = turnId;
    this.#write = write;
    this.#rows = new Map(unfinished?.rows.map((row) => [row.key, row]));
  }

  /** Not waited for: what is recorded later is stored behind it, and without anything recorded nothing was done. */
  begin(start: TurnStart): Promise<unknown> {
    return this.record(START, null, start);
  }

  /** The turn is taken up again, for the n-th time. `past` is called when it is clear that this does not kill its worker. */
  async resume(n: number, past: () => void): Promise<void> {
    await this.record(`${RESUMED}:${n}`, null, null);
    this.#note = (what) => this.#put(`${what}:${n}`, null, null);
    this.#trial = new Trial({ note: this.#note, past });
  }

  /** The turn waits for somebody outside. */
  waits(): void {
    this.#trial?.pass("waits");
  }

  /** The turn is left as it is, and no death's fault is it. */
  async left(): Promise<void> {
    this.ended();
    await this.#note?.("left").catch(ignore);
  }

  ended(): void {
    this.#trial?.end();
  }

  /** What was recorded under a key; `replay_mismatch` when something else was asked for then. */
  find<T>(key: string, envelope: Json): Found<T> | undefined {
    const row = this.#rows.get(key);
    if (row === undefined) return undefined;
    const asked = sealEnvelope(envelope);
    if (row.hash === asked.hash) return { value: decode<T>(row.bytes), at: row.at, sequence: row.sequence };
    throw replayMismatch(row, { sessionId: this.#sessionId, turnId: this.#turnId, key, ...asked });
  }

  /** Resolves when it is durable, and what it builds on. */
  async record(key: string, envelope: Json, value: unknown): Promise<void> {
    const before = this.settled();
    const written = this.#put(key, envelope, value);
    if (before !== undefined) await Promise.all([before, written]);
    else await written;
    this.#trial?.end();
  }

  #put(key: string, envelope: Json, value: unknown): Promise<unknown> {
    return this.#write({ turnId: this.#turnId, key, ...sealEnvelope(envelope), bytes: encode(value) });
  }

  /** Given out without being recorded: it will be, before anything that is built on it. */
  owe(key: string, envelope: Json, value: unknown): void {
    this.#unrecorded = { key, envelope, value };
  }

  /** Everything that was given out is durable; undefined when it is already. */
  settled(): Promise<void> | undefined {
    const owed = this.#unrecorded;
    if (owed === undefined) return undefined;
    this.#unrecorded = undefined;
    return this.record(owed.key, owed.envelope, owed.value);
  }

  /** Gives plugins the state they had when a row was recorded: what left them with it is not done again. */
  restoreState(hooks: SessionHooks, state: PluginStates | undefined, sequence: number): void {
    for (const [pluginId, bytes] of Object.entries(state ?? {})) {
      // Calls that ran at the same time ended in an order of their own: the last one's state has all of them.
      if ((this.#restored.get(pluginId) ?? -1) > sequence) continue;
      this.#restored.set(pluginId, sequence);
      hooks.restoreState(pluginId, bytes);
    }
  }
}

/** What was recorded, when, and behind how many other rows. */
export interface Found<T> {
  readonly value: T;
  readonly at: number;
  readonly sequence: number;
}

/** The state of plugins as bytes, by plugin id. */
export type PluginStates = Readonly<Record<string, Uint8Array>>;

function ignore(): void {}
