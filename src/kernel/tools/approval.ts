import { isRecord, type Json, type JsonObject } from "../json.js";

/** Who a call that waits is for: a person who says yes or no, a client's own tool, a form, or somebody else outside. */
export const ANNOUNCEMENT_KINDS = ["approval", "client_tool", "elicitation", "external"] as const;
export type AnnouncementKind = (typeof ANNOUNCEMENT_KINDS)[number];

/** What whoever is to answer is told. A text, number or list that was announced stands in `value`. */
export type Announcement = JsonObject & { readonly kind: AnnouncementKind };

/** What is asked before a call may run. */
export interface ApprovalDemand {
  /** For whoever is to answer: a text, or an object. */
  readonly announcement?: string | JsonObject;
  /** The yes may come with other arguments. Default: it may not. */
  readonly allowEdit?: boolean;
  /** How long to wait for the answer. Default: as long as the turn. */
  readonly deadlineMs?: number;
  /** When nobody has answered by then: the model reads that (`deny`, the default), or the turn ends with it. */
  readonly onDeadline?: "deny" | "fail_turn";
}

/** The one question that is asked for a call, whoever demanded it. */
export interface Approval extends Omit<ApprovalDemand, "announcement"> {
  readonly announcement: Announcement;
}

/** What somebody outside said of a call: yes, perhaps with other arguments, or no. */
export type ApprovalVerdict =
  | { readonly approved: true; readonly args?: Json }
  | { readonly approved: false; readonly reason: string };

/** What became of an answer. `forked`: the call waits in the session that the named one was forked from. */
export type AnswerOutcome = "counted" | "already_answered" | "moved_on" | "forked" | "session_deleted";

/** A call that waits for an answer from outside. */
export interface PendingCall {
  /** Under which it is answered, once. */
  readonly key: string;
  readonly sessionId: string;
  readonly tenant?: string;
  readonly turnId: string;
  readonly callId: string;
  readonly toolName: string;
  /** As the tool has them, or would with a yes. */
  readonly args: Json;
  readonly announcement: Announcement;
  /** A yes may come with other arguments. */
  readonly allowEdit?: true;
  /** Since when it waits, in milliseconds. */
  readonly since: number;
  /** When the waiting ends by itself. */
  readonly deadline?: number;
}

/** The announcement as everybody gets it. One of a kind there is not, such as an older release's, is `kind`. */
export function announcementOf(given: Json | undefined, kind: AnnouncementKind): Announcement {
  if (given === undefined || given === null) return { kind };
  if (!isRecord(given)) return { kind, value: given };
  const own = ANNOUNCEMENT_KINDS.find((each) => each === given.kind);
  return { ...(given as JsonObject), kind: own ?? kind };
}

const MAX_DEADLINE_MS = 2 ** 31 - 1;
const DEMAND_FIELDS = ["announcement", "allowEdit", "deadlineMs", "onDeadline"];

/** Why this is no demand for an approval; undefined when it is one. */
export function problemWithDemand(given: unknown): string | undefined {
  if (!isRecord(given)) return "it must be an object with announcement, allowEdit, deadlineMs or onDeadline";
  const { announcement, allowEdit, deadlineMs, onDeadline } = given;
  const stranger = Object.keys(given).find((field) => !DEMAND_FIELDS.includes(field));
  if (stranger !== undefined) return `it has no field ${stranger}; there are ${DEMAND_FIELDS.join(", ")}`;
  if (announcement !== undefined && typeof announcement !== "string" && !isRecord(announcement))
    return "its announcement must be a text or an object";
  if (isRecord(announcement) && announcement.kind !== undefined && announcement.kind !== "approval")
    return 'the kind of its announcement is "approval", and need not be said';
  if (allowEdit !== undefined && typeof allowEdit !== "boolean") return "its allowEdit must be true or false";
  if (deadlineMs !== undefined && !isDeadline(deadlineMs))
    return `its deadlineMs must be a whole number from 1 to ${MAX_DEADLINE_MS}`;
  if (onDeadline !== undefined && onDeadline !== "deny" && onDeadline !== "fail_turn")
    return 'its onDeadline is "deny" or "fail_turn"';
  return undefined;
}

function isDeadline(ms: unknown): boolean {
  return Number.isSafeInteger(ms) && (ms as number) >= 1 && (ms as number) <= MAX_DEADLINE_MS;
}

/**
 * One question for all who demand one, and the strictest of each: it may be edited when all of them say so, ends with the
 * first deadline, and with the turn when one of them says so. The first announcement counts, and the others stand in its
 * `others`.
 */
export function oneApproval(demands: readonly ApprovalDemand[]): Approval {
  const announced = demands.flatMap(({ announcement }) =>
    announcement === undefined ? [] : [announcementOf(announcement, "approval")],
  );
  const [first = announcementOf(undefined, "approval"), ...others] = announced;
  const deadlines = demands.flatMap(({ deadlineMs }) => (deadlineMs === undefined ? [] : [deadlineMs]));
  return {
    announcement: others.length === 0 ? first : { ...first, others },
    ...(demands.every(({ allowEdit }) => allowEdit === true) && { allowEdit: true }),
    ...(deadlines.length > 0 && { deadlineMs: Math.min(...deadlines) }),
    ...(demands.some(({ onDeadline }) => onDeadline === "fail_turn") && { onDeadline: "fail_turn" as const }),
  };
}
