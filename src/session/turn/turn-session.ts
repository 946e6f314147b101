import { type Activity, asTroupeError, TroupeError, type TurnIssue } from "../../kernel/index.js";
import type { SessionTools } from "../../tools/index.js";
import type { SessionPluginOptions, TurnExtras } from "../calls/index.js";
import type { ParentSession } from "../host-services/index.js";
import type { SessionHooks } from "../plugins/index.js";
import type { SessionCatalog, SessionProtocol } from "../protocol/index.js";
import type {
  Completions,
  SessionGraph,
  SessionHistory,
  SessionInputs,
  SessionLife,
  SessionServices,
  SessionSettings,
  Spending,
} from "../state/index.js";
import { settleSession } from "../state/index.js";
import type { Blobs, StoredSession, TurnKeys } from "../stored/index.js";

/**
 * A session as its turns see it: all that performing the effects of a turn uses of one, and nothing else. Members are
 * grouped as the session has them.
 */
export interface TurnSession extends ParentSession {
  readonly services: ParentSession["services"] &
    Pick<SessionServices, "clock" | "deadlines" | "journals" | "suspects" | "homes" | "limits" | "host">;
  readonly settings: Pick<SessionSettings, "config" | "modelNamed" | "promptLayers">;
  /** What it was opened with. */
  readonly pluginOptions: SessionPluginOptions;

  // What a turn asks, and of whom.
  readonly hooks: SessionHooks;
  readonly protocol: Pick<
    SessionProtocol,
    | "session"
    | "ownerOf"
    | "turnOptions"
    | "codeExecutor"
    | "captureExecution"
    | "restoreExecution"
    | "validateTurnExtension"
  >;
  readonly completions: Pick<Completions, "begin" | "end" | "wait">;
  readonly spending: Pick<Spending, "budget" | "whySpent" | "untilRaised">;

  // What the model is given.
  readonly past: Pick<SessionHistory, "known" | "count" | "ahead" | "from" | "hasAttachments" | "promptTokens">;
  readonly tools: Pick<SessionTools, "setOverlay">;
  readonly catalog: Pick<SessionCatalog, "resolve" | "prompts">;
  readonly blobs: Blobs;
  readonly inputs: Pick<SessionInputs, "pending" | "takeAtCheckpoint" | "takeThese" | "turnFailed">;

  // What becomes of a turn.
  readonly life: Pick<SessionLife, "now" | "isStale" | "unstoredTurn" | "begin" | "end" | "suspend" | "giveUp">;
  readonly stored: Pick<
    StoredSession,
    "head" | "dirty" | "turnIndex" | "usage" | "revision" | "record" | "store" | "clearJournal"
  >;
  readonly turnKeys: Pick<TurnKeys, "find" | "leftOff">;
  readonly graph: Pick<SessionGraph, "checkNewFrame" | "openFrame" | "commit">;
}

export interface TurnRequest {
  /** The text of it. */
  readonly input: string;
  readonly emit: (activity: Activity) => void;
  readonly signal: AbortSignal;
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

/** What went wrong without being the end of it. */
export function issueOf(kind: TurnIssue["kind"], code: string, error: unknown): TurnIssue {
  const { message, details } = asTroupeError(error, code);
  const { pluginId } = details;
  return { kind, code, message, ...(typeof pluginId === "string" && { pluginId }) };
}

/** What was done is stored; that what its hooks changed afterwards is not is an issue of it. */
export async function settleOrIssue(session: TurnSession): Promise<TurnIssue[]> {
  try {
    await settleSession(session);
    return [];
  } catch (error) {
    return [issueOf("plugin", session.life.isStale ? "plugin_state_not_stored" : "plugin_capture_failed", error)];
  }
}

/** When it fails, the call fails and nothing is stored. */
export async function orRefused<T>(code: string, what: string, attempt: () => Promise<T>): Promise<T> {
  try {
    return await attempt();
  } catch (error) {
    const cause = asTroupeError(error, "hook_failed");
    throw new TroupeError(code, `${what}: ${cause.message}`, { cause, retryable: cause.retryable });
  }
}
