import type {
  AnswerOutcome,
  AppendRequest,
  AppendResult,
  ApprovalVerdict,
  Cancellation,
  CheckpointKind,
  CompletionPlace,
  InputItem,
  Json,
  Message,
  Owned,
  PendingCall,
  PendingInput,
  PluginEvent,
  Role,
  RowChange,
  SessionBudget,
  SessionConfig,
  SessionCreateRequest,
  SpendingReport,
  ToolOutput,
  TroupeErrorCode,
  TurnIssue,
  TurnResult,
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
import type { TurnInProgress } from "./observed.js";
import type {
  AgentsSetup,
  GroupSetup,
  HostName,
  PluginLane,
  SessionWorkerSetup,
  SessionWorkerStats,
} from "./worker-setup.js";

/** What came of a tool that was run without a turn. */
export type LoneAnswer =
  | { readonly status: "answered"; readonly text: string }
  /** `final`: it can never be run so. */
  | { readonly status: "failed"; readonly code: string; readonly message: string; readonly final: boolean };

/** Options for single plugins, by plugin id, given when a session is opened. */
export type SessionPluginOptions = Readonly<Record<string, Json>>;
/** Of most sessions. */
export const NO_PLUGIN_OPTIONS: SessionPluginOptions = Object.freeze({});

/** What makes a session other than the one it is made from. */
export type SessionMaking = Omit<SessionCreateRequest, "sessionId" | "usageSource"> & {
  /** The session that asked for it, when it is made from another one. */
  readonly createdBy?: string;
  /** What is left of the budget of the session that asked for it: it may spend no more. */
  readonly budget?: SessionBudget;
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
  /**
   * The agent of a new session, `support@3` or the newest `support`; also of one that has none yet, or whose agent is
   * gone. One with another agent is refused with `agent_mismatch`.
   */
  readonly agent?: string;
  /** The plugins of a new session, by id, in the place of its agent's. Default: its agent's, or all. */
  readonly plugins?: readonly string[];
}

/** Issues of hooks that the next turn tells, each by what it is of. */
export type UntoldIssues = readonly (readonly [string, TurnIssue])[];

/** What a parked session leaves in memory, because no store has it and its plugins were told it. */
export interface ParkedNotes extends OpeningOptions {
  readonly promptTokens?: number;
  /** Sessions its plugins made. */
  readonly created?: readonly string[];
  /** What its hooks failed at since its last turn, which the next turn tells. */
  readonly untold?: UntoldIssues;
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
  /** With its version; left out by a session that has the runtime's own settings. */
  readonly agent?: string;
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

/** Where a session's conversation goes on after {@link SESSION_CALLS.rewind}. */
export interface Rewound {
  /** The last node of the conversation now; null: it has no message. */
  readonly node: string | null;
  readonly messageCount: number;
  /** The frame it is in now: `view().frames` has the one that was left. */
  readonly frameId: string;
  /** The last node of the branch that was left; null when the conversation ended at the node already. */
  readonly left: string | null;
}

/**
 * What became of cancelling a turn by its id. `ended`: it is stored, or about to be, and ends as it was decided. `unknown`:
 * the session has had no such turn, and none of that id runs.
 */
export type CancelledTurn = "cancelled" | "ended" | "unknown";

/** A session as its host sees it. */
export type HostSessionView = Omit<SessionView, "running"> & {
  /** The turn that runs, or that a crash left behind and that is about to be taken up; null between turns. */
  readonly running: TurnInProgress | null;
};

/** What a session has from its plugins. */
export interface SessionSurface {
  readonly tools: readonly ToolRecordView[];
  readonly operations: readonly OperationSpec[];
  readonly triggers: readonly TriggerSpec[];
}

/** May a model call begin that others pay for? */
export type PayerAnswer =
  | { readonly kind: "go" }
  | { readonly kind: "spent"; readonly why: string; readonly whenSpent: "stop" | "pause" };

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
  view: control<HostSessionView>(),
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
  /** Answers with the agent's name and version. */
  setAgent: lane<string, { agent: string }>(),
  setConfig: lane<ConfigReceipt, { change: Partial<SessionConfig> }>(),
  refreshTools: lane<void>(),
  /** False when no compactor had anything. */
  compact: lane<boolean, { instructions: string | null }>(),
  /** Null: before the first message. */
  rewind: lane<Rewound, { node: string | null }>(),
  append: lane<AppendResult, { request: AppendRequest }>(),
  extend: lane<void, { extension: Json }>(),
  /** May a child's model call begin, by this session's budget? By the lane of what children have spent. */
  admitChild: lane<PayerAnswer, { call: string; waits: boolean }>(),
  /** A host service about one of this worker's sessions, asked by another session. */
  hostCall: lane<unknown, { pluginId: string; method: HostMethod; args: readonly unknown[] }>(),
  /** A host service asked for by the run of a job that belongs to this session. */
  jobCall: lane<unknown, { pluginId: string; method: HostMethod; args: readonly unknown[] }>(),
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
  /**
   * An input that the runtime brings, stored with the row it comes from: a schedule's run, an occurrence of a trigger, the
   * end of a task.
   * `rows.skipped`: the row when an input of the same source has not had its turn, and this one is left out for it;
   * `replaces`: this one takes the place of those.
   */
  deliverInput: lane<
    "taken" | "skipped",
    {
      source: string;
      /** Its number among those of its source. */
      nth: number;
      text: string;
      items: readonly InputItem[] | undefined;
      replaces: boolean;
      /** It is said into the running turn, or else into the next, and has no turn of its own. */
      steers?: boolean;
      rows: { readonly taken: RowChange; readonly skipped?: RowChange };
    }
  >(),
  /** Runs a tool of the session beside its turns, without a model. By the lane, which has no deadline; it takes no place there. */
  runTool: lane<LoneAnswer, { tool: string; args: Json; callId: string }>(),
  inputs: lane<readonly PendingInput[]>(),
  cancelInput: lane<"cancelled" | "not_found" | "already_taken", { named: string }>(),
  /** Stops the turn that runs, or that begins next. Behind what was asked for before, and at once. */
  cancelRunning: lane<"cancelled" | "idle", { cancellation: Cancellation }>(),
  cancelTurn: lane<CancelledTurn, { turnId: string; cancellation: Cancellation }>(),
  /** Answers a tool call that waits for it. By the route of inputs: what was said before the answer reaches the turn before it. */
  answerCall: lane<
    AnswerOutcome,
    { place: Pick<CompletionPlace, "turnId" | "callId">; answer: ToolOutput | ApprovalVerdict }
  >(),
  /** Sends a reader what happens in a session, from behind its cursor or the turn's beginning on; answers where it is then. */
  observe: control<string, { reader: number; from: { readonly cursor: string } | "now" | "turn" }>(),
  unobserve: control<void, { reader: number }>(),
  /** What a turn came to; of the one that runs, when it is over. By the lane, which has no deadline; it takes no place there. */
  turnResult: lane<TurnResult, { turnId: string }>(),
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
    /** The thread's id as the operating system has it; undefined where it cannot be known. */
    readonly tid: number | undefined;
    readonly inline: readonly PluginManifest[];
    readonly usableSchemas: readonly string[];
  }>;
  /** Loads what these agents need and finds out what is wrong with them; sessions see nothing of it. */
  prepareAgents(argument: AgentsSetup): Promise<void>;
  /** These are the agents from now on: the next turn of every session has its own as it is here. */
  setAgents(argument: AgentsSetup): void;
  /** A tenant's budget is another one. */
  tenantChanged(argument: { readonly tenant: string }): void;
  /** Answers when the thread's event loop turns. */
  ping(argument: undefined): void;
  /** The hook lane to one incarnation of a plugin host. */
  attachHost(lane: PluginLane): void;
  /** A lane whose host's thread does not end: nothing more comes from it. */
  loseHost(lane: HostName & { readonly lane: number }): void;
  /** A host that cannot be had: calls that wait for it fail. */
  refuseHost(argument: HostName & { readonly code: TroupeErrorCode; readonly message: string }): void;
  /** A group that will not come back, or does again. */
  failGroup(argument: {
    readonly group: number;
    readonly failure: { readonly code: TroupeErrorCode; readonly message: string } | null;
  }): void;
  /** How many threads of a group do not end, because something native holds them. */
  lingeringThreads(argument: { readonly group: number; readonly count: number }): void;
  /** A plugin (its place in the options) is in a group of its own from now on, the one of this number. */
  splitGroup(argument: { readonly plugin: number; readonly group: number; readonly setup: GroupSetup }): void;
  /** Over how many hosts a group's sessions are spread from now on. Does any still use one beyond them? */
  spreadGroup(argument: { readonly group: number; readonly shards: number }): Promise<boolean>;
  /** Which of its sessions somebody inspects. */
  inspect(argument: { readonly sessions: readonly string[] | "all" }): void;
  operations(argument: undefined): readonly OperationSpec[];
  /** The triggers that the plugins declare, by name. */
  triggers(argument: undefined): readonly string[];
  /** What is wrong with a trigger's payload; undefined: it fits. */
  checkTrigger(argument: {
    readonly source: string;
    readonly payload: Json;
  }): string | undefined | Promise<string | undefined>;
  /** The calls of its sessions that wait for somebody outside, where no store has them. */
  waitingCalls(argument: undefined): readonly PendingCall[];
  stats(argument: { known: number }): SessionWorkerStats;
  /** The runtime is closing: turns that wait for nothing but people are left as their journals have them. `but`: not in these sessions. */
  suspendWaiting(argument: { readonly but: readonly string[] }): void;
  /** Ends every session: running and queued turns get `drainMs` to finish, then they are cancelled. */
  shutdown(argument: { readonly drainMs: number }): Promise<void>;
};
