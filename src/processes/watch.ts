import type { Clock, Timer } from "../async/index.js";
import {
  asTroupeError,
  type FilePlace,
  Gathering,
  type MonitorEnd,
  type MonitorSpec,
  type WatchNews,
} from "../kernel/index.js";
import type { Matcher } from "./matcher.js";

/** Which lines are told, and when it ends. */
export interface WatchTerms extends Pick<MonitorSpec, "pattern" | "ignoreCase" | "debounceMs" | "maxPerMinute"> {
  /** A line that ends it. */
  readonly endPattern: string | null;
  /** Lines until it ends. */
  readonly linesLeft: number | null;
  readonly endsInMs: number | null;
}

/** Where lines come from. */
export interface Source {
  /** Resolves when nothing comes any more, and of a command nothing runs. */
  stop(): Promise<void>;
}

/** Lines are looked at together, as many as come in so long. */
const TOGETHER_MS = 10;
const TOGETHER_LINES = 2_000;
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** What comes of one source, on its way to who asks for it. */
export class Watch {
  readonly #clock: Clock;
  readonly #matcher: Matcher;
  readonly #gathering: Gathering;
  readonly #pattern: RegExp | null;
  readonly #endPattern: RegExp | null;
  #linesLeft: number;
  /** As they came, not looked at. */
  #raw: string[] = [];
  #rawPlace: FilePlace | null = null;
  #looking: Timer | undefined;
  #place: FilePlace | null = null;
  #restarted = false;
  #end: MonitorEnd | undefined;
  #deadline: Timer | undefined;
  #tell: (() => void) | undefined;
  #due: Timer | undefined;
  /** Told once, when it ends. */
  readonly onEnd: () => void;

  constructor(
    { pattern, endPattern, ignoreCase, linesLeft, endsInMs, ...rate }: WatchTerms,
    { clock, matcher, onEnd }: { readonly clock: Clock; readonly matcher: Matcher; readonly onEnd: () => void },
  ) {
    const flags = ignoreCase ? "iu" : "u";
    this.#clock = clock;
    this.#matcher = matcher;
    this.#gathering = new Gathering(rate, clock.now());
    this.#pattern = pattern === null ? null : new RegExp(pattern, flags);
    this.#endPattern = endPattern === null ? null : new RegExp(endPattern, flags);
    this.#linesLeft = linesLeft ?? Number.POSITIVE_INFINITY;
    this.onEnd = onEnd;
    if (endsInMs !== null) this.#endAt(clock.now() + endsInMs);
  }

  get hasEnded(): boolean {
    return this.#end !== undefined;
  }

  /** `place`: behind the last of them, where they are a file's. */
  add(lines: readonly string[], place: FilePlace | null = null): void {
    if (this.hasEnded) return;
    for (const line of lines) this.#raw.push(line);
    this.#rawPlace = place ?? this.#rawPlace;
    if (this.#raw.length >= TOGETHER_LINES) this.#look();
    else this.#looking ??= this.#clock.timeout(TOGETHER_MS, () => this.#look());
  }

  /** What is told next comes of it started anew. */
  startedAgain(): void {
    this.#restarted = true;
  }

  end(end: MonitorEnd): void {
    if (this.hasEnded) return;
    this.#look();
    this.#endWith(end);
  }

  /** Resolves when there is an update to be made, or when it has ended, which is told once. */
  async next(signal: AbortSignal): Promise<WatchNews> {
    if (!this.#isDue) {
      await new Promise<void>((resolve) => {
        const tell = () => {
          if (this.#tell === tell) this.#tell = undefined;
          signal.removeEventListener("abort", tell);
          resolve();
        };
        this.#tell?.();
        this.#tell = tell;
        signal.addEventListener("abort", tell, { once: true });
        this.#arm();
      });
      if (!this.#isDue) return NOTHING;
    }
    const news = {
      ...this.#gathering.take(this.#clock.now()),
      place: this.#place,
      restarted: this.#restarted,
      end: this.#end ?? null,
    };
    this.#restarted = false;
    return news;
  }

  get #isDue(): boolean {
    if (this.hasEnded) return true;
    const { dueAt } = this.#gathering;
    return dueAt !== undefined && dueAt <= this.#clock.now();
  }

  /** Tells who waits, at once or when it is due. */
  #arm(): void {
    this.#due?.cancel();
    this.#due = undefined;
    if (this.#tell === undefined) return;
    if (this.#isDue) {
      this.#tell();
      return;
    }
    const { dueAt } = this.#gathering;
    if (dueAt === undefined) return;
    this.#due = this.#clock.timeout(Math.max(1, Math.ceil(dueAt - this.#clock.now())), () => this.#arm());
  }

  #look(): void {
    this.#looking?.cancel();
    this.#looking = undefined;
    if (this.hasEnded) return;
    const lines = this.#raw;
    this.#raw = [];
    const now = this.#clock.now();
    try {
      const wanted = this.#pattern === null ? undefined : this.#matcher.test(this.#pattern, lines);
      const ends = this.#endPattern === null ? undefined : this.#matcher.test(this.#endPattern, lines);
      this.#gather(lines, wanted, ends, now);
      this.#place = this.#rawPlace;
    } catch (thrown) {
      const { code, message } = asTroupeError(thrown, "monitor_failed");
      this.#endWith({ reason: "failed", error: { code, message } });
    }
    this.#arm();
  }

  #gather(
    lines: readonly string[],
    wanted: readonly boolean[] | undefined,
    ends: readonly boolean[] | undefined,
    now: number,
  ): void {
    const told: string[] = [];
    let end: MonitorEnd | undefined;
    for (const [n, line] of lines.entries()) {
      // Empty lines say nothing.
      if (line.trim() !== "" && wanted?.[n] !== false) {
        told.push(line);
        if (--this.#linesLeft === 0) end = { reason: "lines" };
      }
      if (ends?.[n] === true) end ??= { reason: "pattern" };
      if (end !== undefined) break;
    }
    this.#gathering.add(told, now);
    if (end !== undefined) this.#endWith(end);
  }

  #endWith(end: MonitorEnd): void {
    if (this.hasEnded) return;
    this.#end = end;
    this.#raw = [];
    this.#deadline?.cancel();
    this.#looking?.cancel();
    this.onEnd();
    this.#arm();
  }

  #endAt(at: number): void {
    const left = at - this.#clock.now();
    if (left <= 0) this.end({ reason: "deadline" });
    else this.#deadline = this.#clock.timeout(Math.min(Math.ceil(left), LONGEST_TIMER_MS), () => this.#endAt(at));
  }
}

const NOTHING: WatchNews = { lines: [], dropped: 0, place: null, restarted: false, end: null };
