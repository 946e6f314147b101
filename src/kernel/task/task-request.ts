import { isStorableName } from "../ids.js";
import { isRecord, type Json } from "../json.js";
import { type FieldsOf, unknownField } from "../known-names.js";
import { invalidTask } from "../refusals.js";
import {
  MAX_STEPS,
  type StoredStep,
  type TaskDelivery,
  type TaskEnd,
  type TaskKind,
  type TaskSpec,
  type TaskVisibility,
} from "./task.js";

/** What every task can be asked for with. */
interface TaskWords {
  /** What it is about, for people and for the model. */
  readonly label?: string;
  /** The caller's own name for it among its plugin's tasks of the session: asked for twice, it is one. */
  readonly key?: string;
  /** How the session hears of its end. Default `none`. */
  readonly deliver?: TaskDelivery;
  /** Default `session`. */
  readonly visibility?: TaskVisibility;
}

/** A job of the calling plugin that is to run beside the session's turns. */
export interface TaskRequest extends TaskWords {
  /** A name in the plugin's `jobs`. */
  readonly job: string;
  /** What the job's input schema describes. */
  readonly input?: Json;
  /** How long it may take from now, sleep and restarts included. Default: as long as it takes. */
  readonly deadlineMs?: number;
}

/** Work that lives elsewhere and is written down here. */
export interface TaskRegistration extends TaskWords {
  /** Default `background`. */
  readonly kind?: Extract<TaskKind, "background" | "monitor" | "subagent">;
  /** Default: made of the key, or a new one. */
  readonly id?: string;
  /** The job of the calling plugin that is run, with `{ taskId, label, key }`, when somebody cancels the task. */
  readonly onCancel?: string;
}

const WORDS: FieldsOf<TaskWords> = { label: true, key: true, deliver: true, visibility: true };
const REQUEST: FieldsOf<TaskRequest> = { ...WORDS, job: true, input: true, deadlineMs: true };
const REGISTRATION: FieldsOf<TaskRegistration> = { ...WORDS, kind: true, id: true, onCancel: true };

const MAX_NAME = 200;
/** Of an input, a result or a step's outcome, in characters as JSON. */
export const MAX_TASK_VALUE = 256 * 1024;
export const MAX_PROGRESS = 4 * 1024;
const MAX_DEADLINE_MS = 1_000 * 365 * 24 * 3_600_000;
const REGISTERED: readonly TaskKind[] = ["background", "monitor", "subagent"];
const ID = /^[^#\s]+$/;

export function checkTaskId(id: unknown): string {
  if (typeof id === "string" && id.length <= MAX_NAME && ID.test(id) && isStorableName(id)) return id;
  throw invalidTask(`a task's id is a text of 1 to ${MAX_NAME} characters without spaces and #`);
}

export function checkTaskIds(ids: unknown): readonly string[] {
  if (Array.isArray(ids) && ids.length <= 1_000) return ids.map(checkTaskId);
  throw invalidTask("tasks are named by a list of up to 1000 ids");
}

/** A request for a job, as it is stored. */
export function checkTaskRequest(
  request: unknown,
  { kind, owner }: { readonly kind: "hidden" | "managed"; readonly owner: string },
): TaskSpec {
  if (!isRecord(request)) throw invalidTask("it is an object such as { job, input, label, key }");
  const unknown = unknownField(request, REQUEST, "a task");
  if (unknown !== undefined) throw invalidTask(unknown);
  const { job, input = null, deadlineMs = null } = request;
  if (typeof job !== "string" || job === "") throw invalidTask('its job is a name in the plugin\'s "jobs"');
  if (deadlineMs !== null && !(Number.isSafeInteger(deadlineMs) && isBetween(deadlineMs as number, 1, MAX_DEADLINE_MS)))
    throw invalidTask("its deadlineMs is a whole number from 1");
  return {
    ...words(request),
    kind,
    owner,
    job: { plugin: owner, name: job },
    onCancel: null,
    input: checkTaskValue("its input", input),
    deadlineMs: deadlineMs as number | null,
  };
}

/** A registration, as it is stored, and the id it asks for. */
export function checkTaskRegistration(
  request: unknown,
  { owner }: { readonly owner: string | null },
): { readonly spec: TaskSpec; readonly id: string | undefined } {
  if (!isRecord(request)) throw invalidTask("it is an object such as { label, key, onCancel }");
  const unknown = unknownField(request, REGISTRATION, "a registered task");
  if (unknown !== undefined) throw invalidTask(unknown);
  const { kind = "background", id, onCancel = null } = request;
  if (onCancel !== null && (typeof onCancel !== "string" || onCancel === ""))
    throw invalidTask('its onCancel is a name in the plugin\'s "jobs"');
  const spec: TaskSpec = {
    ...words(request),
    kind: oneOf("kind", kind, REGISTERED),
    owner,
    job: null,
    onCancel: onCancel as string | null,
    input: null,
    deadlineMs: null,
  };
  return { spec, id: id === undefined ? undefined : checkTaskId(id) };
}

/** The id of a task that has a key; two plugins may use the same one. */
export function taskIdOf(owner: string | null, key: string): string {
  return owner === null ? key : `${owner}:${key}`;
}

const ENDS: readonly TaskEnd[] = ["completed", "failed", "cancelled"];

/** What somebody says came of a task whose work lives elsewhere. */
export interface TaskCompletion {
  readonly state: TaskEnd;
  readonly result?: Json;
  readonly error?: { readonly code?: string; readonly message: string };
}

/** Also the seed's form, the state alone. */
export function checkCompletion(given: unknown): TaskCompletion {
  if (typeof given === "string") return { state: oneOf("state", given, ENDS) };
  if (!isRecord(given)) throw invalidTask("its end is a state, or { state, result, error }");
  const unknown = unknownField(given, { state: true, result: true, error: true }, "a task's end");
  if (unknown !== undefined) throw invalidTask(unknown);
  const state = oneOf("state", given.state, ENDS);
  const result = checkTaskValue("its result", given.result ?? null);
  const { error } = given;
  if (error === undefined) return { state, result };
  if (!isRecord(error) || typeof error.message !== "string")
    throw invalidTask("its error is { message } or { code, message }");
  const { code, message } = error;
  return { state, result, error: { message, ...(typeof code === "string" && { code }) } };
}

export function checkLiveState(state: unknown): "running" | "idle" {
  return oneOf("live state", state, ["running", "idle"] as const);
}

export function checkDelivery(deliver: unknown): TaskDelivery {
  return oneOf("deliver", deliver, DELIVERIES);
}

const DELIVERIES: readonly TaskDelivery[] = ["none", "turn", "steer"];

/** A value that can be stored and told, as JSON says it. */
export function checkTaskValue(what: string, value: unknown, limit = MAX_TASK_VALUE): Json {
  let text: string | undefined;
  try {
    text = JSON.stringify(value ?? null);
  } catch {
    text = undefined;
  }
  if (text === undefined) throw invalidTask(`${what} is not plain JSON data`);
  if (text.length > limit) throw invalidTask(`${what} has ${text.length} characters as JSON; ${limit} are allowed`);
  return JSON.parse(text) as Json;
}

/** What a run says of a step it has finished. */
export function checkStep(nth: unknown, given: unknown): readonly [nth: number, step: StoredStep] {
  if (!Number.isSafeInteger(nth) || !isBetween(nth as number, 1, MAX_STEPS))
    throw invalidTask(`it has up to ${MAX_STEPS} steps`);
  const { name, outcome } = isRecord(given) ? given : {};
  if (typeof name !== "string" || name === "" || name.length > MAX_NAME || !isRecord(outcome))
    throw invalidTask(`a step has a name of up to ${MAX_NAME} characters and an outcome`);
  const { kind, value, code, message } = outcome;
  if (kind === "value")
    return [
      nth as number,
      { name, outcome: { kind, value: checkTaskValue(`the outcome of its step ${name}`, value) } },
    ];
  if (kind === "error" && typeof code === "string" && typeof message === "string")
    return [nth as number, { name, outcome: { kind, code, message: message.slice(0, MAX_TASK_VALUE) } }];
  throw invalidTask("the outcome of a step is a value or an error");
}

/** The time a run wants to sleep until. */
export function checkWake(until: unknown): number {
  if (Number.isSafeInteger(until) && isBetween(until as number, Number.MIN_SAFE_INTEGER, LAST_TIME))
    return Math.max(until as number, 0);
  throw invalidTask("it sleeps until a date, or whole milliseconds since 1970");
}

/** Of the dates there are. */
const LAST_TIME = 8_640_000_000_000_000;

function words(request: Readonly<Record<string, unknown>>): Pick<TaskSpec, "label" | "key" | "deliver" | "visibility"> {
  const { label = "", key = null, deliver = "none", visibility = "session" } = request;
  if (typeof label !== "string" || label.length > MAX_NAME)
    throw invalidTask(`its label is a text of up to ${MAX_NAME} characters`);
  return {
    label,
    key: key === null ? null : checkTaskId(key),
    deliver: checkDelivery(deliver),
    visibility: oneOf("visibility", visibility, ["session", "descendants"] as const),
  };
}

function oneOf<T extends string>(what: string, value: unknown, known: readonly T[]): T {
  const found = known.find((each) => each === value);
  if (found !== undefined) return found;
  throw invalidTask(`its ${what} is one of ${known.join(", ")}, not ${JSON.stringify(value)}`);
}

function isBetween(value: number, least: number, most: number): boolean {
  return value >= least && value <= most;
}
