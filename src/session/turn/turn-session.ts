import {
  type Activity,
  asTroupeError,
  definedOnly,
  framesOf,
  type Part,
  TroupeError,
  type TroupeErrorCode,
  type TurnConfig,
  type TurnEvent,
  type TurnIssue,
  type TurnResult,
} from "../../kernel/index.js";
import type { SessionTools } from "../../tools/index.js";
import type { SessionPluginOptions, TurnExtras } from "../calls/index.js";
import type { ParentSession } from "../host-services/index.js";
import type { AskedTurn, UnfinishedTurn } from "../journal/index.js";
import type { SessionHooks } from "../plugins/index.js";
import type { PrefixWatch, SessionCatalog, SessionProtocol } from "../protocol/index.js";
import type {
  AgentInForce,
  Completions,
  SessionGraph,
  SessionHistory,
  SessionInputs,
  SessionLife,
  SessionServices,
  SessionSettings,
  Spending,
  TurnModels,
  WaitingCalls,
} from "../state/index.js";
import { settleSession } from "../state/index.js";
import type { Blobs, StoredSession, TurnKey, TurnKeys } from "../stored/index.js";
import { deadlineOf, type TurnDeadline } from "./turn-deadline.js";
import type { TurnStop } from "./turn-stop.js";

/** A session as its turns see it: the parts that performing the effects of a turn uses, and nothing of the session itself. */
export interface TurnSession extends ParentSession {
  readonly services: SessionServices;
  readonly agent: AgentInForce;
  readonly settings: SessionSettings;
  /** What it was opened with. */
  readonly pluginOptions: SessionPluginOptions;

  // What a turn asks, and of whom.
  readonly hooks: SessionHooks;
  readonly protocol: SessionProtocol;
  readonly completions: Completions;
  readonly waitingCalls: WaitingCalls;
  readonly spending: Spending;

  // What the model is given.
  readonly past: SessionHistory;
  readonly tools: SessionTools;
  readonly catalog: SessionCatalog;
  readonly blobs: Blobs;
  readonly inputs: SessionInputs;
  readonly prefixWatch: PrefixWatch | undefined;

  // What becomes of a turn.
  readonly life: SessionLife;
  readonly stored: StoredSession;
  readonly turnKeys: TurnKeys;
  readonly graph: SessionGraph;
}

export interface TurnRequest {
  /** The text of it. */
  readonly input: string;
  readonly emit: (activity: Activity) => void;
  readonly signal: AbortSignal;
  /** Whose signal it is, where it can be stopped in order. */
  readonly stop?: TurnStop;
  /** Takes what an earlier life of the turn told already: for who was not there then. */
  readonly retell?: (activity: Activity) => void;
  /** Told when the turn is over and not stored: why it was refused; nothing where it goes on later. */
  readonly onLeft?: (refusal: unknown) => void;
  /** Does anybody look? Asked before what is made for that alone. Default: nobody does. */
  readonly isShown?: () => boolean;
  /** What the host brought along besides. */
  readonly extras: TurnExtras;
  /** Whose call it is, when it is a host's. */
  readonly call?: string;
  /** It was asked for before, of a worker that was lost. */
  readonly again?: boolean;
  /** The inputs that waited and begin it. */
  readonly inputIds?: readonly string[];
  /** Nobody holds it: stopped halfway it is refused, and its inputs wait on. */
  readonly keepsInputs?: boolean;
}

/** What a turn begins with, let in: who answers it, and its input as a message keeps it. */
export interface Admitted extends TurnModels {
  readonly parts: readonly Part[];
  /** The input is of no use: such a turn is recorded, but does nothing. */
  readonly stopped?: NonNullable<TurnConfig["stopped"]>;
}

/** What a turn begins with. */
export interface TurnBeginning extends Admitted {
  readonly name: TurnKey | undefined;
  /** What came of the turns before it, in the frames it came from. */
  readonly before?: readonly TurnResult[];
  /** It killed its worker too often: it is stored, and no hook sees it. */
  readonly poisoned?: boolean;
  /** Set when a crash left the turn behind. */
  readonly unfinished?: UnfinishedTurn;
  /** What that was asked with, and goes on with. */
  readonly asked?: AskedTurn;
}

/** What went wrong without being the end of it. */
export function issueOf(kind: TurnIssue["kind"], code: TroupeErrorCode, error: unknown): TurnIssue {
  const { message, details } = asTroupeError(error, code);
  const { pluginId } = details;
  return { kind, code, message, ...(typeof pluginId === "string" && { pluginId }) };
}

/** What was done is stored; that what its hooks changed afterwards is not is an issue of it. */
export function settleOrIssue(session: TurnSession): Promise<TurnIssue[]> {
  return settleSession(session).then(
    () => [],
    (error: unknown) => [
      issueOf("plugin", session.life.isStale ? "plugin_state_not_stored" : "plugin_capture_failed", error),
    ],
  );
}

/** When it fails, the call fails and nothing is stored. */
export async function orRefused<T>(code: TroupeErrorCode, what: string, attempt: () => Promise<T>): Promise<T> {
  try {
    return await attempt();
  } catch (thrown) {
    const cause = asTroupeError(thrown, "hook_failed");
    const { pluginId, hook } = cause.details;
    const error = new TroupeError(code, `${what}: ${cause.message}`, {
      cause,
      retryable: cause.retryable,
      details: definedOnly({ pluginId, hook }),
    });
    error.stack = framesOf(cause, error);
    throw error;
  }
}

/** The turn does not do what it did before the crash: it is stopped and says where. Anything else refuses it. */
export function replayIssue(error: unknown): TurnIssue {
  if (!(error instanceof TroupeError) || error.code !== "replay_mismatch") throw error;
  return { kind: "runtime", code: error.code, message: error.message };
}

export function promptFailed(error: unknown): TurnEvent {
  return { type: "prompt_failed", issue: issueOf("plugin", "plugin_prompt", error) };
}

export function cancelReason(signal: AbortSignal): string {
  const { reason } = signal;
  return reason instanceof Error ? reason.message : typeof reason === "string" ? reason : "The turn was cancelled.";
}

/** One for all the frames of what was asked for. Without anybody to stop it a turn has none. */
export function deadlineFor({
  session,
  request,
  beginning,
}: {
  readonly session: TurnSession;
  readonly request: TurnRequest;
  readonly beginning: TurnBeginning;
}): TurnDeadline | undefined {
  const { id: sessionId, services } = session;
  const { stop, extras } = request;
  if (stop === undefined) return undefined;
  stop.deadline ??= deadlineOf({
    sessionId,
    limit: extras.limit === undefined ? services.turnLimit : { ...services.turnLimit, ...extras.limit },
    clock: services.clock,
    expire: (why) => stop.expire(why),
    unfinished: beginning.unfinished,
  });
  return stop.deadline;
}

/** What names the calls of a turn's code. An older release named them by the turn alone. */
export function codeCallsOf(
  { protocol, services }: TurnSession,
  unfinished: UnfinishedTurn | undefined,
): string | undefined {
  if (protocol.codeExecutor === undefined) return undefined;
  return unfinished === undefined ? services.clock.uuid().replaceAll("-", "") : unfinished.start.codeCalls;
}

/** What happened cannot be written down. */
export function isStoreFailure(error: unknown): boolean {
  return error instanceof TroupeError && STORE_CODES.includes(error.code);
}

const STORE_CODES: readonly string[] = [
  "store_write_failed",
  "store_closed",
  "store_lost",
  "head_conflict",
  "session_moved",
  "commit_too_large",
];
