import type { SessionTools } from "../tools/index.js";
import type { Blobs } from "./blobs.js";
import type { SessionCatalog } from "./catalog.js";
import type { Completions } from "./completions.js";
import type { SessionHooks } from "./hooks.js";
import type { SessionPluginOptions } from "./protocol.js";
import type { SessionGraph } from "./session-graph.js";
import type { SessionHistory } from "./session-history.js";
import type { SessionInputs } from "./session-inputs.js";
import type { SessionLife } from "./session-life.js";
import type { SessionServices } from "./session-parts.js";
import type { SessionProtocol } from "./session-protocol.js";
import type { SessionSettings } from "./session-settings.js";
import type { Spending } from "./spending.js";
import type { StoredSession } from "./stored-session.js";
import type { TurnKeys } from "./turn-keys.js";
import type { ParentSession } from "./visibility.js";

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
