import { createHistogram, type RecordableHistogram } from "node:perf_hooks";

/** Durations of one phase, in microseconds. */
export interface PhaseStats {
  readonly count: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
  /** Calls that failed, those that missed their deadline included. */
  readonly errors: number;
  readonly timeouts: number;
}

/** How often a phase failed. */
export type PhaseFailures = readonly [phase: string, errors: number, timeouts: number];

/**
 * In nanoseconds. Below half a microsecond durations are not told apart, and past a minute all count as a minute. Two
 * figures: a percentile is right to one percent. A histogram of these bounds takes 22 KB, one without bounds 137.
 */
const BOUNDS = { lowest: 500, highest: 60_000_000_000, figures: 2 };

/**
 * The phase probe: a histogram per named phase. Hook calls are named `plugin_hook.<kind>.<plugin>`. A histogram that was
 * posted to another thread is the same one there: it goes on counting, and is posted once.
 */
export class PhaseProbe {
  readonly #histograms = new Map<string, RecordableHistogram>();
  readonly #failures = new Map<string, { errors: number; timeouts: number }>();

  /** The histogram of a phase; keep it when the phase is hot. */
  phase(name: string): RecordableHistogram {
    let histogram = this.#histograms.get(name);
    if (histogram === undefined) {
      histogram = createHistogram(BOUNDS);
      this.#histograms.set(name, histogram);
    }
    return histogram;
  }

  /** Counts a call of the phase that failed. */
  failed(name: string, timeout: boolean): void {
    this.#addFailures([name, 1, timeout ? 1 : 0]);
  }

  #addFailures([name, errors, timeouts]: PhaseFailures): void {
    const counted = this.#failures.get(name) ?? { errors: 0, timeouts: 0 };
    counted.errors += errors;
    counted.timeouts += timeouts;
    this.#failures.set(name, counted);
  }

  /** What failed so far. */
  failures(): PhaseFailures[] {
    return [...this.#failures].map(([name, { errors, timeouts }]) => [name, errors, timeouts]);
  }

  /** Adds what another thread's probe counted. */
  merge(histograms: Iterable<readonly [string, RecordableHistogram]>, failures: readonly PhaseFailures[] = []): void {
    for (const [name, histogram] of histograms) if (histogram.count > 0) this.phase(name).add(histogram);
    for (const each of failures) this.#addFailures(each);
  }

  /** In the order they were made, but for the first `known`. */
  entries(known = 0): [string, RecordableHistogram][] {
    return [...this.#histograms].slice(known);
  }

  stats(): Record<string, PhaseStats> {
    const names = [...this.#histograms.keys()].sort();
    const none = { errors: 0, timeouts: 0 };
    return Object.fromEntries(
      names.map((name) => [name, { ...statsOf(this.phase(name)), ...(this.#failures.get(name) ?? none) }]),
    );
  }
}

const FIRST_TOKEN = "model_first_token.";

/** The phase from asking a model to the first of its answer. */
export function firstTokenPhase(modelId: string): string {
  return `${FIRST_TOKEN}${modelId}`;
}

/** The model whose phase it is; undefined for any other phase. */
export function modelOfPhase(name: string): string | undefined {
  return name.startsWith(FIRST_TOKEN) ? name.slice(FIRST_TOKEN.length) : undefined;
}

export function hookPhase(kind: string, pluginId: string): string {
  return `plugin_hook.${kind}.${pluginId}`;
}

/** Records a duration; a histogram counts whole nanoseconds from 1, and drops what is past its bounds. */
export function recordMs(histogram: RecordableHistogram, durationMs: number): void {
  histogram.record(Math.min(BOUNDS.highest, Math.max(1, Math.round(durationMs * 1e6))));
}

function statsOf(histogram: RecordableHistogram): Omit<PhaseStats, "errors" | "timeouts"> {
  const us = (nanoseconds: number) => Math.round(nanoseconds / 10) / 100;
  if (histogram.count === 0) return { count: 0, p50: 0, p90: 0, p99: 0, max: 0 };
  return {
    count: histogram.count,
    p50: us(histogram.percentile(50)),
    p90: us(histogram.percentile(90)),
    p99: us(histogram.percentile(99)),
    max: us(histogram.max),
  };
}
