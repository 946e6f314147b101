import type {
  Json,
  Owned,
  PluginEvent,
  Role,
  SessionConfig,
  SessionCreateRequest,
  TurnIssue,
} from "../../kernel/index.js";
import type { OperationSpec, ToolRecordView, TriggerSpec } from "../../plugin/index.js";

/** Options for single plugins, by plugin id, given when a session is opened. */
export type SessionPluginOptions = Readonly<Record<string, Json>>;
/** Of most sessions. */
export const NO_PLUGIN_OPTIONS: SessionPluginOptions = Object.freeze({});

/** What makes a session other than the one it is made from. */
export type SessionMaking = Omit<SessionCreateRequest, "sessionId" | "usageSource"> & {
  /** The session that asked for it, when it is made from another one. */
  readonly createdBy?: string;
};

/** What a parked session leaves in memory, because no store has it and its plugins were told it. */
export interface ParkedNotes {
  readonly pluginOptions?: SessionPluginOptions;
  readonly promptTokens?: number;
  /** Sessions its plugins made. */
  readonly created?: readonly string[];
  /** It was parked when it was handed over. */
  readonly wasParked?: boolean;
}

export type SessionState = "opening" | "idle" | "running" | "parking" | "parked" | "stale" | "failed";

/** What happens in the life of a session. `open` is its beginning; the others are the events of its statechart. */
export type SessionEvent =
  | "open"
  | "opened"
  | "open.failed"
  | "posted"
  | "work.done"
  | "held"
  | "released"
  | "park"
  | "saved"
  | "save.failed"
  | "leave"
  | "turn.found"
  | "turn.begun"
  | "turn.stored"
  | "turn.ended"
  | "turn.suspended"
  | "session.stale";

/** An event in the life of a session, and the state it led to or left the session in. */
export interface Inspected {
  readonly sessionId: string;
  readonly event: SessionEvent;
  readonly state: SessionState;
  /** Milliseconds since 1970, by the clock of the session's worker. */
  readonly at: number;
}

export interface SessionInfo {
  readonly id: string;
  readonly state: SessionState;
  /** The thread that hosts the session (`worker_threads` thread id). */
  readonly threadId: number;
  /** Turns stored so far. */
  readonly turns: number;
  readonly revision: number;
  readonly parent?: string;
}

/** What came of an operation, as the host gets it. */
export interface OperationReceipt<Output = unknown> {
  readonly output: Output;
  readonly events: readonly Owned<PluginEvent>[];
  /** Inputs of turns the operation asked for. */
  readonly turns: readonly string[];
}

/** A session's configuration after a change, and what hooks had to say against it. */
export interface ConfigReceipt {
  readonly config: SessionConfig;
  readonly changed: boolean;
  readonly issues: readonly TurnIssue[];
}

/** Which of a session's messages; places count from the end when they are negative. */
export interface MessageRange {
  readonly from?: number;
  readonly to?: number;
  /** Default: the frame the session is in. */
  readonly frameId?: string;
  /** Also what plugins and the protocol left there for themselves. */
  readonly records?: boolean;
}

/** A message in the tree a session and its forks form. */
export interface TreeMessage {
  /** Names the place: a fork can begin there. */
  readonly node: string;
  readonly parent: string | null;
  /** It is part of the session's own conversation. */
  readonly active: boolean;
  readonly role: Role;
  /** The beginning of its text. */
  readonly text: string;
}

/** What a session has from its plugins. */
export interface SessionSurface {
  readonly tools: readonly ToolRecordView[];
  readonly operations: readonly OperationSpec[];
  readonly triggers: readonly TriggerSpec[];
}
