import type {
  Activity,
  AppendRequest,
  AppendResult,
  FrameRecord,
  Json,
  JsonObject,
  Ledger,
  Message,
  ModelResponse,
  SessionConfig,
  SessionCreateRequest,
  SubagentContext,
  TaskRecord,
  TaskRegistration,
  ToolAvailability,
  ToolSpec,
  ToolState,
  TurnResult,
  Usage,
} from "../../kernel/index.js";
import { isNested, NESTED_METHODS, type NestedInterface, type NestedMethod, nestedFacade } from "./nested.js";
import type { MonitorHost, ProcessActs, ProcessReads } from "./outside.js";
import type { TaskHost } from "./tasks.js";
import type { TriggerActs, TriggerReads } from "./triggers.js";

/**
 * What hooks may ask of the runtime, in ten narrow interfaces. A hook gets those its kind is granted, as `context.host`;
 * the session worker checks every call, so a plugin that asks for more is refused there. Calls are about the hook's own
 * session or one of its descendants. Calls about the own session are answered from the running turn.
 */

/** A session as it is now: small, with references instead of bodies. */
export interface SessionView {
  readonly sessionId: string;
  readonly parentSessionId: string | null;
  /** Set in a session that works for another one. */
  readonly subagent?: SubagentContext;
  readonly config: SessionConfig;
  readonly revision: number;
  readonly turnIndex: number;
  /** A turn is running; counts and usage include it. */
  readonly running: boolean;
  readonly messageCount: number;
  readonly leafNodeId: string | null;
  readonly frameId: string;
  readonly frames: readonly FrameRecord[];
  /** Of the session's own turns. */
  readonly usage: Usage;
  /** Everything spent, by source and model: own turns, direct completions, child sessions. `usageReport` adds it up. */
  readonly ledger: Ledger;
  readonly toolGeneration: number;
  /** Of all plugins' state (see `snapshotFingerprint`), as a decimal string. */
  readonly pluginFingerprint: string;
  /** Content hashes of what is stored, by component. */
  readonly components: Readonly<Record<string, string>>;
}

export interface SessionSnapshotHost {
  snapshotCurrent(): Promise<SessionView>;
  snapshotSession(sessionId: string): Promise<SessionView>;
  /** Messages of the conversation, the running turn's included; `from` inclusive, `to` exclusive, negative from the end. */
  readMessages(
    sessionId: string,
    range?: { readonly from?: number; readonly to?: number },
  ): Promise<readonly Message[]>;
}

/** A tool as it is found by searching, with how far it is within reach. */
export interface ToolRecordView extends Required<ToolSpec> {
  readonly availability: ToolAvailability;
}

export interface ToolCatalogHost {
  toolCatalog(sessionId: string): Promise<readonly ToolRecordView[]>;
}

export interface ToolStateHost {
  toolState(sessionId: string): Promise<ToolState>;
  /** The new generation; refused with `tool_state_stale` when somebody else changed it meanwhile. */
  applyToolState(sessionId: string, state: ToolState): Promise<number>;
  setToolsAvailability(
    sessionId: string,
    names: readonly string[],
    availability: ToolAvailability | null,
  ): Promise<number>;
  setToolAvailability(sessionId: string, name: string, availability: ToolAvailability | null): Promise<number>;
  setToolMembership(sessionId: string, names: readonly string[], present: boolean): Promise<number>;
}

export type SessionHandle = Pick<SessionView, "sessionId" | "parentSessionId" | "config">;

export interface SessionLifecycleHost {
  createSession(request?: SessionCreateRequest): Promise<SessionHandle>;
  /** What was left for the session's first turn; taken once, then null. */
  takeFirstTurnInput(sessionId: string): Promise<string | null>;
  /** Refused for the own session and while a turn runs; a session nobody knows is closed already. */
  closeSession(sessionId: string): Promise<void>;
}

export interface SessionTurnHandle {
  readonly turnId: string;
  readonly sessionId: string;
  /** What happens in the turn, until it ends. */
  readonly events: AsyncIterable<Activity>;
}

export interface TurnRequestInput {
  readonly text: string;
  /** Names the turn for the session that starts it; must be new among its running ones. */
  readonly turnId?: string;
  /**
   * The caller's own name for it, for good: asked again under it, also by another process, it is the same turn, which runs
   * once and has one result. Of a session's turns the last 32 are known so. Another text is a `turn_key_conflict`.
   */
  readonly key?: string;
}

/** A turn of another session that is to be a task of the own one. */
export interface TurnTaskInput extends Pick<TaskRegistration, "label" | "deliver" | "visibility"> {
  readonly text: string;
  /** The caller's own name for it: asked for again under it, it is the task that is there, also when that has ended. */
  readonly key?: string;
}

/** One turn at a time and session; a turn stays registered until it has been awaited or has ended. */
export interface TurnHost {
  startTurnStream(sessionId: string, input: string | TurnRequestInput): Promise<SessionTurnHandle>;
  awaitTurn(turnId: string): Promise<TurnResult>;
  cancelTurn(turnId: string): Promise<void>;
  /** Starts it and waits for it. When the call that waits is given up, so is the turn. */
  startTurn(sessionId: string, input: string | TurnRequestInput): Promise<TurnResult>;
  /**
   * Starts it as a task of the own session, of kind `subagent`, and does not wait. The task ends with the turn, also one
   * that goes on after a crash, and its result is the turn's answer. Cancelling it cancels the turn and closes the other
   * session, with whatever goes on for that.
   *
   * @example
   * const { id } = await context.host.startTurnTask(child, { text: "Look into it.", label: "research", deliver: "steer" });
   */
  startTurnTask(sessionId: string, input: TurnTaskInput): Promise<TaskRecord>;
}

export interface SessionGraphHost {
  /** Appends behind the stored leaf; a running turn's own messages follow when it commits. */
  appendSessionNodes(sessionId: string, request: AppendRequest): Promise<AppendResult>;
}

/** A single model call beside the turn: no tools, no history. */
export interface DirectRequest {
  readonly system?: string;
  readonly messages: readonly { readonly role: "user" | "assistant" | "system"; readonly text: string }[];
  readonly output?: { readonly type: "text" } | { readonly type: "json"; readonly schema?: JsonObject };
}

export interface DirectCompletion {
  readonly text: string;
  readonly usage: Usage;
}

/** As the model is really asked: whole messages, with tool calls and reasoning where they have them. */
export interface LlmRequest {
  readonly system?: string;
  readonly messages: readonly Message[];
}

export interface DirectLlmCompletion {
  readonly response: ModelResponse;
  readonly usage: Usage;
}

export interface DirectCompletionHost {
  /** `usageSource` names the cost in the session's ledger. */
  directCompletion(request: DirectRequest, usageSource: string): Promise<DirectCompletion>;
  directLlmCompletion(request: LlmRequest, usageSource: string): Promise<DirectLlmCompletion>;
}

export interface TraceHost {
  /** The session id of the context is always the own one. */
  emitTraceEvent(context: JsonObject, event: { readonly name: string; readonly payload?: Json }): Promise<void>;
}

export interface HostInterfaces {
  sessionSnapshot: SessionSnapshotHost;
  toolCatalog: ToolCatalogHost;
  toolState: ToolStateHost;
  sessionLifecycle: SessionLifecycleHost;
  turn: TurnHost;
  task: TaskHost;
  monitor: MonitorHost;
  processReads: { readonly processes: ProcessReads };
  processActs: { readonly processes: ProcessActs };
  triggerReads: { readonly triggers: TriggerReads };
  triggerActs: { readonly triggers: TriggerActs };
  sessionGraph: SessionGraphHost;
  directCompletion: DirectCompletionHost;
  trace: TraceHost;
}
export type HostInterface = keyof HostInterfaces;

/** The methods of each interface. */
const METHODS = {
  sessionSnapshot: ["snapshotCurrent", "snapshotSession", "readMessages"],
  toolCatalog: ["toolCatalog"],
  toolState: ["toolState", "applyToolState", "setToolsAvailability", "setToolAvailability", "setToolMembership"],
  sessionLifecycle: ["createSession", "takeFirstTurnInput", "closeSession"],
  turn: ["startTurnStream", "awaitTurn", "cancelTurn", "startTurn", "startTurnTask"],
  task: [
    "injectTurnInput",
    "spawnHiddenTask",
    "awaitHiddenTasks",
    "spawnManagedTask",
    "cancelManagedTask",
    "registerBackgroundTask",
    "unregisterBackgroundTask",
    "completeBackgroundTask",
    "transitionBackgroundTaskLiveState",
    "listBackgroundTasks",
    "cancelBackgroundTask",
    "cancelAllBackgroundTasks",
    "validateAsyncHandlesVisible",
    "transferAsyncHandles",
    "cancelUnreferencedAsyncHandles",
  ],
  monitor: ["monitorSnapshot", "takeMonitorUpdates", "startMonitor", "stopMonitor"],
  sessionGraph: ["appendSessionNodes"],
  directCompletion: ["directCompletion", "directLlmCompletion"],
  trace: ["emitTraceEvent"],
} as const satisfies { readonly [I in Exclude<HostInterface, NestedInterface>]: readonly (keyof HostInterfaces[I])[] };

export type HostMethod = (typeof METHODS)[keyof typeof METHODS][number] | NestedMethod;

const NAMES: { readonly [I in HostInterface]: readonly HostMethod[] } = {
  ...METHODS,
  ...NESTED_METHODS,
};
const INTERFACES = Object.keys(NAMES) as HostInterface[];

/** Which interface a method belongs to: what a call is checked by. */
export const HOST_METHODS = Object.fromEntries(
  INTERFACES.flatMap((owner) => NAMES[owner].map((method) => [method, owner])),
) as Readonly<Record<HostMethod, HostInterface>>;

/** The composites: which interfaces the hooks of each kind, the operations and the tools of a plugin are given. */
export const PROMPT_HOOK_HOST = ["sessionSnapshot", "toolCatalog", "task", "directCompletion"] as const;
export const TURN_HOOK_HOST = ["sessionSnapshot", "toolState", "sessionLifecycle", "trace"] as const;
export const TURN_RESULT_HOOK_HOST = ["sessionLifecycle", "trace"] as const;
export const CHECKPOINT_HOOK_HOST = ["sessionLifecycle", "trace"] as const;
export const HISTORY_HOST = [
  "sessionSnapshot",
  "sessionLifecycle",
  "turn",
  "task",
  "sessionGraph",
  "directCompletion",
] as const;
export const TASK_HOST = ["task"] as const;
export const QUERY_HOST = ["sessionSnapshot", "toolCatalog", "processReads", "triggerReads"] as const;
export const PLUGIN_ACTION_HOST: readonly HostInterface[] = INTERFACES;
export const TOOL_HOOK_HOST = PLUGIN_ACTION_HOST;
export const RUNTIME_SESSION_HOST = PLUGIN_ACTION_HOST;
export const NO_HOST = [] as const;

/** The union of a composite's interfaces. */
export type HostOf<I extends readonly HostInterface[]> = UnionToIntersection<HostInterfaces[I[number]]>;
type UnionToIntersection<U> = [U] extends [never]
  ? Record<never, never>
  : (U extends unknown ? (part: U) => void : never) extends (whole: infer W) => void
    ? W
    : never;

export type PromptHookHost = HostOf<typeof PROMPT_HOOK_HOST>;
export type TurnHookHost = HostOf<typeof TURN_HOOK_HOST>;
export type ToolHookHost = HostOf<typeof TOOL_HOOK_HOST>;
export type TurnResultHookHost = HostOf<typeof TURN_RESULT_HOOK_HOST>;
export type CheckpointHookHost = HostOf<typeof CHECKPOINT_HOOK_HOST>;
export type HistoryHost = HostOf<typeof HISTORY_HOST>;
export type QueryHost = HostOf<typeof QUERY_HOST>;
export type PluginActionHost = HostOf<typeof PLUGIN_ACTION_HOST>;
export type RuntimeSessionHost = HostOf<typeof RUNTIME_SESSION_HOST>;

/** Makes one call; whoever has it has checked nothing yet. */
export type HostCall = (method: HostMethod, args: readonly unknown[]) => Promise<unknown>;

/**
 * The host object a hook sees: the methods of the granted interfaces, each of which makes one call. Handing out fewer
 * methods is a courtesy, not the check; that is made by whoever answers.
 */
export function hostFacade(granted: readonly HostInterface[], call: HostCall): object {
  const calls =
    (method: HostMethod) =>
    (...args: unknown[]) =>
      unattended(call(method, args));
  const facade: Record<string, unknown> = nestedFacade(granted, calls);
  for (const [method, owner] of Object.entries(HOST_METHODS) as [HostMethod, HostInterface][])
    if (granted.includes(owner) && !isNested(owner)) facade[method] = calls(method);
  if (granted.includes("turn")) {
    facade.startTurnStream = (...args: unknown[]) => unattended(turnStream(args, call));
  }
  return facade;
}

/** A call nobody awaits must not end the thread it fails on. */
function unattended<T>(answer: Promise<T>): Promise<T> {
  answer.catch(() => undefined);
  return answer;
}

async function turnStream(args: readonly unknown[], call: HostCall): Promise<SessionTurnHandle> {
  const handle = (await call("startTurnStream", args)) as Omit<SessionTurnHandle, "events">;
  return { ...handle, events: turnEvents(handle.turnId, call) };
}

/** A turn's activities, fetched as they are read. The method that fetches them is the stream's own. */
async function* turnEvents(turnId: string, call: HostCall): AsyncGenerator<Activity> {
  for (;;) {
    const batch = (await call(TURN_EVENTS, [turnId])) as readonly Activity[] | null;
    if (batch === null) return;
    yield* batch;
  }
}

/** Not a method of any interface: whoever may start turns may read their events. */
export const TURN_EVENTS = "turnEvents" as HostMethod;

/** What a tool's answer says of a task, in the name of its call: how the session is to hear of its end. */
export const TASK_DELIVER = "taskDeliver" as HostMethod;
