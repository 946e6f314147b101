import { type Clock, deferred, ignore, sleep } from "../../async/index.js";
import {
  asTroupeError,
  cutLine,
  deliversItself,
  fingerprint,
  foreignError,
  inputOfMonitor,
  type MonitorEnd,
  monitorKey,
  type StoredMonitor,
  startedAgain,
  type ToolPollSpec,
  TroupeError,
  takenFrom,
  type WatchNews,
  withNews,
} from "../../kernel/index.js";
import { eventError } from "../../trace/index.js";
import type { Runtime } from "../places/index.js";
import { changeOf, isConflict, type MonitorRow, type MonitorRows, type StoreOf } from "./monitor-rows.js";
import type { ProcessWorker } from "./process-worker.js";

/** What monitors need of a runtime. */
export type MonitorsRuntime = StoreOf &
  Pick<Runtime, "ask" | "events"> & { readonly options: { readonly clock: Clock } };

export type MonitorsWorker = Pick<ProcessWorker, "ask" | "askIfThere">;

interface RunningParts {
  readonly runtime: MonitorsRuntime;
  readonly worker: MonitorsWorker;
  readonly rows: MonitorRows;
  /** Its end is stored. */
  readonly onEnd: (stored: StoredMonitor) => void;
  /** Throws when its plugin may not have it watched. Gives the paths it may read; null: all. */
  readonly check: (stored: StoredMonitor) => readonly string[] | null;
}

/** How long the thread is asked for what comes next; then it is asked again. */
const FOREVER_MS = 2 ** 31 - 1;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 30_000;
/** An input before it has not been dealt with: looked again after this, and then ever longer. */
const FIRST_LOOK_MS = 100;
const LONGEST_LOOK_MS = 5_000;
/** A tool that fails so often in a row is not run again. */
const MOST_FAILURES = 5;

/** The runtime ends: what is open goes on at its next start. */
const ENDING: readonly string[] = ["closed", "store_lost", "store_closed"];
/** The session will never have it. */
const FINAL: readonly string[] = ["session_deleted", "tenant_mismatch"];

/** A monitor while it goes on: what comes of it is stored, and delivered where that is wanted. */
export class RunningMonitor {
  readonly sessionId: string;
  readonly owner: string;
  readonly id: string;
  readonly #parts: RunningParts;
  readonly #clock: Clock;
  /** Resolves when it has ended, and its end is stored. Never rejects. */
  readonly done: Promise<void>;
  readonly #done = deferred<void>();
  /** Aborts when it is to end, or the runtime closes. */
  readonly #stop = new AbortController();
  #stopWith: MonitorEnd | undefined;
  #closed = false;
  /** Aborts when its session is to be told of nothing any more: that was closed, or the runtime is. */
  readonly #quiet = new AbortController();
  /** Of the watch that goes on. */
  #watchId = "";
  #delivering: Promise<void> | undefined;
  #failure: unknown;

  constructor(sessionId: string, { owner, id }: Pick<StoredMonitor, "owner" | "id">, parts: RunningParts) {
    this.sessionId = sessionId;
    this.owner = owner;
    this.id = id;
    this.#parts = parts;
    this.#clock = parts.runtime.options.clock;
    this.done = this.#done.promise;
  }

  /** Resolves when it goes on; rejects when it cannot be started. */
  async begin(stored: StoredMonitor): Promise<void> {
    try {
      await this.#watch(stored);
    } catch (error) {
      this.#done.resolve();
      throw error;
    }
    void this.#run();
  }

  /** The store had it: it is started again, and what it had to tell is told. With an `end` it ends in place of being started. */
  async takeUp(stored: StoredMonitor, end?: MonitorEnd): Promise<void> {
    this.#stopWith = end;
    this.#deliverSoon();
    if (stored.end !== null) return this.#done.resolve();
    void this.#run(true);
  }

  /** Resolves when nothing of it runs any more and its end is stored; rejects when that cannot be. */
  async stop(end: MonitorEnd): Promise<void> {
    this.#stopWith ??= end;
    this.#stop.abort();
    await this.#parts.worker.askIfThere("stopWatch", { id: this.#watchId, end: this.#stopWith });
    await this.done;
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Its session is closed: it ends, and wakes it no more. */
  leave(): Promise<void> {
    this.#quiet.abort();
    return this.stop({ reason: "session_closed" });
  }

  /** The runtime closes: it goes on with the next one. Resolves when nothing of it is on its way any more. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#quiet.abort();
    this.#stop.abort();
    await this.#delivering;
  }

  get #name() {
    return { sessionId: this.sessionId, owner: this.owner, id: this.id };
  }

  async #watch(stored: StoredMonitor): Promise<void> {
    const { worker, check } = this.#parts;
    const readable = check(stored);
    const { spec, told, deadline, place } = stored;
    const { pattern, ignoreCase, debounceMs, maxPerMinute, until } = spec;
    this.#watchId = this.#clock.uuid();
    const id = this.#watchId;
    const begun = await worker.ask("startWatch", {
      id,
      sessionId: this.sessionId,
      pluginId: this.owner,
      watch: spec.watch,
      terms: {
        pattern,
        ignoreCase,
        debounceMs,
        maxPerMinute,
        endPattern: until.pattern,
        linesLeft: until.lines === null ? null : Math.max(1, until.lines - told),
        endsInMs: deadline === null ? null : Math.max(0, deadline - this.#clock.wallNow()),
      },
      place,
      readable,
    });
    // What is added to a file while nothing runs is told later.
    if (begun !== null && place === null)
      await this.#parts.rows.change(this.#name, (now) => ({ ...now, place: begun }));
    // It was to end before the thread knew of it.
    if (this.#stopWith !== undefined) await worker.ask("stopWatch", { id, end: this.#stopWith });
    if (spec.watch.kind === "tool") void this.#poll(spec.watch, id, stored.seen);
  }

  async #run(again = false): Promise<void> {
    try {
      if (again && !(await this.#startAgain())) return;
      await this.#follow();
    } catch (error) {
      this.#failure = error;
    } finally {
      this.#stop.abort();
      this.#done.resolve();
    }
  }

  async #follow(): Promise<void> {
    for (;;) {
      const news = await this.#next();
      if (news === undefined || this.#closed) return;
      await this.#tell(news);
      if (news.end !== null) return;
    }
  }

  /** What comes of it next; undefined: nothing any more. */
  async #next(): Promise<WatchNews | undefined> {
    for (;;) {
      try {
        return await this.#parts.worker.ask("nextNews", { id: this.#watchId }, { deadlineMs: FOREVER_MS });
      } catch (thrown) {
        if (this.#isEnding(thrown)) return undefined;
        if (asTroupeError(thrown, "monitor_failed").code === "call_timeout") continue;
        // Its thread ended, and with it whatever was watched there.
        if (!(await this.#startAgain())) return undefined;
      }
    }
  }

  /** False: it has ended. */
  async #startAgain(): Promise<boolean> {
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2)) {
      try {
        if (this.#stopWith !== undefined) return await this.#endWith(this.#stopWith);
        const stored = await this.#parts.rows.change(this.#name, startedAgain);
        if (stored === undefined) return false;
        await this.#watch(stored);
        return true;
      } catch (thrown) {
        if (this.#isEnding(thrown)) return false;
        const { code, message, retryable } = asTroupeError(thrown, "monitor_failed");
        if (!retryable && code !== "worker_lost") return this.#endWith({ reason: "failed", error: { code, message } });
      }
      await sleep(this.#clock, pauseMs, { signal: this.#stop.signal }).catch(ignore);
    }
  }

  async #endWith(end: MonitorEnd): Promise<false> {
    await this.#tell({ lines: [], dropped: 0, place: null, restarted: false, end });
    return false;
  }

  /** Stores what has come. What cannot be stored now is, later; meanwhile more is gathered where it comes from. */
  async #tell(news: WatchNews): Promise<void> {
    let sequence: number | undefined;
    const plan = (stored: StoredMonitor): StoredMonitor => {
      // A write whose answer was lost, or somebody else's in between.
      sequence ??= stored.sequence;
      if (stored.sequence > sequence) return stored;
      const next = withNews(stored, news, this.#clock.wallNow());
      const last = news.lines.at(-1);
      const isAnswer = next !== stored && last !== undefined && stored.spec.watch.kind === "tool";
      return isAnswer ? { ...next, seen: fingerprint(last) } : next;
    };
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2)) {
      try {
        const stored = await this.#parts.rows.change(this.#name, plan);
        if (stored === undefined) return;
        if (news.end?.error !== undefined) this.#say(news.end.error, true);
        if (stored.end !== null) this.#parts.onEnd(stored);
        this.#deliverSoon();
        return;
      } catch (thrown) {
        const error = asTroupeError(thrown, "store_write_failed");
        const isFinal = FINAL.includes(error.code);
        if (this.#isEnding(error) || isFinal) return;
        this.#say(error, false);
        if (this.#stop.signal.aborted) throw error;
      }
      await sleep(this.#clock, pauseMs, { signal: this.#stop.signal }).catch(ignore);
    }
  }

  #deliverSoon(): void {
    if (this.#delivering !== undefined || this.#quiet.signal.aborted) return;
    this.#delivering = this.#deliver()
      .catch(ignore)
      .finally(() => {
        this.#delivering = undefined;
      });
  }

  /** Has the session take what waits, each in one write with the monitor's row. */
  async #deliver(): Promise<void> {
    const { runtime, rows } = this.#parts;
    const { signal } = this.#quiet;
    for (let pauseMs = FIRST_LOOK_MS; !signal.aborted; ) {
      const row = await rows.one(this.sessionId, this.owner, this.id);
      if (row === undefined || !deliversItself(row.stored)) return;
      const { stored } = row;
      const key = monitorKey(this.owner, this.id);
      const outcome = await runtime
        .ask("deliverInput", {
          sessionId: this.sessionId,
          source: `monitor:${key}`,
          nth: stored.sequence,
          text: inputOfMonitor(stored),
          items: undefined,
          replaces: false,
          steers: stored.spec.deliver === "steer",
          rows: { taken: changeOf(row, takenFrom(stored, undefined)), skipped: changeOf(row, stored) },
        })
        .catch((thrown: unknown) => this.#notDelivered(thrown, row));
      if (outcome === "never") return;
      if (outcome === "taken") pauseMs = FIRST_LOOK_MS;
      if (outcome === "taken" || outcome === "changed") continue;
      await sleep(this.#clock, pauseMs, { signal }).catch(ignore);
      pauseMs = Math.min(LONGEST_LOOK_MS, pauseMs * 2);
    }
  }

  async #notDelivered(thrown: unknown, row: MonitorRow): Promise<"changed" | "later" | "never"> {
    const error = asTroupeError(thrown, "turn_failed");
    if (this.#isEnding(error)) return "never";
    if (isConflict(error)) return "changed";
    if (error.code === "input_refused") {
      // The session's hooks do not want it: what it would have been told is passed over.
      this.#say(error, false);
      await this.#parts.rows.write([changeOf(row, takenFrom(row.stored, undefined))]);
      return "changed";
    }
    return this.#cannotTell(error);
  }

  #cannotTell(error: TroupeError): "later" | "never" {
    const isFinal = FINAL.includes(error.code);
    // One that goes on ends with it, and that is said then.
    if (!isFinal || this.#stop.signal.aborted) this.#say(error, isFinal);
    if (!isFinal) return "later";
    this.#quiet.abort();
    this.stop({ reason: "failed", error: { code: error.code, message: error.message } }).catch(ignore);
    return "never";
  }

  /** Runs the tool again and again; the thread is told what is something else than before. */
  async #poll({ name, args, everyMs }: ToolPollSpec, watchId: string, told: number | null): Promise<void> {
    const { runtime, worker } = this.#parts;
    const { signal } = this.#stop;
    let seen: number | undefined;
    let failures = 0;
    for (let nth = 1; !signal.aborted && watchId === this.#watchId; nth++) {
      try {
        const asked = { sessionId: this.sessionId, tool: name, args, callId: `monitor-${watchId}-${nth}` };
        const answer = await runtime.ask("runTool", asked, { signal });
        if (answer.status === "failed") {
          failures = answer.final ? MOST_FAILURES : failures + 1;
          if (failures >= MOST_FAILURES) {
            const message = `The tool ${name} was run for a monitor and failed: ${answer.message}`;
            const end: MonitorEnd = { reason: "failed", error: { code: "monitor_tool_failed", message } };
            return void (await worker.ask("stopWatch", { id: watchId, end }));
          }
        } else {
          failures = 0;
          const print = fingerprint(answer.text);
          const isTold = seen === undefined ? fingerprint(cutLine(answer.text)) === told : seen === print;
          seen = print;
          if (!isTold) await worker.ask("feedWatch", { id: watchId, line: answer.text });
        }
      } catch (thrown) {
        // The session's worker was lost, or the mailbox is full: the next time may be better. A thread that was lost is seen
        // by who waits for its news.
        const error = asTroupeError(thrown, "monitor_failed");
        if (this.#isEnding(error)) return;
        if (FINAL.includes(error.code)) return void this.#cannotTell(error);
      }
      await sleep(this.#clock, everyMs, { signal }).catch(ignore);
    }
  }

  #isEnding(thrown: unknown): boolean {
    return this.#closed || ENDING.includes(asTroupeError(thrown, "monitor_failed").code);
  }

  #say(thrown: TroupeError | { readonly code: string; readonly message: string }, final: boolean): void {
    const { events } = this.#parts.runtime;
    if (events === undefined) return;
    const { sessionId: session, owner: plugin, id: monitor } = this;
    const error = thrown instanceof TroupeError ? thrown : foreignError(thrown.code, thrown.message);
    events.emit({ type: "monitor_failed", session, plugin, monitor, final, error: eventError(error) });
  }
}
