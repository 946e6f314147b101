import {
  completionKeyOf,
  type JournalEntry,
  type JournalRow,
  type Json,
  type Part,
  replayMismatch,
  type TurnConfig,
} from "../kernel/index.js";
import type { TurnFacts } from "../plugin/index.js";
import { sealEnvelope } from "../store/index.js";
import { decode, encode } from "../wire/index.js";
import { answerKeyOf } from "./completions.js";
import type { SessionHooks } from "./hooks.js";
import type { TurnExtras } from "./protocol.js";

/** How a session keeps what its turn recorded. */
export type JournalWriter = (entry: Omit<JournalEntry, "sessionId" | "expectedRevision">) => Promise<unknown>;

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
  /** It was asked for with something of no use. */
  readonly stopped?: TurnConfig["stopped"];
}

const START = "start";
const RESUMED = "resumed";
/** How often a turn is taken up again before it is taken for what kills its worker. */
export const MAX_RESUMED = 3;

/** A turn a crash left behind, as its journal has it. */
export interface UnfinishedTurn {
  readonly turnId: string;
  readonly start: TurnStart;
  readonly rows: readonly JournalRow[];
  /** How often it was taken up again already. */
  readonly resumed: number;
}

/** The turn a session's journal tells of; what is left of one that was stored, or that cannot be begun again, is none. */
export function unfinishedTurn(rows: readonly JournalRow[], turnId: string): UnfinishedTurn | undefined {
  const own = rows.filter((row) => row.turnId === turnId);
  const start = own.find(({ key }) => key === START);
  if (start === undefined) return undefined;
  const resumed = own.filter(({ key }) => key.startsWith(RESUMED)).length;
  return { turnId, start: decode<TurnStart>(start.bytes), rows: own, resumed };
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

  /** The turn is taken up again, for the n-th time. */
  resume(n: number): Promise<unknown> {
    return this.record(`${RESUMED}:${n}`, null, null);
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
    const written = this.#write({ turnId: this.#turnId, key, ...sealEnvelope(envelope), bytes: encode(value) });
    if (before !== undefined) await Promise.all([before, written]);
    else await written;
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
