import { TroupeError } from "../errors.js";
import type { Json } from "../json.js";
import type { ProcessSpec } from "../process/index.js";
import { TASKS, type TaskCompletion } from "../task/index.js";
import type { RowName, RowOrder } from "../writes/index.js";

/** The table of what is watched for sessions. */
export const MONITORS = "monitors";

export const MONITOR_DELIVERIES = ["none", "turn", "steer"] as const;

export interface CommandSpec extends Pick<ProcessSpec, "argv" | "cwd" | "env"> {
  readonly kind: "command";
  readonly stream: "stdout" | "stderr" | "both";
  readonly onExit: "end" | "restart";
}

export interface FileSpec {
  readonly kind: "file";
  readonly path: string;
  readonly from: "end" | "start";
}

export interface ToolPollSpec {
  readonly kind: "tool";
  readonly name: string;
  readonly args: Json;
  readonly everyMs: number;
}

export type WatchSpec = CommandSpec | FileSpec | ToolPollSpec;

/** A monitor as it was asked for, checked and with its defaults. */
export interface MonitorSpec {
  readonly watch: WatchSpec;
  readonly label: string;
  readonly pattern: string | null;
  readonly ignoreCase: boolean;
  readonly debounceMs: number;
  readonly maxPerMinute: number;
  readonly until: {
    readonly lines: number | null;
    readonly pattern: string | null;
    readonly deadlineMs: number | null;
  };
  readonly deliver: (typeof MONITOR_DELIVERIES)[number];
}

/** Why a monitor has ended. */
export interface MonitorEnd {
  /**
   * `exit`: its command ended. `lines`, `pattern`, `deadline`: what `until` says. `stopped`: somebody stopped it.
   * `session_closed`: its session was closed. `failed`: see `error`.
   */
  readonly reason: "exit" | "lines" | "pattern" | "deadline" | "stopped" | "session_closed" | "failed";
  readonly exitCode?: number | null;
  readonly signal?: string | null;
  /** The last of what its command said on the stream that was not watched. */
  readonly stderr?: string;
  readonly error?: { readonly code: string; readonly message: string };
}

/** What a monitor has to tell. */
export interface MonitorUpdate {
  readonly monitorId: string;
  /** Its number among those of its monitor, from 1. A number that is missing was lost: see `dropped`. */
  readonly sequence: number;
  /** Milliseconds since 1970. */
  readonly at: number;
  /** The lines, or what the tool answered. */
  readonly text: string;
  readonly lines: number;
  /** Lines that matched and were lost before these: there were more than could be kept. */
  readonly dropped: number;
  /** It was started again since the update before, because its runtime or its thread ended, or its command did. */
  readonly restarted: boolean;
  /** Set with the last one. */
  readonly end?: MonitorEnd;
}

/** How far a file was read: which one it was, and its byte behind the last line. */
export interface FilePlace {
  readonly device: number;
  readonly file: number;
  readonly at: number;
}

/** What has come of a watch since it was asked last. */
export interface WatchNews {
  readonly lines: readonly string[];
  readonly dropped: number;
  readonly place: FilePlace | null;
  readonly restarted: boolean;
  readonly end: MonitorEnd | null;
}

/** A monitor as it is stored: a row of its session. */
export interface StoredMonitor {
  readonly id: string;
  /** Its plugin, which alone sees it. */
  readonly owner: string;
  readonly spec: MonitorSpec;
  readonly since: number;
  /** When `until` ends it. */
  readonly deadline: number | null;
  /** How often it was started. */
  readonly starts: number;
  /** Of its last update. */
  readonly sequence: number;
  /** Lines that were told, the lost ones too. */
  readonly told: number;
  readonly place: FilePlace | null;
  /** Of the tool's last answer. */
  readonly seen: number | null;
  readonly restarted: boolean;
  /** Updates nobody has taken. */
  readonly pending: readonly MonitorUpdate[];
  /** Who took some last, and what: asked again by the same, it is the same. */
  readonly taken: { readonly by: string; readonly updates: readonly MonitorUpdate[] } | null;
  readonly end: MonitorEnd | null;
}

/** A monitor as its plugin sees it. */
export interface MonitorStatus {
  readonly id: string;
  readonly label: string;
  readonly state: "running" | "ended";
  readonly since: number;
  /** How often it was started: more than once when its runtime or thread ended in between. */
  readonly starts: number;
  /** The number of its last update. */
  readonly sequence: number;
  /** Lines that were told, the lost ones too. */
  readonly told: number;
  /** Updates that wait to be taken. */
  readonly waiting: number;
  readonly end: MonitorEnd | null;
}

export interface MonitorSnapshot {
  /** Monitors of the plugin in the session that go on. */
  readonly activeCount: number;
  /** By id; of those that have ended the newest. */
  readonly monitors: readonly MonitorStatus[];
}

export interface MonitorUpdateBatch {
  readonly activeCount: number;
  /** In the order they came. */
  readonly updates: readonly MonitorUpdate[];
}

/** Updates that wait; of more, and of more text, the oldest are lost, which the next one says. */
const MAX_WAITING = 64;
const MAX_WAITING_CHARS = 64 * 1024;
/** Those that have ended and are still listed. */
export const MOST_ENDED = 16;
const MAX_STDERR = 1_000;

/** `before`: one of the same id that has ended. Its updates still wait, and numbers go on. */
export function beginMonitor({
  id,
  owner,
  spec,
  now,
  before,
}: Pick<StoredMonitor, "id" | "owner" | "spec"> & {
  readonly now: number;
  readonly before?: StoredMonitor | undefined;
}): StoredMonitor {
  const { deadlineMs } = spec.until;
  return {
    id,
    owner,
    spec,
    since: now,
    deadline: deadlineMs === null ? null : now + deadlineMs,
    starts: 1,
    sequence: before?.sequence ?? 0,
    told: 0,
    place: null,
    seen: null,
    restarted: false,
    pending: before?.pending ?? [],
    taken: before?.taken ?? null,
    end: null,
  };
}

/** It is started again; its next update says so. */
export function startedAgain(stored: StoredMonitor): StoredMonitor {
  return { ...stored, starts: stored.starts + 1, restarted: true };
}

/** With what has come of it. Nothing to tell makes no update, and nothing comes of one that has ended. */
export function withNews(stored: StoredMonitor, news: WatchNews, now: number): StoredMonitor {
  const { lines, dropped, place, end } = news;
  if (stored.end !== null) return stored;
  const restarted = stored.restarted || news.restarted;
  if (lines.length === 0 && dropped === 0 && end === null) return stored;
  const next = { ...stored, place: place ?? stored.place, end };
  const update: MonitorUpdate = {
    monitorId: stored.id,
    sequence: stored.sequence + 1,
    at: now,
    text: lines.join("\n"),
    lines: lines.length,
    dropped,
    restarted,
    ...(end !== null && { end }),
  };
  return {
    ...next,
    sequence: update.sequence,
    told: stored.told + lines.length + dropped,
    restarted: false,
    pending: bounded([...stored.pending, update]),
  };
}

function bounded(updates: readonly MonitorUpdate[]): readonly MonitorUpdate[] {
  let first = Math.max(0, updates.length - MAX_WAITING);
  let chars = 0;
  for (let n = updates.length - 1; n >= first; n--) {
    chars += (updates[n] as MonitorUpdate).text.length;
    if (chars > MAX_WAITING_CHARS && n < updates.length - 1) first = n + 1;
  }
  if (first === 0) return updates;
  const lost = updates.slice(0, first);
  const [next, ...others] = updates.slice(first) as [MonitorUpdate, ...MonitorUpdate[]];
  const dropped = lost.reduce((sum, update) => sum + update.lines + update.dropped, next.dropped);
  return [{ ...next, dropped, restarted: next.restarted || lost.some((update) => update.restarted) }, ...others];
}

/** Its updates are somebody's. `by`: who would ask again, where somebody would. */
export function takenFrom(stored: StoredMonitor, by: string | undefined): StoredMonitor {
  return { ...stored, pending: [], taken: by === undefined ? null : { by, updates: stored.pending } };
}

export function monitorStatus(stored: StoredMonitor): MonitorStatus {
  const { id, spec, since, starts, sequence, told, pending, end } = stored;
  const state = end === null ? "running" : "ended";
  return { id, label: spec.label, state, since, starts, sequence, told, waiting: pending.length, end };
}

/** A command's end; of the other stream what fits. */
export function exitOf(
  exitCode: number | null,
  signal: string | null,
  stderr: string,
): MonitorEnd & { readonly reason: "exit" } {
  const said = stderr.trimEnd().slice(-MAX_STDERR);
  return { reason: "exit", exitCode, signal, ...(said !== "" && { stderr: said }) };
}

/** The owners of monitors' places in the order of their table: what a starting runtime looks for, and the others. */
export const MONITOR_ORDER = { on: "on", ended: "ended" } as const;

export function monitorOrder(stored: StoredMonitor): RowOrder {
  const isOpen = stored.end === null || deliversItself(stored);
  return { owner: isOpen ? MONITOR_ORDER.on : MONITOR_ORDER.ended, at: stored.since };
}

/** Its session is to be told what waits. Of one that somebody ended it is not: that can be taken. */
export function deliversItself({ spec, pending, end }: StoredMonitor): boolean {
  return spec.deliver !== "none" && pending.length > 0 && end?.reason !== "stopped" && end?.reason !== "session_closed";
}

/** Two plugins may use the same id. */
export function monitorKey(owner: string, id: string): string {
  return `${owner}/${id}`;
}

const TASK = "monitor:";

/** The id of the task that a monitor is in its session's list. */
export function monitorTaskId(key: string): string {
  return TASK + key;
}

/** Which monitor a task is; undefined: none of ours. */
export function monitorOfTask(taskId: string): string | undefined {
  return taskId.startsWith(TASK) ? taskId.slice(TASK.length) : undefined;
}

/**
 * Is it the row of a monitor, or of the task it is? Those belong to the machine it was started on: no export carries them,
 * and none are imported, as they would run a stranger's command.
 */
export function isOfMonitor({ table, key }: Pick<RowName, "table" | "key">): boolean {
  return table === MONITORS || (table === TASKS && monitorOfTask(key) !== undefined);
}

/** How the task of a monitor ends. */
export function taskEndOf({ reason, exitCode, error }: MonitorEnd): Pick<TaskCompletion, "state" | "result" | "error"> {
  if (reason === "failed") return { state: "failed", ...(error !== undefined && { error }) };
  if (reason === "stopped" || reason === "session_closed") return { state: "cancelled" };
  return { state: "completed", result: { reason, ...(exitCode !== undefined && { exitCode }) } };
}

/** What the session reads of a monitor's updates. */
export function inputOfMonitor({ spec, pending, id }: StoredMonitor): string {
  return pending.map((update) => tellingOf(spec.label || id, update)).join("\n\n");
}

function tellingOf(label: string, { text, dropped, restarted, end }: MonitorUpdate): string {
  const notes = [
    ...(restarted ? ["it was started again in between"] : []),
    ...(dropped > 0 ? [`${dropped} lines before these were lost`] : []),
  ];
  const said =
    text === "" ? "" : `Monitor ${JSON.stringify(label)}${notes.length > 0 ? ` (${notes.join("; ")})` : ""}:\n${text}`;
  const over = end === undefined ? "" : `Monitor ${JSON.stringify(label)} has ended: ${reasonOf(end)}.`;
  return [said, over].filter((part) => part !== "").join("\n");
}

function reasonOf({ reason, exitCode, signal, stderr, error }: MonitorEnd): string {
  switch (reason) {
    case "exit": {
      const how = signal == null ? `its command exited with ${exitCode}` : `its command was ended by ${signal}`;
      return stderr === undefined ? how : `${how}, and said ${JSON.stringify(stderr)}`;
    }
    case "lines":
      return "it has told as many lines as it was to";
    case "pattern":
      return "the line it was to wait for has come";
    case "deadline":
      return "its time is over";
    case "stopped":
      return "it was stopped";
    case "session_closed":
      return "its session was closed";
    case "failed":
      return error?.message ?? "it failed";
  }
}

export function monitorUnknown(id: string): TroupeError {
  return new TroupeError("monitor_unknown", `There is no monitor ${JSON.stringify(id)} here.`, { details: { id } });
}
