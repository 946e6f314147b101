import type { TaskCompletion, TaskEnd, TaskRecord, TaskRegistration, TaskRequest } from "../../kernel/index.js";

/**
 * Work that goes on beside a session's turns. The session is the caller's own unless one is named in front, which must be
 * one that it may see.
 *
 * @example
 * const task = await context.host.spawnManagedTask({ job: "index", input: { folder }, label: "Index", key: folder });
 * return startedTask(task, { deliver: "steer" });
 */
export interface TaskHost {
  /** Says something into the running turn, from its next checkpoint on, or else into the next; under one id once. */
  injectTurnInput(sessionId: string, input: { readonly id?: string; readonly text: string }): Promise<void>;
  /** Runs a job of the plugin that stands in no list. */
  spawnHiddenTask(request: TaskRequest): Promise<TaskRecord>;
  spawnHiddenTask(sessionId: string, request: TaskRequest): Promise<TaskRecord>;
  /** Resolves when no hidden task goes on, also none that another one began; rejects with the first failure. */
  awaitHiddenTasks(sessionId?: string): Promise<void>;
  /** Runs a job of the plugin. Under a `key` with the same job and input it is the task that is there, also when that has ended. */
  spawnManagedTask(request: TaskRequest): Promise<TaskRecord>;
  spawnManagedTask(sessionId: string, request: TaskRequest): Promise<TaskRecord>;
  /** Ends it as cancelled. One that has ended, or never was, is cancelled enough. */
  cancelManagedTask(taskId: string): Promise<void>;
  cancelManagedTask(sessionId: string, taskId: string): Promise<void>;
  /** Writes down work that lives elsewhere. */
  registerBackgroundTask(registration: TaskRegistration): Promise<TaskRecord>;
  registerBackgroundTask(sessionId: string, registration: TaskRegistration): Promise<TaskRecord>;
  /** Takes it out of the list; nobody is told of an end. */
  unregisterBackgroundTask(taskId: string): Promise<void>;
  unregisterBackgroundTask(sessionId: string, taskId: string): Promise<void>;
  /** What came of it. Of a task that has ended already nothing changes. */
  completeBackgroundTask(taskId: string, end: TaskEnd | TaskCompletion): Promise<void>;
  completeBackgroundTask(sessionId: string, taskId: string, end: TaskEnd | TaskCompletion): Promise<void>;
  /** Between its two live states; one that has ended stays as it is. */
  transitionBackgroundTaskLiveState(taskId: string, state: "running" | "idle"): Promise<void>;
  transitionBackgroundTaskLiveState(sessionId: string, taskId: string, state: "running" | "idle"): Promise<void>;
  /** All but the hidden ones, by when they began; those that ended are kept for a week. */
  listBackgroundTasks(sessionId?: string): Promise<readonly TaskRecord[]>;
  /** By its kind: a monitor ends its processes, a subagent its sessions, a job's run is asked to stop, an owner is told. */
  cancelBackgroundTask(taskId: string): Promise<TaskRecord>;
  cancelBackgroundTask(sessionId: string, taskId: string): Promise<TaskRecord>;
  /** All that go on, but for hidden ones; gives them as they are then. */
  cancelAllBackgroundTasks(sessionId?: string): Promise<readonly TaskRecord[]>;
  /** Rejects with `task_unknown` when one of them is none that goes on and that the session may see. */
  validateAsyncHandlesVisible(handleIds: readonly string[]): Promise<void>;
  validateAsyncHandlesVisible(sessionId: string, handleIds: readonly string[]): Promise<void>;
  /** They are the other session's from now on, all or none. Unknown ones are left out. */
  transferAsyncHandles(to: string, handleIds: readonly string[]): Promise<void>;
  transferAsyncHandles(from: string, to: string, handleIds: readonly string[]): Promise<void>;
  /** Cancels all that go on but these; gives those it cancelled. */
  cancelUnreferencedAsyncHandles(keep: readonly string[]): Promise<readonly TaskRecord[]>;
  cancelUnreferencedAsyncHandles(sessionId: string, keep: readonly string[]): Promise<readonly TaskRecord[]>;
}

/** Not methods of any interface: what the run of a job says of itself, in the name of its call alone. */
export const TASK_STEP = "taskStep";
export const TASK_SLEEP = "taskSleep";

/** How many arguments each service has beside the session, and whether it changes something. */
export const TASK_SERVICES: {
  readonly [M in Exclude<keyof TaskHost, "injectTurnInput">]: readonly [count: number, changes: boolean];
} = {
  spawnHiddenTask: [1, true],
  awaitHiddenTasks: [0, true],
  spawnManagedTask: [1, true],
  cancelManagedTask: [1, true],
  registerBackgroundTask: [1, true],
  unregisterBackgroundTask: [1, true],
  completeBackgroundTask: [2, true],
  transitionBackgroundTaskLiveState: [2, true],
  listBackgroundTasks: [0, false],
  cancelBackgroundTask: [1, true],
  cancelAllBackgroundTasks: [0, true],
  validateAsyncHandlesVisible: [1, false],
  transferAsyncHandles: [2, true],
  cancelUnreferencedAsyncHandles: [1, true],
};

/** Undefined for what is no service about tasks. */
export function taskService(method: string): readonly [count: number, changes: boolean] | undefined {
  return Object.hasOwn(TASK_SERVICES, method) ? TASK_SERVICES[method as keyof typeof TASK_SERVICES] : undefined;
}
