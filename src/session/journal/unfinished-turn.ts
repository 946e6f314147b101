import {
  type Cancellation,
  completionKeyOf,
  type Identity,
  type JournalRow,
  messageOf,
  type Part,
  TroupeError,
  type TroupeErrorOptions,
  type TurnConfig,
  type TurnResult,
} from "../../kernel/index.js";
import { type AnswerKind, answerKeysOf, awaitedIn, unansweredIn } from "../../store/index.js";
import { decode } from "../../wire/index.js";
import type { SessionPluginOptions, TurnExtras } from "../calls/index.js";
import type { TurnKey } from "../stored/index.js";

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
  /** What its session was opened with, as older releases kept it. */
  readonly pluginOptions?: SessionPluginOptions;
  /** What its session was given when it was made, while no commit has it. */
  readonly identity?: Identity;
  /** What names the calls its code makes. */
  readonly codeCalls?: string;
  /** It was asked for with something of no use. */
  readonly stopped?: TurnConfig["stopped"];
}

/** Replay keys of what is no effect of a turn: that it was begun, was taken up again, has gone on for a while since. */
export const START = "start";
export const RESUMED = "resumed";
const LASTED = "lasted";
/** The replay key of a cancellation that was accepted. */
export const CANCEL = "cancel";
/** Of what a turn was asked with, as it was when its model was called first. */
export const PREPARED = "prepared";
/** Of what of that was another one at a later call, by step. */
export const ASKED = "asked:";
/** How often in a row a worker may die with a turn that was taken up and had nothing to show yet. */
export const MAX_STRIKES = 3;
/** How often in a row a turn is taken up that never has anything to show, although it lasts. */
export const MAX_IDLE = 12;

/** A turn a crash left behind, as its journal has it. */
export interface UnfinishedTurn {
  readonly turnId: string;
  /** When it began the first time. */
  readonly since: number;
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
  return { turnId, since: start.at, start: decode<TurnStart>(start.bytes), rows: own, ...deathsIn(own) };
}

/** Where what a model call was asked with is written down, as far as it is not as before. */
export function askedKey(step: number): string {
  return step === 0 ? PREPARED : `${ASKED}${step}`;
}

/** Written beside what a turn does: such a row does not show that the turn came through anything. */
function isBeside(key: string): boolean {
  return key === PREPARED || key.startsWith(ASKED);
}

/** What the rows say of the times the turn was taken up. Any other row is something it did, or a wait it came to. */
function deathsIn(rows: readonly JournalRow[]): Pick<UnfinishedTurn, "resumed" | "strikes" | "idle"> {
  let [resumed, strikes, idle] = [0, 0, 0];
  for (const { key } of rows) {
    if (isBeside(key)) continue;
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

/** The calls of an unfinished turn that wait for an answer from outside: which kind, by completion key. */
export function awaitedCalls(sessionId: string, { turnId, rows }: UnfinishedTurn): Map<string, AnswerKind> {
  const waiting = unansweredIn(sessionId, rows);
  return new Map(waiting.map(({ id, kind }) => [completionKeyOf(sessionId, turnId, id), kind]));
}

/** What somebody was told would stop the turn; undefined when nobody was. */
export function cancellationIn({ rows }: UnfinishedTurn): Cancellation | undefined {
  const row = rows.find(({ key }) => key === CANCEL);
  return row && decode<Cancellation>(row.bytes);
}

/** What the turn did that it finds again, by replay key: the answers, calls, code and checkpoints its rows have. */
export function doneIn({ rows }: UnfinishedTurn): Set<string> {
  return new Set(rows.map(({ key }) => key).filter((key) => DONE.test(key)));
}
const DONE = /^(model|tools|approval|code|checkpoint):/;

/** How long the turn waited for nobody but people, and since when it does now; both by the clock of the store. */
export function waitsIn(
  sessionId: string,
  { turnId, rows }: UnfinishedTurn,
): { readonly ms: number; readonly since: number | undefined } {
  const steps = new Map<string, { from: number; to: number; open: boolean }>();
  for (const { key, at, bytes } of rows) {
    const step = /^(?:tools|approval):\d+:/.exec(key)?.[0];
    if (step === undefined || key.endsWith(":sleep")) continue;
    const known = steps.get(step) ?? { from: 0, to: 0, open: false };
    // As long as one of its calls still worked, the step did not wait.
    known.from = Math.max(known.from, at);
    const waited = awaitedIn({ key, bytes });
    if (waited !== undefined) {
      const answers = answerKeysOf(sessionId, turnId, waited.id);
      const answer = rows.find((row) => answers.includes(row.key));
      if (answer === undefined) known.open = true;
      else known.to = Math.max(known.to, answer.at);
    }
    steps.set(step, known);
  }
  let ms = 0;
  let since: number | undefined;
  for (const { from, to, open } of steps.values()) {
    if (open) since = from;
    else ms += Math.max(0, to - from);
  }
  return { ms, since };
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

/** The reason of a signal that ends a turn here, but not for good. */
export function suspension(): TroupeError {
  return suspended("The runtime is closing");
}

/** Why a turn was not taken up again, this time. */
export function notTakenUp(cause: unknown): TroupeError {
  if (cause instanceof TroupeError && cause.code === "turn_suspended") return cause;
  return suspended(`The turn could not be taken up again: ${messageOf(cause)}`, { retryable: true, cause });
}

function suspended(why: string, options?: TroupeErrorOptions): TroupeError {
  const message = `${why}. The turn is kept, and goes on when its session is opened again.`;
  return new TroupeError("turn_suspended", message, options);
}

const ENDS_HERE: readonly string[] = ["turn_suspended", "store_lost", "session_moved"];

/** The turn neither goes on here nor is stored as it is. */
export function endsHere({ reason }: AbortSignal): boolean {
  return reason instanceof TroupeError && ENDS_HERE.includes(reason.code);
}

export function isSuspended({ reason }: AbortSignal): boolean {
  return reason instanceof TroupeError && reason.code === "turn_suspended";
}

/** What was written down when a turn was prepared: in a row of its own, or in that of the turn's beginning. */
export function notedIn<T>(
  rows: ReadonlyMap<string, Pick<JournalRow, "bytes" | "sequence">>,
): { readonly value: T; readonly sequence: number } | undefined {
  const own = rows.get(PREPARED);
  if (own !== undefined) return { value: decode<T>(own.bytes), sequence: own.sequence };
  const start = rows.get(START);
  const { prepared } = start === undefined ? {} : decode<{ readonly prepared?: T }>(start.bytes);
  return start === undefined || prepared === undefined ? undefined : { value: prepared, sequence: start.sequence };
}
