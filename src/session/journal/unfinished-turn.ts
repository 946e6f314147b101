import {
  answerKeyOf,
  completionKeyOf,
  type JournalRow,
  messageOf,
  type Part,
  TroupeError,
  type TurnConfig,
  type TurnResult,
} from "../../kernel/index.js";
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
  /** It was asked for with something of no use. */
  readonly stopped?: TurnConfig["stopped"];
}

/** Replay keys of what is no effect of a turn: that it was begun, was taken up again, has gone on for a while since. */
export const START = "start";
export const RESUMED = "resumed";
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

/** The reason of a signal that ends a turn here, but not for good. */
export function suspension(): TroupeError {
  return new TroupeError(
    "turn_suspended",
    "The runtime is closing. The turn is kept, and goes on when its session is opened again.",
  );
}

/** Why a turn was not taken up again, this time. */
export function notTakenUp(cause: unknown): TroupeError {
  if (cause instanceof TroupeError && cause.code === "turn_suspended") return cause;
  const message = `The turn could not be taken up again: ${messageOf(cause)}. It is kept, and goes on when its session is next opened.`;
  return new TroupeError("turn_suspended", message, { retryable: true, cause });
}

const ENDS_HERE: readonly string[] = ["turn_suspended", "store_lost", "session_moved"];

/** The turn neither goes on here nor is stored as it is. */
export function endsHere({ reason }: AbortSignal): boolean {
  return reason instanceof TroupeError && ENDS_HERE.includes(reason.code);
}

export function isSuspended({ reason }: AbortSignal): boolean {
  return reason instanceof TroupeError && reason.code === "turn_suspended";
}
