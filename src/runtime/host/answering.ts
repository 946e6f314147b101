import {
  type AnswerOutcome,
  type ApprovalVerdict,
  answerUnusable,
  type CompletionPlace,
  checkSessionId,
  completionUnknown,
  type FieldsOf,
  type Json,
  placeOfCompletion,
  type ToolOutput,
  TroupeError,
  unknownField,
} from "../../kernel/index.js";
import { checkPendingRequest, type PendingPage, type PendingRequest, pageOfWaiting } from "../../store/index.js";
import type { Runtime } from "../places/index.js";
import { plainAnswer } from "./tool-answer.js";

/** A yes to a call that waits for one. */
export interface ApproveOptions {
  /** Other arguments than the ones that were shown, where who asked lets them be changed. */
  readonly args?: Json;
  /** The session whose call is meant: a key of another one does not count, so that no request reaches a stranger's call. */
  readonly sessionId?: string;
}

/** A no. */
export interface DenyOptions extends Pick<ApproveOptions, "sessionId"> {
  /** The model reads it. */
  readonly reason: string;
}

const APPROVE_FIELDS: FieldsOf<ApproveOptions> = { args: true, sessionId: true };
const DENY_FIELDS: FieldsOf<DenyOptions> = { reason: true, sessionId: true };
const MAX_REASON = 4_000;

export function yesOf(options: ApproveOptions): ApprovalVerdict {
  checkOptions(options, APPROVE_FIELDS, "an approval");
  if (options.args === undefined) return { approved: true };
  return { approved: true, args: plainAnswer(options.args, "args") };
}

export function noOf(options: DenyOptions): ApprovalVerdict {
  checkOptions(options, DENY_FIELDS, "a denial");
  const { reason } = options;
  if (typeof reason !== "string" || reason.trim() === "" || reason.length > MAX_REASON)
    throw answerUnusable(`a denial needs a reason that the model reads, of up to ${MAX_REASON} characters`);
  return { approved: false, reason: reason.toWellFormed() };
}

function checkOptions(options: object, fields: Readonly<Record<string, true>>, what: string): void {
  if (typeof options !== "object" || options === null)
    throw answerUnusable(`${what} takes an object, such as ${"reason" in fields ? "{ reason }" : "{ args }"}`);
  const stranger = unknownField(options, fields, what);
  if (stranger !== undefined) throw answerUnusable(stranger);
}

/** Answers a call that waits, wherever its session is. */
export async function answerCall(
  runtime: Runtime,
  key: string,
  answer: ToolOutput | ApprovalVerdict,
  { sessionId: wanted }: Pick<ApproveOptions, "sessionId"> = {},
): Promise<AnswerOutcome> {
  const { sessionId, ...place }: CompletionPlace = placeOfCompletion(key);
  if (wanted !== undefined && checkSessionId(wanted) !== sessionId) {
    if (await runtime.store.ask("isDescendant", { sessionId: wanted, of: sessionId })) return "forked";
    throw completionUnknown(key);
  }
  // Not waited for when the session is closing: it closes behind the turn, which waits for this.
  const { worker } = runtime.directory.of(sessionId);
  return runtime.worker(worker).ask("answerCall", { sessionId, place, answer });
}

/** The same for who wants to hear of a deleted session as of any other outcome. */
export async function answerOutcome(...asked: Parameters<typeof answerCall>): Promise<AnswerOutcome> {
  try {
    return await answerCall(...asked);
  } catch (error) {
    if (error instanceof TroupeError && error.code === "session_deleted") return "session_deleted";
    throw error;
  }
}

/** From the store, or without a journal from the sessions that are in memory: a call that waits keeps its session there. */
export async function pendingCalls(runtime: Runtime, request: PendingRequest): Promise<PendingPage> {
  // What is no data would not get to the store.
  checkPendingRequest(request);
  if (runtime.options.worker.journals) return runtime.store.ask("waiting", request);
  const places = Array.from({ length: runtime.options.sessionWorkers }, (_, place) => place);
  const asked = places.map(async (place) => (await runtime.worker(place).service()).waitingCalls(undefined));
  return pageOfWaiting((await Promise.all(asked)).flat(), request);
}
