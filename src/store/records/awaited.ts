import {
  type Announcement,
  announcementOf,
  answerKeyOf,
  completionKeyOf,
  fingerprint,
  type JournalRow,
  type Json,
  type PendingCall,
  type RowChange,
  WAITING_CALLS,
  WAITING_OF_TENANTS,
} from "../../kernel/index.js";
import { decode, encode } from "../../wire/index.js";

/** What an answer from outside is: what a tool came to, or whether a call may run. */
export type AnswerKind = "output" | "verdict";

/** Of a tool's body that has ended, or said that its answer comes later. */
export const TOOLS = "tools:";
/** Of a call that somebody is asked about before it runs. */
export const APPROVAL = "approval:";

/** A call of which a row says that its answer comes from outside. */
export interface Awaited {
  /** The last part of its key. */
  readonly id: string;
  readonly kind: AnswerKind;
  readonly callId: string;
  /** When it began to wait. An older release did not write that down, nor a row of its own for the call. */
  readonly since?: number | undefined;
  readonly deadlineMs?: number | undefined;
  readonly announcement: Announcement;
  readonly allowEdit?: boolean | undefined;
  /** As whoever is to say yes is shown them. */
  readonly args?: Json;
}

/** Which call a row of a journal says is waited for; undefined for any other row. */
export function awaitedIn({ key, bytes }: Pick<JournalRow, "key" | "bytes">): Awaited | undefined {
  if (key.startsWith(TOOLS)) {
    const { pending, callId, since } = decode<WaitingBody | null>(bytes) ?? {};
    if (pending === undefined || callId === undefined) return undefined;
    const { deadlineMs } = pending;
    const announcement = announcementOf(pending.announcement, "external");
    return { id: callId, kind: "output", callId, since, deadlineMs, announcement };
  }
  if (!key.startsWith(APPROVAL)) return undefined;
  const { question, args } = decode<AskedBefore | null>(bytes) ?? {};
  const callId = /^approval:\d+:(.+):\d+$/s.exec(key)?.[1];
  if (question === undefined || args === undefined || callId === undefined) return undefined;
  return { ...question, kind: "verdict", callId, args };
}

/** What is read here of a tool's answer that comes later. */
interface WaitingBody {
  readonly pending?: { readonly announcement?: Json; readonly deadlineMs?: number };
  readonly callId?: string;
  readonly since?: number;
}

/** What is read here of a question that was put to somebody. */
interface AskedBefore {
  readonly args: Json;
  readonly question?: Omit<Awaited, "kind" | "callId" | "args">;
}

/** The replay keys an answer may have been recorded under: this release's, and the one of releases before it. */
export function answerKeysOf(sessionId: string, turnId: string, callId: string): readonly string[] {
  return [
    answerKeyOf(completionKeyOf(sessionId, turnId, callId)),
    answerKeyOf(JSON.stringify([sessionId, turnId, callId])),
  ];
}

/** A row that says that a call waits, when nobody has answered the call yet. */
interface Unanswered extends Awaited {
  readonly row: JournalRow;
}

/** The calls of a journal that wait for an answer from outside. */
export function unansweredIn(sessionId: string, rows: readonly JournalRow[]): Unanswered[] {
  const keys = new Set(rows.map(({ turnId, key }) => `${turnId} ${key}`));
  return rows.flatMap((row) => {
    const awaited = awaitedIn(row);
    if (awaited === undefined) return [];
    const answers = answerKeysOf(sessionId, row.turnId, awaited.id);
    return answers.some((key) => keys.has(`${row.turnId} ${key}`)) ? [] : [{ ...awaited, row }];
  });
}

/** The rows a call that waits is found by: in the order of time, and among those of its tenant. */
export function rowsOfCall(call: PendingCall): readonly RowChange[] {
  const { sessionId: session, tenant, since: at } = call;
  const key = waitingRowKey(call.key);
  const row: RowChange = { table: WAITING_CALLS, session, key, value: encode(call), order: { at } };
  if (tenant === undefined) return [row];
  return [row, { table: WAITING_OF_TENANTS, session, key, value: NO_VALUE, order: { at, owner: tenant } }];
}

const NO_VALUE = new Uint8Array();

/** Each key is answered once, and no two of a session have one fingerprint but by a chance of one in 2^53. */
export function waitingRowKey(key: string): string {
  return fingerprint(key).toString(36);
}
