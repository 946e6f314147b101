import { TroupeError } from "../errors.js";
import { isRecord, type Json } from "../json.js";
import type { RowOrder } from "../writes/index.js";

/** The table of them. */
export const TASKS = "tasks";
/** The table of the input of each, and of the steps it has finished. */
export const TASK_STEPS = "task_steps";

/**
 * What goes on beside a session's turns. `hidden` and `managed`: a job of a plugin, which the runtime runs; a hidden one is
 * in no list. `background`: work that lives elsewhere and is only written down here. `monitor`, `subagent`: what they say.
 */
export const TASK_KINDS = ["hidden", "managed", "background", "monitor", "subagent"] as const;
export type TaskKind = (typeof TASK_KINDS)[number];

/** `idle`: it waits for something, such as a time or a follow-up. The last three are ends, and stay. */
export type TaskState = "running" | "idle" | TaskEnd;
export type TaskEnd = "completed" | "failed" | "cancelled";

/**
 * How its session hears of a task's end: not at all, as an input of the running turn or else the next (`steer`), or as the
 * beginning of a turn of its own (`turn`). One that was awaited is heard of there, and not again.
 */
export type TaskDelivery = "none" | "turn" | "steer";

/** Who sees a task: its session and those above it, or (`descendants`) sessions made from it too. */
export type TaskVisibility = "session" | "descendants";

export interface TaskError {
  readonly code: string;
  readonly message: string;
}

/** The code that the runtime runs for a task: a job of a plugin. Its input is a row of its own, see {@link stepKey}. */
export interface TaskJob {
  readonly plugin: string;
  readonly name: string;
}

/** A task as it is stored: a row of its session. */
export interface StoredTask {
  readonly kind: TaskKind;
  readonly state: TaskState;
  readonly label: string;
  /** The caller's own name for it: asked for twice, it is one. */
  readonly key: string | null;
  /** The plugin it is of; null: the runtime's own or the host's. */
  readonly owner: string | null;
  readonly visibility: TaskVisibility;
  /** Null: the work lives elsewhere. */
  readonly job: TaskJob | null;
  /** The owner's job that is told when the task is cancelled. */
  readonly onCancel: string | null;
  readonly deliver: TaskDelivery;
  /** Its end is still to be told; of one that was cancelled: its work is still to be ended. */
  readonly untold: boolean;
  readonly progress: Json;
  readonly since: number;
  readonly endedAt: number | null;
  readonly result: Json;
  readonly error: TaskError | null;
  /** It ends by then, with `task_timeout`. */
  readonly deadline: number | null;
  /** It sleeps until then, and nothing of it is in memory. */
  readonly wake: number | null;
  /** How often it was begun: what an earlier run still says counts for nothing. */
  readonly run: number;
  /** How often it was lost in a row, without a step finished in between. */
  readonly losses: number;
  /** How many steps are stored: with one missing, a run would do again what was done. */
  readonly steps: number;
}

/** A task as plugins and hosts see it. */
export interface TaskRecord
  extends Pick<
    StoredTask,
    "kind" | "state" | "label" | "key" | "owner" | "visibility" | "progress" | "since" | "endedAt" | "result" | "error"
  > {
  readonly id: string;
  /** The session it is of. */
  readonly sessionId: string;
}

export function isEnded({ state }: Pick<StoredTask, "state">): boolean {
  return isEndedState(state);
}

export function isEndedState(state: TaskState): state is TaskEnd {
  return state !== "running" && state !== "idle";
}

export function recordOf(id: string, sessionId: string, stored: StoredTask): TaskRecord {
  const { kind, state, label, key, owner, visibility, progress, since, endedAt, result, error } = stored;
  return {
    id,
    sessionId,
    kind,
    state,
    label,
    key,
    owner,
    visibility,
    progress,
    since,
    endedAt,
    result,
    error,
  };
}

/** Is what a row has a task? One that was imported may say anything. */
export function isStoredTask(value: unknown): value is StoredTask {
  if (!isRecord(value)) return false;
  const { kind, state, label, deliver, since, run, losses, steps, job, wake, deadline, endedAt } = value;
  const isTime = (time: unknown) => time === null || (Number.isSafeInteger(time) && (time as number) >= 0);
  const isJob = job === null || (isRecord(job) && typeof job.plugin === "string" && typeof job.name === "string");
  return (
    TASK_KINDS.some((each) => each === kind) &&
    STATES.some((each) => each === state) &&
    ["none", "turn", "steer"].some((each) => each === deliver) &&
    typeof label === "string" &&
    Number.isSafeInteger(run) &&
    Number.isSafeInteger(losses) &&
    Number.isSafeInteger(steps) &&
    isJob &&
    since !== null &&
    [since, wake, deadline, endedAt].every(isTime)
  );
}

const STATES: readonly TaskState[] = ["running", "idle", "completed", "failed", "cancelled"];

/** What a task is asked for with, checked. */
export interface TaskSpec
  extends Pick<StoredTask, "kind" | "label" | "key" | "owner" | "visibility" | "job" | "onCancel" | "deliver"> {
  /** The input of its job. */
  readonly input: Json;
  readonly deadlineMs: number | null;
}

/** A task that begins now. */
export function beginTask(spec: TaskSpec, now: number): StoredTask {
  const { kind, label, key, owner, visibility, job, onCancel, deliver, deadlineMs } = spec;
  return {
    kind,
    state: "running",
    label,
    key,
    owner,
    visibility,
    job,
    onCancel,
    deliver,
    untold: false,
    progress: null,
    since: now,
    endedAt: null,
    result: null,
    error: null,
    deadline: deadlineMs === null ? null : now + deadlineMs,
    wake: null,
    run: job === null ? 0 : 1,
    losses: 0,
    steps: 0,
  };
}

/** A task whose run was lost this often without finishing a step ends: what loses it is most likely itself. */
export const MOST_LOSSES = 5;

/** A run was lost, and the task is run again from its beginning; undefined: it has been lost too often. */
export function runAgain(stored: StoredTask): StoredTask | undefined {
  const losses = stored.losses + 1;
  if (losses >= MOST_LOSSES) return undefined;
  return { ...stored, state: "running", wake: null, run: stored.run + 1, losses };
}

/** The runtime is closed, and nobody lost the run: what takes it up counts a loss that this makes up for. */
export function putDown(stored: StoredTask): StoredTask {
  return { ...stored, losses: stored.losses - 1 };
}

/** A run finished a step: what loses it later is counted anew. */
export function stepped(stored: StoredTask): StoredTask {
  return { ...stored, losses: 0, steps: stored.steps + 1 };
}

/** It is let go of until a time, which is a step too. */
export function asleep(stored: StoredTask, wake: number): StoredTask {
  return { ...stepped(stored), state: "idle", wake };
}

/** Its time has come, or it is taken up by somebody else: run again, and not because a run was lost. */
export function awake(stored: StoredTask): StoredTask {
  return { ...stored, state: "running", wake: null, run: stored.run + 1 };
}

/** Between its two live states, and what it says of how far it is. One that has ended stays as it is. */
export function inLiveState(stored: StoredTask, state: "running" | "idle", progress = stored.progress): StoredTask {
  return isEnded(stored) ? stored : { ...stored, state, progress };
}

/** What came of it. One that has ended stays as it is. */
export function endTask(
  stored: StoredTask,
  end: {
    readonly state: TaskEnd;
    readonly now: number;
    readonly result?: Json;
    readonly error?: TaskError | null;
    /** Somebody waits for the end and hears of it there. */
    readonly awaited?: boolean;
  },
): StoredTask {
  if (isEnded(stored)) return stored;
  const { state, now, result = null, error = null, awaited = false } = end;
  // Who cancels a task knows that it has ended.
  const untold = state === "cancelled" ? isKept(stored) : stored.deliver !== "none" && !awaited;
  return { ...stored, state, endedAt: now, result, error, wake: null, untold };
}

/**
 * A task that goes on in the store its session was exported from, as the copy has it: ended, where its work is somebody's
 * here. Undefined: it stays as it is.
 */
export function endedElsewhere(value: unknown): StoredTask | undefined {
  if (!isStoredTask(value)) return undefined;
  // The work is not the copy's to end.
  if (isToBeStopped(value)) return told(value);
  if (isEnded(value) || value.kind === "background") return undefined;
  const message = "It goes on in the store that the session was exported from, and not in this copy.";
  return endTask(value, { state: "failed", now: value.since, error: { code: "task_lost", message } });
}

/** Is its work done outside of tasks, by another part of the runtime, which is told when it is cancelled? */
function isKept({ kind }: StoredTask): boolean {
  return kind === "monitor" || kind === "subagent";
}

/** Has this task ended without its session being told? A runtime tells it then, also one that starts later. */
export function isToBeTold({ untold, state }: StoredTask): boolean {
  return untold && state !== "cancelled";
}

/** Was this task cancelled while its monitor or agent still works? A runtime ends that then, also one that starts later. */
export function isToBeStopped({ untold, state }: StoredTask): boolean {
  return untold && state === "cancelled";
}

/** Its end was told, or its work was ended. */
export function told(stored: StoredTask): StoredTask {
  return { ...stored, untold: false };
}

/** How its end is to be told, from now on; one that has ended already is told so now. */
export function deliveredBy(stored: StoredTask, deliver: TaskDelivery): StoredTask {
  const untold = stored.state === "cancelled" ? stored.untold : isEnded(stored) && deliver !== "none";
  return { ...stored, deliver, untold };
}

/** The owners of tasks' places in the order of their table: what a starting runtime looks for, and what may be forgotten. */
export const TASK_ORDER = {
  /** To be run, or its end to be told, or its work to be ended, or that lives outside of the store. By when it began. */
  open: "open",
  /** By when it wakes. */
  asleep: "asleep",
  /** By when it ended. */
  ended: "ended",
} as const;

export function taskOrder(stored: StoredTask): RowOrder {
  if (stored.wake !== null) return { owner: TASK_ORDER.asleep, at: stored.wake };
  if (isEnded(stored) && !stored.untold) return { owner: TASK_ORDER.ended, at: stored.endedAt ?? stored.since };
  return { owner: TASK_ORDER.open, at: stored.since };
}

/** No task's id has it, so no task's steps begin with another's. */
const BEHIND_ID = "#";

/** Whose input or step a row is; undefined for a key that is none of a task's. */
export function taskOfStep(key: string): string | undefined {
  const at = key.lastIndexOf(BEHIND_ID);
  return at === -1 ? undefined : key.slice(0, at);
}

/** The row of a task's input (0), or of the step it finished as its `nth` (from 1). */
export function stepKey(taskId: string, nth: number): string {
  return taskId + BEHIND_ID + nth.toString(36).padStart(4, "0");
}

/** The keys of the rows of a task's input and steps begin with this. */
export function stepPrefix(taskId: string): string {
  return taskId + BEHIND_ID;
}

/** What came of a step, as its row has it: answered so in every run from then on. */
export interface StoredStep {
  readonly name: string;
  readonly outcome:
    | { readonly kind: "value"; readonly value: Json }
    | { readonly kind: "error"; readonly code: string; readonly message: string }
    /** It slept. */
    | { readonly kind: "slept"; readonly until: number };
}

/** A task has no more steps. */
export const MAX_STEPS = 10_000;

/** The step a row is of; 0: it is the input's. */
export function stepOf(taskId: string, key: string): number {
  return Number.parseInt(key.slice(stepPrefix(taskId).length), 36);
}

/** What the session is told of a task's end. */
export function tellingOf({ id, label, state, result, error }: TaskRecord): string {
  const what = label === "" ? `The task ${id}` : `The task ${id} (${label})`;
  if (state === "failed") return `${what} failed: ${error?.message ?? "nobody knows why"}`;
  if (state === "cancelled") return `${what} was cancelled.`;
  return result === null ? `${what} is done.` : `${what} is done. Its result:\n${textOfResult(result)}`;
}

function textOfResult(result: Json): string {
  return typeof result === "string" ? result : JSON.stringify(result);
}

/** A task goes on under an id that something else was asked for with. */
export function taskConflict(sessionId: string, taskId: string): TroupeError {
  const message = `Session ${sessionId} has a task ${JSON.stringify(taskId)} that goes on and was asked for otherwise.`;
  return new TroupeError("task_key_conflict", message, { details: { sessionId, taskId } });
}

export function taskUnknown(taskId: string): TroupeError {
  return new TroupeError("task_unknown", `There is no task ${JSON.stringify(taskId)} here.`, { details: { taskId } });
}
