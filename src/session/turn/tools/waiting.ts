import {
  type Announcement,
  announcementOf,
  completionKeyOf,
  type PendingCall,
  type RowChange,
  type ToolCall,
  type ToolOutput,
} from "../../../kernel/index.js";
import type { PendingTool } from "../../../plugin/index.js";
import { answerKeysOf } from "../../../store/index.js";
import { endsHere } from "../../journal/index.js";
import type { Editing, PendingAnswer } from "../../state/index.js";
import type { Turn } from "../turn.js";
import { untilPeople } from "../turn-deadline.js";

/** A tool that said that its answer comes later. */
export interface WaitingTool {
  readonly pending: PendingTool;
  /** When it said so; an older release did not write that down. */
  readonly since?: number | undefined;
  /** When that was recorded, if in an earlier life of the turn. */
  readonly at?: number | undefined;
}

/** The call as hosts are told of it. */
export function waitingTool(turn: Turn, call: ToolCall, { pending, since, at }: WaitingTool): PendingCall {
  const { announcement, deadlineMs } = pending;
  const began = at ?? since ?? turn.session.services.clock.wallNow();
  const asked = { id: call.callId, since: began, announcement: announcementOf(announcement, "external"), deadlineMs };
  return waitingCall(turn, call, asked);
}

/** What is waited for of a call: under which id, since when, and for how long. */
interface Asked {
  readonly id: string;
  readonly since: number;
  readonly announcement: Announcement;
  readonly deadlineMs?: number | undefined;
  readonly allowEdit?: boolean;
}

export function waitingCall(
  { session, facts: { sessionId, turnId } }: Turn,
  { callId, toolName, args }: ToolCall,
  { id, since, announcement, deadlineMs, allowEdit }: Asked,
): PendingCall {
  return session.waitingCalls.whole({
    key: completionKeyOf(sessionId, turnId, id),
    turnId,
    callId,
    toolName,
    args,
    announcement,
    ...(allowEdit === true && { allowEdit }),
    since,
    ...(deadlineMs !== undefined && { deadline: since + deadlineMs }),
  });
}

/** What is written with the journal's row that waits. */
export function rowsOfWaiting({ session }: Turn, call: PendingCall): readonly RowChange[] {
  return session.waitingCalls.rowsOf(call);
}

interface Awaited {
  readonly waiting: PendingCall;
  readonly pending: Omit<PendingTool, "announcement" | "deadlineMs">;
  readonly editing?: Editing;
  readonly signal: AbortSignal;
}

/** Waits for the answer from outside, and tells of it. One that was given in an earlier life of the turn is at hand. */
export async function answerFromOutside(turn: Turn, { waiting, pending, editing, signal }: Awaited) {
  const { session, request, journal } = turn;
  const { completions, waitingCalls, services } = session;
  const { key, callId, toolName, args, announcement, allowEdit, since, deadline } = waiting;
  waitingCalls.begin(waiting);
  const limits = deadline === undefined ? pending : { ...pending, deadlineMs: deadline - since };
  const leftMs = deadline && Math.max(1, deadline - services.clock.wallNow());
  const answer = completions.wait(key, { toolName, pending: limits, leftMs, signal, ...(editing && { editing }) });
  journal.waits();
  request.emit({
    type: "tool_call_pending",
    callId,
    toolName,
    key,
    announcement,
    args,
    ...(allowEdit && { allowEdit }),
    ...(deadline !== undefined && { deadline }),
  });
  const given = await untilPeople(turn, answer);
  withdraw(turn, key);
  return given;
}

/** Nobody need answer any more. A turn that goes on elsewhere, or later, waits there. */
export function withdraw({ session, request }: Turn, key: string): void {
  if (endsHere(request.signal)) return;
  session.waitingCalls.end(key, { answered: session.completions.isAnswered(key) });
}

/** An answer that an earlier life of the turn was given. */
export function answerBefore({ journal, facts: { sessionId, turnId } }: Turn, id: string): PendingAnswer | undefined {
  for (const key of answerKeysOf(sessionId, turnId, id)) if (journal.has(key)) return journal.find<PendingAnswer>(key);
  return undefined;
}

/** The result of a call whose tool said that it comes later. */
export async function answerOfTool(
  turn: Turn,
  call: ToolCall,
  { signal, ...waits }: WaitingTool & { readonly signal: AbortSignal },
): Promise<ToolOutput> {
  const { session } = turn;
  // A call waits for its result: what says whether one may run is refused under its key.
  const known = answerBefore(turn, call.callId) as ToolOutput | undefined;
  if (known !== undefined) return known;
  const waiting = waitingTool(turn, call, waits);
  // Once somebody answers it, it is in no list any more.
  const isListed = waits.since !== undefined || session.completions.isTaken(waiting.key);
  if (!isListed) await session.waitingCalls.adopt(waiting, session.stored.epoch);
  return (await answerFromOutside(turn, { waiting, pending: waits.pending, signal })) as ToolOutput;
}
