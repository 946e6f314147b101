import { checkSessionId, isStorableName } from "../ids.js";
import { isRecord } from "../json.js";
import { type FieldsOf, unknownField } from "../known-names.js";
import { countsOr, invalidSchedule } from "../refusals.js";
import { checkMetadata, checkTenantName } from "../session/index.js";
import { checkTurnInput, type TurnInput } from "../turn/index.js";
import type { ScheduleSpec, ScheduleTarget, ScheduleTiming } from "./schedule.js";

/** A moment: a date, milliseconds since 1970, or a text such as `2027-01-31T09:00:00+01:00`. */
export type Moment = Date | number | string;

/**
 * When something is to be asked of a session, and what. Exactly one of `session` and `newSession`, and exactly one of
 * `cron`, `at` and `everyMs`.
 */
export interface ScheduleRequest {
  /** The session it is asked of; opened when it is not there yet. */
  readonly session?: string;
  /** A new session for each run. */
  readonly newSession?: Extract<ScheduleTarget, { readonly newSession: unknown }>["newSession"];
  /** A cron expression of five fields, or of six with seconds in front; needs the package `croner`. */
  readonly cron?: string;
  /** Where the times of `cron` are: `Europe/Oslo`. Default `UTC`. */
  readonly timeZone?: string;
  /** Once, then. In the past: now, unless `misfire` is `skip`. */
  readonly at?: Moment;
  /** Again and again, counted from when it was first asked for. */
  readonly everyMs?: number;
  /** What the session is asked. */
  readonly input: TurnInput;
  /** When nothing ran at its time: `once` (default) makes one run for all that were missed, `skip` none. */
  readonly misfire?: "once" | "skip";
  /**
   * When the turn of the run before has not ended: `skip` (default) leaves the run out, `queue` makes it behind that one,
   * `cancel` in its place.
   */
  readonly overlap?: "skip" | "queue" | "cancel";
  /** Each run is up to this much later, by chance, so that a thousand schedules of nine o'clock are not one moment. */
  readonly jitterMs?: number;
  /** How often it runs. Default: without end. */
  readonly maxRuns?: number;
  /** No run later than this. */
  readonly until?: Moment;
}

const FIELDS: FieldsOf<ScheduleRequest> = {
  session: true,
  newSession: true,
  cron: true,
  timeZone: true,
  at: true,
  everyMs: true,
  input: true,
  misfire: true,
  overlap: true,
  jitterMs: true,
  maxRuns: true,
  until: true,
};

const NEW_SESSION_FIELDS: FieldsOf<NonNullable<ScheduleRequest["newSession"]>> = {
  prefix: true,
  tenant: true,
  metadata: true,
  agent: true,
};

const MAX_KEY = 200;
const MAX_INPUT = 64 * 1024;
const MAX_CRON = 256;
/** A prefix leaves room for a slash and the number of a run. */
const MAX_PREFIX = 240;
/** The latest moment a date can be. */
const LATEST = 8.64e15;
/** More often than this is a loop, not a schedule. */
export const MIN_EVERY_MS = 1_000;
const MAX_SPAN_MS = 1_000 * 365 * 24 * 3_600_000;

/** Throws `invalid_schedule` unless it can name a schedule. */
export function checkScheduleKey(key: unknown): string {
  if (typeof key === "string" && key !== "" && key.length <= MAX_KEY && isStorableName(key)) return key;
  throw invalidSchedule(`its key is a text of 1 to ${MAX_KEY} characters without control characters`);
}

/** A request as it is stored. Throws `invalid_schedule` with what is wrong, in the words of the request. */
export function checkSchedule(request: unknown): ScheduleSpec {
  if (!isRecord(request)) throw invalidSchedule("it is an object such as { session, cron, input }");
  const unknown = unknownField(request, FIELDS, "a schedule");
  if (unknown !== undefined) throw invalidSchedule(unknown);
  const { misfire, overlap, jitterMs, maxRuns, until } = request;
  return {
    timing: timingOf(request),
    target: targetOf(request),
    input: inputOf(request.input),
    misfire: oneOf("misfire", misfire, ["once", "skip"]),
    overlap: oneOf("overlap", overlap, ["skip", "queue", "cancel"]),
    jitterMs: count("jitterMs", jitterMs, { least: 0, most: MAX_SPAN_MS, otherwise: 0 }),
    maxRuns: maxRuns === undefined ? null : count("maxRuns", maxRuns, { least: 1, most: Number.MAX_SAFE_INTEGER }),
    until: until === undefined ? null : moment("until", until),
    transient: false,
  };
}

function timingOf({ cron, timeZone, at, everyMs }: Record<string, unknown>): ScheduleTiming {
  const given = [cron, at, everyMs].filter((timing) => timing !== undefined).length;
  if (given !== 1) throw invalidSchedule(`it has one of cron, at and everyMs, not ${given === 0 ? "none" : given}`);
  if (timeZone !== undefined && cron === undefined)
    throw invalidSchedule("timeZone is for cron; at and everyMs are the same moment everywhere");
  if (at !== undefined) return { at: moment("at", at) };
  if (everyMs !== undefined) return { everyMs: count("everyMs", everyMs, { least: MIN_EVERY_MS, most: MAX_SPAN_MS }) };
  if (typeof cron !== "string" || cron.trim() === "" || cron.length > MAX_CRON)
    throw invalidSchedule('cron is an expression such as "0 9 * * 1-5"');
  return { cron: cron.trim(), timeZone: zoneOf(timeZone) };
}

function zoneOf(timeZone: unknown): string {
  if (timeZone === undefined) return "UTC";
  try {
    if (typeof timeZone === "string") return new Intl.DateTimeFormat("en", { timeZone }).resolvedOptions().timeZone;
  } catch {
    // Told below.
  }
  throw invalidSchedule(`timeZone is a name such as "Europe/Oslo", not ${JSON.stringify(timeZone) ?? typeof timeZone}`);
}

function targetOf({ session, newSession }: Record<string, unknown>): ScheduleTarget {
  if ((session === undefined) === (newSession === undefined))
    throw invalidSchedule("it has either session or newSession");
  if (session !== undefined) return { session: checkSessionId(session) };
  if (!isRecord(newSession)) throw invalidSchedule('newSession is an object such as { prefix: "digest" }');
  const unknown = unknownField(newSession, NEW_SESSION_FIELDS, "newSession");
  if (unknown !== undefined) throw invalidSchedule(unknown);
  const { prefix, tenant, metadata, agent } = newSession;
  checkSessionId(prefix);
  if ((prefix as string).length > MAX_PREFIX)
    throw invalidSchedule(`the prefix of newSession has up to ${MAX_PREFIX} characters`);
  if (agent !== undefined && (typeof agent !== "string" || agent === ""))
    throw invalidSchedule('the agent of newSession is a name such as "support@3"');
  return {
    newSession: {
      prefix: prefix as string,
      ...(tenant !== undefined && { tenant: checkTenantName(tenant) }),
      ...(metadata !== undefined && { metadata: checkMetadata(metadata) }),
      ...(agent !== undefined && { agent }),
    },
  };
}

function inputOf(given: unknown): ScheduleSpec["input"] {
  if (given === undefined) throw invalidSchedule("it has an input: what the session is asked");
  const input = checkTurnInput(given);
  const items = typeof input === "string" ? [{ type: "text", text: input } as const] : input.items;
  let length = 0;
  for (const item of items) {
    if (item.type === "text") length += item.text.length;
    else if (item.source.kind === "inline")
      throw invalidSchedule(
        "its input cannot bring a file's bytes; name a file by its url, or one the session has by its hash",
      );
  }
  if (length > MAX_INPUT) throw invalidSchedule(`its input has ${length} characters; ${MAX_INPUT} are allowed`);
  return input;
}

/** The first of those allowed is the default. */
function oneOf<T extends string>(name: string, given: unknown, allowed: readonly [T, ...T[]]): T {
  if (given === undefined) return allowed[0];
  const found = allowed.find((each) => each === given);
  if (found !== undefined) return found;
  throw invalidSchedule(`${name} is ${allowed.map((each) => `"${each}"`).join(" or ")}, not ${JSON.stringify(given)}`);
}

const count = countsOr(invalidSchedule);

/** A text without a zone would be another moment on another machine. */
const ISO_WITH_ZONE = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)$/;

function moment(name: string, given: unknown): number {
  const text = typeof given === "string" && ISO_WITH_ZONE.test(given);
  const time = given instanceof Date ? given.getTime() : text ? Date.parse(given as string) : given;
  if (typeof time === "number" && Number.isFinite(time) && time >= 0 && time <= LATEST) return Math.trunc(time);
  throw invalidSchedule(
    `${name} is a Date, milliseconds since 1970, or a text with its zone such as "2027-01-31T09:00:00+01:00", not ${String(given)}`,
  );
}
