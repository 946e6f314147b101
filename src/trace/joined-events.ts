import type { Clock, Timer } from "../async/index.js";
import type { TroupeEvent } from "./events.js";

/** The same thing is told once in so many milliseconds. */
const JOIN_MS = 1_000;
/** Things told apart at a time; beyond that, sessions are not told apart any more. */
const MOST_KEYS = 256;

interface Window {
  /** What came since the thing was last told; undefined: nothing. */
  waiting: TroupeEvent | undefined;
}

/**
 * Joins events that come in floods: the first is told at once, and what follows within a second as one event with a
 * count. What happens rarely by itself, such as a restart, is never joined. No timer runs while nothing comes.
 *
 * @example
 * const joined = new JoinedEvents(clock, (event) => tell(event));
 * joined.add(event);
 */
export class JoinedEvents {
  readonly #clock: Clock;
  readonly #tell: (event: TroupeEvent) => void;
  readonly #windows = new Map<string, Window>();
  #timer: Timer | undefined;

  constructor(clock: Clock, tell: (event: TroupeEvent) => void) {
    this.#clock = clock;
    this.#tell = tell;
  }

  add(event: TroupeEvent): void {
    const key = this.#keyOf(event);
    if (key === undefined) {
      this.#tell(event);
      return;
    }
    const window = this.#windows.get(key);
    if (window === undefined) {
      this.#windows.set(key, { waiting: undefined });
      this.#timer ??= this.#clock.timeout(JOIN_MS, () => this.#next()).unref();
      this.#tell(event);
    } else if (window.waiting === undefined) window.waiting = event;
    else window.waiting = { ...window.waiting, count: window.waiting.count + event.count };
  }

  /** Tells what waits. */
  flush(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    const windows = [...this.#windows.values()];
    this.#windows.clear();
    for (const { waiting } of windows) if (waiting !== undefined) this.#tell(waiting);
  }

  /** A second has passed: things that have come to rest are forgotten. */
  #next(): void {
    this.#timer = undefined;
    for (const [key, window] of this.#windows) {
      const { waiting } = window;
      window.waiting = undefined;
      if (waiting === undefined) this.#windows.delete(key);
      else this.#tell(waiting);
    }
    if (this.#windows.size > 0) this.#timer ??= this.#clock.timeout(JOIN_MS, () => this.#next()).unref();
  }

  #keyOf(event: TroupeEvent): string | undefined {
    const parts = sameAs(event);
    if (parts === undefined) return undefined;
    const whole = JSON.stringify([event.type, ...parts]);
    if (this.#windows.has(whole) || this.#windows.size < MOST_KEYS) return whole;
    return event.type;
  }
}

/** What makes two events the same thing; undefined: each is told. */
function sameAs(event: TroupeEvent): readonly (string | undefined)[] | undefined {
  switch (event.type) {
    case "hook_failed":
      return [event.plugin, event.hook, event.error.code, event.outcome];
    case "tool_failed":
      return [event.tool, event.code];
    case "turn_refused":
      return [event.session, event.code, String(event.background)];
    case "turn_stopped":
      return [event.reason, event.code];
    case "model_retry":
      return [event.model, event.code];
    case "model_fallback":
      return [event.from, event.to, event.code];
    case "store_slow":
      return [event.write];
    case "schedule_failed":
      return [event.schedule, event.error.code];
    case "trigger_failed":
      return [event.trigger, event.error.code];
    case "task_failed":
      return [event.task, event.error.code];
    case "monitor_failed":
      return [event.session, event.plugin, event.monitor, event.error.code];
    case "floating_rejection":
      return [event.owner ?? "", event.error.code];
    default:
      return undefined;
  }
}
