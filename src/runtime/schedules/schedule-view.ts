import type { Row, RowChange, ScheduleRequest, ScheduleRun, ScheduleSpec, StoredSchedule } from "../../kernel/index.js";
import { SCHEDULES } from "../../store/index.js";
import { decode, encode } from "../../wire/index.js";

/** A schedule, as it stands. */
export interface Schedule extends Omit<StoredSchedule, "spec" | "wake" | "since"> {
  readonly key: string;
  /** Milliseconds since 1970. */
  readonly since: number;
  readonly session?: string;
  readonly newSession?: NonNullable<ScheduleRequest["newSession"]>;
  readonly cron?: string;
  readonly timeZone?: string;
  readonly at?: number;
  readonly everyMs?: number;
  readonly input: ScheduleSpec["input"];
  readonly misfire: ScheduleSpec["misfire"];
  readonly overlap: ScheduleSpec["overlap"];
  readonly jitterMs: number;
  readonly maxRuns: number | null;
  readonly until: number | null;
}

export interface ScheduleListRequest {
  /** Only keys that begin with this. */
  readonly prefix?: string;
  /** Behind this key: `next` of the page before. */
  readonly after?: string | null;
  /** Default and at most 1,000. */
  readonly limit?: number;
}

export interface SchedulePage {
  readonly schedules: readonly Schedule[];
  /** Null: this was the last page. */
  readonly next: string | null;
}

/**
 * What is asked of sessions at certain times, kept in the store: `troupe.schedules`.
 *
 * @example
 * await troupe.schedules.put("digest", {
 *   session: "chat-42",
 *   cron: "0 9 * * 1-5",
 *   timeZone: "Europe/Oslo",
 *   input: "What is new today?",
 * });
 */
export interface TroupeSchedules {
  /**
   * Makes a schedule. The same key with the same request is the schedule that is there, as it stands; with another one it
   * begins anew. So it can be asked for at every start.
   */
  put(key: string, request: ScheduleRequest): Promise<Schedule>;
  /** Undefined: there is none. */
  get(key: string): Promise<Schedule | undefined>;
  /** In the order of their keys, page by page. */
  list(request?: ScheduleListRequest): Promise<SchedulePage>;
  /** No run until `resume`. What is running is left alone. */
  pause(key: string): Promise<Schedule>;
  /** It goes on with its first time behind now. */
  resume(key: string): Promise<Schedule>;
  /** A run beside its times, also of a schedule that is paused or has ended. */
  runNow(key: string): Promise<ScheduleRun>;
  /** False: there was none. */
  remove(key: string): Promise<boolean>;
}

/** The row of a schedule; none for one that is gone behind its run. `before`: what is there, and must be when it is written. */
export function changeOf(key: string, before: Row | undefined, stored: StoredSchedule): RowChange {
  const gone = stored.spec.transient && stored.next === null;
  return {
    table: SCHEDULES,
    key,
    value: gone ? null : encode(stored),
    expectedVersion: before?.version ?? 0,
    ...(!gone && stored.wake !== null && { order: { at: stored.wake } }),
  };
}

export function readSchedule({ value }: Row): StoredSchedule {
  return decode<StoredSchedule>(value);
}

export function viewOf(key: string, { spec, state, since, next, runs, last }: StoredSchedule): Schedule {
  const { timing, target, input, misfire, overlap, jitterMs, maxRuns, until } = spec;
  return {
    key,
    state,
    next,
    runs,
    last,
    since,
    ...target,
    ...timing,
    input,
    misfire,
    overlap,
    jitterMs,
    maxRuns,
    until,
  };
}
