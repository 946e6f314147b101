import type { SessionTools } from "../../tools/index.js";
import type { SessionPluginOptions } from "../calls/index.js";
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
  readonly past: Pick<SessionHistory, "known" | "count" | "read" | "from" | "hasAttachments" | "promptTokens">;
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
