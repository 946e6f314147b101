import type {
  AppendRequest,
  AppendResult,
  CheckpointKind,
  InputItem,
  Json,
  Message,
  Owned,
  PendingInput,
  PluginEvent,
  Role,
  SessionBudget,
  SessionConfig,
  SessionCreateRequest,
  SpendingReport,
  ToolOutput,
  TurnIssue,
} from "../../kernel/index.js";
import type {
  HostMethod,
  NamedOperation,
  OperationSpec,
  PluginManifest,
  SessionHandle,
  SessionView,
  ToolRecordView,
  TriggerSpec,
} from "../../plugin/index.js";
import type { PluginLane, SessionWorkerSetup, SessionWorkerStats } from "./worker-setup.js";

/** Options for single plugins, by plugin id, given when a session is opened. */
export type SessionPluginOptions = Readonly<Record<string, Json>>;
/** Of most sessions. */
export const NO_PLUGIN_OPTIONS: SessionPluginOptions = Object.freeze({});

/** What makes a session other than the one it is made from. */
export type SessionMaking = Omit<SessionCreateRequest, "sessionId" | "usageSource"> & {
  /** The session that asked for it, when it is made from another one. */
  readonly createdBy?: string;
};

/** What a host gives a session when it opens it. */
export interface OpeningOptions {
  /**
   * Options for single plugins, by plugin id, in the place of all that an opening before gave. Those are gone on with only
   * where a turn it began is taken up and this opening gives none.
   */
  readonly pluginOptions?: SessionPluginOptions;
  /** Whose session it is. A new one becomes this tenant's; one of another tenant is refused with `tenant_mismatch`. */
  readonly tenant?: string;
  /** Words of the host's own to find the session by. They replace those it had. */
  readonly metadata?: Readonly<Record<string, string>>;
}

/** What a parked session leaves in memory, because no store has it and its plugins were told it. */
export interface ParkedNotes extends OpeningOptions {
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
  readonly tenant?: string;
  readonly metadata?: Readonly<Record<string, string>>;
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

/** The types of a call that crosses threads. */
export interface Exchange<Answer, Argument extends object> {
  readonly answer: Answer;
  readonly argument: Readonly<Argument>;
}

interface SessionCall<Answer, Argument extends object> {
  /** How a call reaches its session: among its turns, in the order they were asked for, or past them by Comlink. */
  readonly route: "lane" | "control";
  /** For the compiler only, and never there: no two calls would differ in it. */
  readonly types: Exchange<Answer, Argument>;
}

/** Keeps its place among the session's turns, and so may take as long as those before it. */
const lane = <Answer, Argument extends object = object>() => ({ route: "lane" }) as SessionCall<Answer, Argument>;
/** Answered at once, also while a turn runs; has a deadline. */
const control = <Answer, Argument extends object = object>() => ({ route: "control" }) as SessionCall<Answer, Argument>;

/**
 * Everything the main thread asks of a session: what it is answered, what it tells beside the session's id, and by which
 * route. A further call is an entry here, its method in `runtime/session-handle.ts` and its answer in `serve-sessions.ts`.
 */
export const SESSION_CALLS = {
  /** `take`: whether somebody else who has the session loses it. */
  open: control<SessionInfo, OpeningOptions & { take: "always" | "free" }>(),
  info: control<SessionInfo>(),
  /** The snapshot a fork is built from: of the session as it is, or as far as a node. */
  capture: control<{ readonly snapshot: Uint8Array<ArrayBuffer> }, { at: string | undefined }>(),
  adopt: control<SessionHandle, { snapshot: Uint8Array; making: SessionMaking }>(),
  view: control<SessionView>(),
  messages: control<readonly Message[], { range: MessageRange }>(),
  /** As it is stored; asking does not bring a parked session back. */
  tree: control<readonly TreeMessage[]>(),
  spending: control<SpendingReport>(),
  /** Back in memory, with its history. */
  resume: control<void>(),
  /** At once, also while a turn runs. */
  setBudget: control<SpendingReport, { budget: SessionBudget | null }>(),
  /** What plugins contribute to a session. */
  surface: control<SessionSurface>(),
  setConfig: lane<ConfigReceipt, { change: Partial<SessionConfig> }>(),
  refreshTools: lane<void>(),
  /** False when no compactor had anything. */
  compact: lane<boolean, { instructions: string | null }>(),
  append: lane<AppendResult, { request: AppendRequest }>(),
  extend: lane<void, { extension: Json }>(),
  /** A host service about one of this worker's sessions, asked by another session. */
  hostCall: lane<unknown, { pluginId: string; method: HostMethod; args: readonly unknown[] }>(),
  /** Lets an input wait for the running turn, or for the next. */
  addInput: lane<
    PendingInput,
    {
      text: string;
      items: readonly InputItem[] | undefined;
      key: string | undefined;
      boundary: CheckpointKind | undefined;
    }
  >(),
  inputs: lane<readonly PendingInput[]>(),
  cancelInput: lane<"cancelled" | "not_found" | "already_taken", { named: string }>(),
  /** Answers a tool call that waits for it. */
  completeTool: control<void, { key: string; output: ToolOutput }>(),
  /** Sends a reader what happens in a session, from behind its cursor on; answers where it is then. */
  observe: control<string, { reader: number; cursor: string | undefined }>(),
  unobserve: control<void, { reader: number }>(),
  /** Closes a session for another one: refused while a turn runs. */
  releaseIdle: control<void>(),
  /** Resolves when the session is stored and no longer in memory. */
  park: lane<void>(),
  /** The same, for another worker: what the session leaves in memory goes there. */
  handOver: lane<ParkedNotes>(),
  takeOver: control<void, { notes: ParkedNotes }>(),
  /** Runs an operation of a plugin on a session. */
  operate: lane<
    OperationReceipt,
    NamedOperation & { args: unknown; about: string | undefined; key: string | undefined }
  >(),
  /** Finishes the session's queued turns, stores it and forgets it. */
  release: control<void>(),
  /** Cancels whatever a session is at and lets it go; resolves at once. */
  cancelWork: lane<void, { reason: string }>(),
  /** Forgets a session that is about to be deleted: refused while a turn runs that was not cancelled. */
  discard: control<void>(),
} as const;

export type SessionMethod = keyof typeof SESSION_CALLS;
export type AnswerOf<M extends SessionMethod> = (typeof SESSION_CALLS)[M]["types"]["answer"];
/** What a call tells beside the session it is about. */
export type ToldBy<M extends SessionMethod> = (typeof SESSION_CALLS)[M]["types"]["argument"];
export type ArgumentOf<M extends SessionMethod> = ToldBy<M> & { readonly sessionId: string };

/** What a session worker serves: the calls about its sessions, and those about itself, which go by Comlink. */
export type SessionWorkerService = {
  [M in SessionMethod]: (argument: ArgumentOf<M>) => AnswerOf<M> | Promise<AnswerOf<M>>;
} & {
  /** Answers with the schemas it found usable beside those it was told of. */
  configure(setup: SessionWorkerSetup): Promise<{
    readonly threadId: number;
    readonly inline: readonly PluginManifest[];
    readonly usableSchemas: readonly string[];
  }>;
  /** The hook lane to one incarnation of a plugin's worker. */
  attachPlugin(lane: PluginLane): void;
  /** A plugin that will not come back. */
  failPlugin(argument: { readonly plugin: number; readonly code: string; readonly message: string }): void;
  /** Which of its sessions somebody inspects. */
  inspect(argument: { readonly sessions: readonly string[] | "all" }): void;
  operations(argument: undefined): readonly OperationSpec[];
  stats(argument: { known: number }): SessionWorkerStats;
  /** Ends every session: running and queued turns get `drainMs` to finish, then they are cancelled. */
  shutdown(argument: { readonly drainMs: number }): Promise<void>;
};
