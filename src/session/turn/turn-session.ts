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

/** A session as its turns see it: the parts that performing the effects of a turn uses, and nothing of the session itself. */
export interface TurnSession extends ParentSession {
  readonly services: SessionServices;
  readonly settings: SessionSettings;
  /** What it was opened with. */
  readonly pluginOptions: SessionPluginOptions;

  // What a turn asks, and of whom.
  readonly hooks: SessionHooks;
  readonly protocol: SessionProtocol;
  readonly completions: Completions;
  readonly spending: Spending;

  // What the model is given.
  readonly past: SessionHistory;
  readonly tools: SessionTools;
  readonly catalog: SessionCatalog;
  readonly blobs: Blobs;
  readonly inputs: SessionInputs;

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
export function settleOrIssue(session: TurnSession): Promise<TurnIssue[]> {
  return settleSession(session).then(
    () => [],
    (error: unknown) => [
      issueOf("plugin", session.life.isStale ? "plugin_state_not_stored" : "plugin_capture_failed", error),
    ],
  );
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
