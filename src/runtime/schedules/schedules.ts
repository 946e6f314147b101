import { type Clock, deferred, ignore, Serial, type Timer } from "../../async/index.js";
import {
  admitInput,
  asTroupeError,
  beginSchedule,
  type CronClock,
  checkSchedule,
  checkScheduleKey,
  dueSchedule,
  extraRun,
  failSchedule,
  invalidOptions,
  type Json,
  pauseSchedule,
  type Row,
  resumeSchedule,
  type ScheduleClock,
  type ScheduleRequest,
  type ScheduleRun,
  type ScheduleSpec,
  type StoredSchedule,
  sameJson,
  TroupeError,
} from "../../kernel/index.js";
import type { AnswerOf, ArgumentOf, OpeningOptions } from "../../session/index.js";
import { SCHEDULES } from "../../store/index.js";
import { eventError } from "../../trace/index.js";
import { checkCallOptions } from "../options/index.js";
import type { Runtime } from "../places/index.js";
import { loadCron } from "./cron.js";
import {
  changeOf,
  readSchedule,
  type Schedule,
  type ScheduleListRequest,
  type SchedulePage,
  type TroupeSchedules,
  viewOf,
} from "./schedule-view.js";
import { SideBySide } from "./side-by-side.js";

/** What schedules need of a runtime. */
export interface SchedulesRuntime {
  readonly options: Pick<Runtime["options"], "clock"> & {
    readonly worker: Pick<Runtime["options"]["worker"], "attachments">;
  };
  readonly store: Pick<Runtime["store"], "ask">;
  readonly events: Runtime["events"];
  ask(method: "deliverInput", delivery: ArgumentOf<"deliverInput">): Promise<AnswerOf<"deliverInput">>;
}

interface SchedulesParts {
  readonly runtime: SchedulesRuntime;
  /** Makes a call about a session, opened with these options when it is not there. */
  readonly open: (sessionId: string, opening: OpeningOptions) => Promise<unknown>;
  /** Throws `agent_unknown` when no new session could have this agent. */
  readonly checkAgent: (name: string) => void;
}

/** Schedules read from the store at once. Runs of one page begin together, so that one sync writes them all. */
const PAGE = 256;
/** Runs made at once: while those of one page are written, the sessions of the next are opened. */
const AT_ONCE = 4 * PAGE;
const MAX_LISTED = 1_000;
/** A timer is looked at again after this long, for clocks that are put forward and machines that sleep. */
const LONGEST_WAIT_MS = 600_000;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 300_000;
/** Asking again would come to the same. */
const FINAL: readonly string[] = ["session_deleted", "tenant_mismatch", "invalid_turn_input", "invalid_session_id"];
/** The runtime ends: what is due is due at the next start. */
const ENDING: readonly string[] = ["closed", "store_lost"];

/**
 * The schedules of a store. What is due is read from the store in the order of time, so that a schedule costs no memory;
 * one timer waits for the earliest, and there is none when there is nothing to wait for.
 */
export class Schedules implements TroupeSchedules {
  readonly #parts: SchedulesParts;
  readonly #clock: Clock;
  #timer: Timer | undefined;
  /** When the timer is to look; undefined: there is nothing to look for. */
  #wakeAt: number | undefined;
  /** The look under way. */
  #looking: Promise<void> | undefined;
  #closed = false;
  /** One at a time for each key, so that a change of the host's and a run do not meet. */
  readonly #turns = new Map<string, Serial>();
  /** Runs that failed and are tried again. */
  readonly #failing = new Map<string, { readonly at: number; readonly pauseMs: number }>();
  #cron: Promise<CronClock> | undefined;

  constructor(parts: SchedulesParts) {
    this.#parts = parts;
    this.#clock = parts.runtime.options.clock;
  }

  /** `first`: when the first one that is stored is due. */
  start(first: number | null): void {
    if (first !== null) this.#wakeBy(first);
  }

  async put(key: string, request: ScheduleRequest): Promise<Schedule> {
    checkScheduleKey(key);
    const spec = checkSchedule(request);
    // Told now and not at nine in the morning.
    admitInput(spec.input, this.#parts.runtime.options.worker.attachments);
    if ("newSession" in spec.target && spec.target.newSession.agent !== undefined)
      this.#parts.checkAgent(spec.target.newSession.agent);
    return this.#put(key, spec);
  }

  /** Once, then gone: what a session asks for itself. */
  async putTransient(key: string, request: ScheduleRequest): Promise<Schedule> {
    checkScheduleKey(key);
    return this.#put(key, { ...checkSchedule(request), transient: true });
  }

  #put(key: string, spec: ScheduleSpec): Promise<Schedule> {
    return this.alone(key, async () => {
      const row = await this.#row(key);
      const stored = row && readSchedule(row);
      if (stored !== undefined && sameJson(stored.spec as unknown as Json, spec as unknown as Json))
        return viewOf(key, stored);
      this.#failing.delete(key);
      return this.#write(key, row, beginSchedule(spec, await this.#now(spec)));
    });
  }

  async get(key: string): Promise<Schedule | undefined> {
    const row = await this.#row(checkScheduleKey(key));
    return row && viewOf(key, readSchedule(row));
  }

  async list(request: ScheduleListRequest = {}): Promise<SchedulePage> {
    checkCallOptions(request, { prefix: true, after: true, limit: true }, "schedules.list");
    const { prefix, after, limit = MAX_LISTED } = request;
    if (!Number.isSafeInteger(limit) || limit < 1 || limit > MAX_LISTED)
      throw invalidOptions(`limit is a whole number from 1 to ${MAX_LISTED}, not ${String(limit)}`);
    const rows = await this.#parts.runtime.store.ask("rows", {
      table: SCHEDULES,
      limit,
      ...(prefix !== undefined && { prefix: checkScheduleKey(prefix) }),
      ...(after != null && { after: checkScheduleKey(after) }),
    });
    const next = rows.length === limit ? (rows.at(-1) as Row).key : null;
    return { schedules: rows.map((row) => viewOf(row.key, readSchedule(row))), next };
  }

  pause(key: string): Promise<Schedule> {
    return this.#change(key, (stored) => (stored.state === "active" ? pauseSchedule(stored) : stored));
  }

  resume(key: string): Promise<Schedule> {
    return this.#change(key, async (stored) =>
      stored.state === "paused" ? resumeSchedule(stored, await this.#now(stored.spec)) : stored,
    );
  }

  async runNow(key: string): Promise<ScheduleRun> {
    checkScheduleKey(key);
    return this.alone(key, async () => {
      const row = await this.#known(key);
      const stored = readSchedule(row);
      const { run, after } = extraRun(stored, { now: this.#clock.wallNow() });
      const done = await this.#ask(row, stored, { run, after });
      return done.last as ScheduleRun;
    });
  }

  async remove(key: string): Promise<boolean> {
    checkScheduleKey(key);
    return this.alone(key, async () => {
      const row = await this.#row(key);
      this.#failing.delete(key);
      if (row === undefined) return false;
      await this.#parts.runtime.store.ask("changeRows", { changes: [{ table: SCHEDULES, key, value: null }] });
      return true;
    });
  }

  /** No look begins any more; resolves when the one under way has ended. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#timer?.cancel();
    this.#timer = undefined;
    await this.#looking;
  }

  async #change(
    key: string,
    change: (stored: StoredSchedule) => StoredSchedule | Promise<StoredSchedule>,
  ): Promise<Schedule> {
    checkScheduleKey(key);
    return this.alone(key, async () => {
      const row = await this.#known(key);
      const stored = readSchedule(row);
      const changed = await change(stored);
      return changed === stored ? viewOf(key, stored) : this.#write(key, row, changed);
    });
  }

  /** `before`: what is there by now, and must be when this is written. */
  async #write(key: string, before: Row | undefined, stored: StoredSchedule): Promise<Schedule> {
    await this.#parts.runtime.store.ask("changeRows", { changes: [changeOf(key, before, stored)] });
    if (stored.wake !== null) this.#wakeBy(stored.wake);
    return viewOf(key, stored);
  }

  #row(key: string): Promise<Row | undefined> {
    return this.#parts.runtime.store.ask("row", { table: SCHEDULES, key });
  }

  async #known(key: string): Promise<Row> {
    const row = await this.#row(key);
    if (row !== undefined) return row;
    throw new TroupeError(
      "schedule_unknown",
      `There is no schedule ${JSON.stringify(key)}. troupe.schedules.list() says which there are.`,
      { details: { key } },
    );
  }

  /** Runs a task behind all earlier ones of the same key. */
  async alone<T>(key: string, task: () => Promise<T>): Promise<T> {
    const turns = this.#turns.get(key) ?? new Serial();
    this.#turns.set(key, turns);
    try {
      return await turns.run(task);
    } finally {
      if (turns.size === 0) this.#turns.delete(key);
    }
  }

  async #now({ timing }: ScheduleSpec): Promise<ScheduleClock> {
    const cron = "cron" in timing ? await this.#cronClock() : never;
    return { now: this.#clock.wallNow(), chance: this.#clock.random(), cron };
  }

  #cronClock(): Promise<CronClock> {
    this.#cron ??= loadCron().catch((error: unknown) => {
      // It may be installed by the next time.
      this.#cron = undefined;
      throw error;
    });
    return this.#cron;
  }

  /** Looks at this time, or before. */
  #wakeBy(at: number): void {
    if (this.#closed || (this.#wakeAt !== undefined && this.#wakeAt <= at)) return;
    this.#wakeAt = at;
    // The look under way sets the timer when it has ended.
    if (this.#looking === undefined) this.#setTimer();
  }

  #setTimer(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#closed || this.#wakeAt === undefined) return;
    const waitMs = Math.min(Math.max(this.#wakeAt - this.#clock.wallNow(), 0), LONGEST_WAIT_MS);
    this.#timer = this.#clock.timeout(waitMs, () => {
      this.#timer = undefined;
      const { promise, resolve } = deferred();
      this.#looking = promise;
      void this.#look().then(() => {
        this.#looking = undefined;
        this.#setTimer();
        resolve();
      });
    });
  }

  /** Makes every run that is due, and finds out when to look again. Never rejects. */
  async #look(): Promise<void> {
    this.#wakeAt = undefined;
    try {
      const from = await this.#runDue();
      if (from === undefined) return;
      const { store } = this.#parts.runtime;
      // From where the look ended, and not from now: what became due meanwhile is the next one.
      const [next] = await store.ask("rowsInOrder", { table: SCHEDULES, from, limit: 1 });
      if (next?.order !== undefined) this.#wakeBy(next.order.at);
      for (const { at } of this.#failing.values()) this.#wakeBy(at);
    } catch (error) {
      if (this.#closed || ENDING.includes(asTroupeError(error, "store_write_failed").code)) return;
      this.#wakeBy(this.#clock.wallNow() + FIRST_PAUSE_MS);
    }
  }

  /** Makes what is due, and says up to which time, exclusive; undefined: the runtime closes. */
  async #runDue(): Promise<number | undefined> {
    const begun = this.#clock.wallNow();
    const seen = new Set<string>();
    const runs = new SideBySide(AT_ONCE);
    for (let after: Row | undefined; !this.#closed; ) {
      const now = this.#clock.wallNow();
      const rows = await this.#parts.runtime.store.ask("rowsInOrder", {
        table: SCHEDULES,
        until: now + 1,
        limit: PAGE,
        ...(after !== undefined && { after }),
      });
      const due = rows.filter(({ key }) => (this.#failing.get(key)?.at ?? 0) <= now);
      await runs.room(due.length);
      for (const row of due) {
        seen.add(row.key);
        runs.begin(() => this.alone(row.key, () => this.#runRow(row)));
      }
      if (rows.length < PAGE) {
        await runs.ended();
        // What failed and is not due any more, because its run was made after all, is not to be looked for again.
        for (const [key, { at }] of this.#failing) if (at <= begun && !seen.has(key)) this.#failing.delete(key);
        return now + 1;
      }
      after = rows.at(-1);
    }
    await runs.ended();
    return undefined;
  }

  /** Makes the run a row is due for. One that fails is told, and tried again later. */
  async #runRow(row: Row): Promise<void> {
    if (this.#closed) return;
    const { key } = row;
    const stored = readSchedule(row);
    try {
      const due = dueSchedule(stored, await this.#now(stored.spec));
      if (due.kind === "missed") {
        await this.#parts.runtime.store.ask("changeRows", { changes: [changeOf(key, row, due.after)] });
        this.#parts.runtime.events?.emit({ type: "schedule_missed", schedule: key, due: due.due });
      } else if (due.kind === "run") await this.#ask(row, stored, due);
      this.#failing.delete(key);
    } catch (error) {
      await this.#failed(row, stored, asTroupeError(error, "turn_failed"));
    }
  }

  async #failed(row: Row, stored: StoredSchedule, error: TroupeError): Promise<void> {
    const { key } = row;
    // Somebody changed it in between: the next look sees what it is now.
    if (error.code === "row_conflict" || ENDING.includes(error.code)) return;
    const final = FINAL.includes(error.code);
    const failedBefore = this.#failing.get(key);
    this.#failing.delete(key);
    this.#parts.runtime.events?.emit({ type: "schedule_failed", schedule: key, final, error: eventError(error) });
    const now = this.#clock.wallNow();
    if (final) {
      const { code, message } = error;
      const change = changeOf(key, row, failSchedule(stored, { now, error: { code, message } }));
      await this.#parts.runtime.store.ask("changeRows", { changes: [change] }).catch(ignore);
      return;
    }
    const pauseMs = Math.min((failedBefore?.pauseMs ?? FIRST_PAUSE_MS / 2) * 2, LONGEST_PAUSE_MS);
    this.#failing.set(key, { at: now + pauseMs, pauseMs });
  }

  /** Has the session take the run's input, in one write with the schedule's row; gives the schedule behind it. */
  async #ask(
    row: Row,
    stored: StoredSchedule,
    {
      run,
      after,
    }: { readonly run: number; readonly after: (outcome: Omit<ScheduleRun, "due" | "at">) => StoredSchedule },
  ): Promise<StoredSchedule> {
    const { runtime, open } = this.#parts;
    const { target, input, overlap } = stored.spec;
    const fresh = "newSession" in target ? target.newSession : undefined;
    const sessionId = "session" in target ? target.session : `${target.newSession.prefix}/${run}`;
    if (fresh !== undefined) {
      const { prefix: _, ...opening } = fresh;
      await open(sessionId, opening);
    }
    const { text, items } = admitInput(input, runtime.options.worker.attachments);
    const ran = after({ outcome: "ran", sessionId });
    const skipped = after({ outcome: "skipped", sessionId });
    const done = await runtime
      .ask("deliverInput", {
        sessionId,
        source: `schedule:${row.key}`,
        nth: run,
        text,
        items,
        replaces: overlap === "cancel",
        rows: {
          taken: changeOf(row.key, row, ran),
          ...(overlap === "skip" && { skipped: changeOf(row.key, row, skipped) }),
        },
      })
      .then(
        (outcome) => (outcome === "taken" ? ran : skipped),
        async (error: unknown) => {
          if (!isRefused(error)) throw error;
          const { code, message } = error;
          const refused = after({ outcome: "failed", sessionId, error: { code, message } });
          await runtime.store.ask("changeRows", { changes: [changeOf(row.key, row, refused)] });
          runtime.events?.emit({ type: "schedule_failed", schedule: row.key, final: false, error: eventError(error) });
          return refused;
        },
      );
    if (done.wake !== null) this.#wakeBy(done.wake);
    return done;
  }
}

/** A plugin's hook does not let the run's input in: that run has come to nothing, and the next may be let in. */
function isRefused(error: unknown): error is TroupeError {
  return error instanceof TroupeError && error.code === "input_refused";
}

const never: CronClock = () => null;
