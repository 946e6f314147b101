import { invalidSchedule } from "../refusals.js";
import type { InputItem } from "../turn/index.js";

/** When a schedule runs: at the times of a cron expression, once, or again and again after so long. */
export type ScheduleTiming =
  | { readonly cron: string; readonly timeZone: string }
  | { readonly at: number }
  | { readonly everyMs: number };

/** The session a run's input goes to: always the same one, or a new one for each run. */
export type ScheduleTarget =
  | { readonly session: string }
  | {
      readonly newSession: {
        /** The new session's id is this, a slash and the number of the run. */
        readonly prefix: string;
        readonly tenant?: string;
        readonly metadata?: Readonly<Record<string, string>>;
        readonly agent?: string;
      };
    };

/** A schedule as it was asked for, checked and with its defaults. */
export interface ScheduleSpec {
  readonly timing: ScheduleTiming;
  readonly target: ScheduleTarget;
  readonly input: string | { readonly items: readonly InputItem[] };
  /** A run that is late because nothing ran at its time: made once, or left out. */
  readonly misfire: "once" | "skip";
  /** A run that is due while the run before it has not ended: left out, made behind it, or made in its place. */
  readonly overlap: "skip" | "queue" | "cancel";
  /** Each run is up to this much later, by chance. */
  readonly jitterMs: number;
  readonly maxRuns: number | null;
  /** No run later than this. */
  readonly until: number | null;
  /** Removed with its last run; otherwise it is kept, so that it does not begin anew when it is asked for again. */
  readonly transient: boolean;
}

export type ScheduleState =
  /** It has a next run. */
  | "active"
  | "paused"
  /** It has run as often and as long as it was to. */
  | "ended"
  /** It cannot run any more: `last.error` says why. */
  | "failed";

/** What came of a run. */
export interface ScheduleRun {
  /** When it was due, without its jitter. */
  readonly due: number;
  readonly at: number;
  /** `missed`: nothing ran at its time. `skipped`: the run before it had not ended. */
  readonly outcome: "ran" | "missed" | "skipped" | "failed";
  readonly sessionId?: string;
  readonly error?: { readonly code: string; readonly message: string };
}

/** A schedule as it is stored. */
export interface StoredSchedule {
  readonly spec: ScheduleSpec;
  readonly state: ScheduleState;
  /** When it was asked for: what `everyMs` counts from. */
  readonly since: number;
  /** When it runs next, without its jitter; null when it has no next run. */
  readonly next: number | null;
  /** When it is looked at next: `next` and its jitter. */
  readonly wake: number | null;
  /** Runs made, the refused ones too. */
  readonly runs: number;
  readonly last: ScheduleRun | null;
}

/** The first time after this one that a cron expression names; null: there is none. */
export type CronClock = (cron: string, timeZone: string, after: number) => number | null;

/** What planning needs of time and chance. */
export interface ScheduleClock {
  readonly now: number;
  /** From 0 up to, but not including, 1. */
  readonly chance: number;
  readonly cron: CronClock;
}

/** How late a run may be and still be on time: what a busy process needs to get to it. */
export const SCHEDULE_GRACE_MS = 60_000;

/**
 * A schedule that begins now.
 *
 * @example
 * const stored = beginSchedule(spec, { now, chance: clock.random(), cron });
 */
export function beginSchedule(spec: ScheduleSpec, clock: ScheduleClock): StoredSchedule {
  const { timing } = spec;
  const next = "at" in timing ? timing.at : timeAfter(timing, { since: clock.now, after: clock.now, cron: clock.cron });
  if (next === null) throw invalidSchedule(`${describeTiming(timing)} never comes`);
  if (spec.until !== null && next > spec.until)
    throw invalidSchedule(`its first run, at ${new Date(next).toISOString()}, is behind its until`);
  return { spec, state: "active", since: clock.now, next, wake: withJitter(next, spec, clock), runs: 0, last: null };
}

/** What is to be done with a schedule that is looked at. */
export type DueSchedule =
  /** Its time has not come. */
  | { readonly kind: "wait" }
  /** `ran`, `skipped`: the schedule behind the run, as it came out. */
  | {
      readonly kind: "run";
      readonly due: number;
      /** The run's number, from 1. */
      readonly run: number;
      readonly after: (outcome: Omit<ScheduleRun, "due" | "at">) => StoredSchedule;
    }
  /** Its run is too late and is left out. */
  | { readonly kind: "missed"; readonly due: number; readonly after: StoredSchedule };

/**
 * What a schedule is to do now. Runs that were missed while nothing ran are one run, or with `misfire: "skip"` none: the
 * next one is the first behind now.
 */
export function dueSchedule(stored: StoredSchedule, clock: ScheduleClock): DueSchedule {
  const { spec, state, next, wake } = stored;
  if (state !== "active" || next === null || wake === null || wake > clock.now) return { kind: "wait" };
  const late = clock.now - wake > SCHEDULE_GRACE_MS;
  if (late && spec.misfire === "skip") {
    const last: ScheduleRun = { due: next, at: clock.now, outcome: "missed" };
    return { kind: "missed", due: next, after: goingOn({ ...stored, last }, clock) };
  }
  return {
    kind: "run",
    due: next,
    run: stored.runs + 1,
    after: (outcome) => {
      const last: ScheduleRun = { due: next, at: clock.now, ...outcome };
      return goingOn({ ...stored, runs: stored.runs + 1, last }, clock);
    },
  };
}

/** A run beside its times: the next one stays where it is. */
export function extraRun(
  stored: StoredSchedule,
  { now }: Pick<ScheduleClock, "now">,
): { readonly run: number; readonly after: (outcome: Omit<ScheduleRun, "due" | "at">) => StoredSchedule } {
  const run = stored.runs + 1;
  const { maxRuns } = stored.spec;
  const over = maxRuns !== null && run >= maxRuns && { state: "ended" as const, next: null, wake: null };
  return { run, after: (outcome) => ({ ...stored, runs: run, last: { due: now, at: now, ...outcome }, ...over }) };
}

/** A paused schedule goes on with its first time behind now. */
export function resumeSchedule(stored: StoredSchedule, clock: ScheduleClock): StoredSchedule {
  return goingOn({ ...stored, state: "active" }, clock);
}

export function pauseSchedule(stored: StoredSchedule): StoredSchedule {
  return { ...stored, state: "paused", next: null, wake: null };
}

/** A run that can never be made ends its schedule. */
export function failSchedule(
  stored: StoredSchedule,
  { now, error }: { readonly now: number; readonly error: { readonly code: string; readonly message: string } },
): StoredSchedule {
  const last: ScheduleRun = { due: stored.next ?? now, at: now, outcome: "failed", error };
  return { ...stored, state: "failed", next: null, wake: null, last };
}

/** With its next run behind now, or at its end. */
function goingOn(stored: StoredSchedule, clock: ScheduleClock): StoredSchedule {
  const { spec, since, runs } = stored;
  const ended: StoredSchedule = { ...stored, state: "ended", next: null, wake: null };
  if (spec.maxRuns !== null && runs >= spec.maxRuns) return ended;
  // One that is to run once, and was paused before it had, still has its run.
  if ("at" in spec.timing && stored.last !== null) return ended;
  const after = Math.max(clock.now, stored.next ?? 0);
  const next = "at" in spec.timing ? spec.timing.at : timeAfter(spec.timing, { since, after, cron: clock.cron });
  if (next === null || (spec.until !== null && next > spec.until)) return ended;
  return { ...stored, next, wake: withJitter(next, spec, clock) };
}

function timeAfter(
  timing: Exclude<ScheduleTiming, { readonly at: number }>,
  { since, after, cron }: { readonly since: number; readonly after: number; readonly cron: CronClock },
): number | null {
  if ("cron" in timing) return cron(timing.cron, timing.timeZone, after);
  return since + (Math.floor((after - since) / timing.everyMs) + 1) * timing.everyMs;
}

function withJitter(next: number, { jitterMs }: ScheduleSpec, { chance }: ScheduleClock): number {
  return next + Math.floor(chance * jitterMs);
}

function describeTiming(timing: ScheduleTiming): string {
  if ("cron" in timing) return `a time of ${JSON.stringify(timing.cron)} in ${timing.timeZone}`;
  return "at" in timing ? `the time ${timing.at}` : `a time every ${timing.everyMs} ms`;
}
