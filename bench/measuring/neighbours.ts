import type { Session } from "troupe";
import { quantile } from "./sampling.js";

export interface TurnSample {
  /** When it was asked, on the clock of `performance.now()`. */
  readonly at: number;
  readonly ms: number;
  readonly session: number;
  /** Why it was refused; undefined when it finished. */
  readonly refused?: string;
}

export interface Felt {
  readonly turns: number;
  readonly refused: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/**
 * Sessions that do no harm: each asks for a turn every so often, and what each turn took is kept. Each keeps its own
 * beat, also behind a turn that took longer: sessions that were held up together do not ask together ever after.
 */
export class Neighbours {
  readonly samples: TurnSample[] = [];
  readonly #loops: Promise<void>[];
  readonly #refusals = new Map<string, number>();
  #stopped = false;

  constructor(sessions: readonly Session[], paceMs: number) {
    this.#loops = sessions.map((session, n) => this.#ask(session, n, (n * paceMs) / sessions.length, paceMs));
  }

  /** Why turns were refused, with how often. */
  get refusals(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#refusals);
  }

  /** Resolves when every turn that was asked for has ended. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#loops);
  }

  async #ask(session: Session, n: number, firstMs: number, paceMs: number): Promise<void> {
    for (let next = performance.now() + firstMs; !this.#stopped; ) {
      await pause(Math.max(0, next - performance.now()));
      const at = performance.now();
      const refused = await session.turn("hi").then(({ outcome }) => {
        if (outcome.type !== "finished") return outcome.type;
        return undefined;
      }, codeOf);
      const ms = performance.now() - at;
      this.samples.push({ at, ms, session: n, ...(refused !== undefined && { refused }) });
      if (refused !== undefined) this.#refusals.set(refused, (this.#refusals.get(refused) ?? 0) + 1);
      next += paceMs * Math.max(1, Math.ceil((at + ms - next) / paceMs));
    }
  }
}

/** What turns asked for within a time felt. */
export function felt(samples: readonly TurnSample[]): Felt {
  const times = samples.map(({ ms }) => ms);
  return {
    turns: samples.length,
    refused: samples.filter(({ refused }) => refused !== undefined).length,
    p50: quantile(times, 0.5),
    p99: quantile(times, 0.99),
    max: times.reduce((most, ms) => Math.max(most, ms), 0),
  };
}

/** Of each session the slowest turn that was under way within a time. */
export function slowestOfEach(samples: readonly TurnSample[], from: number, to: number): number[] {
  const slowest = new Map<number, number>();
  for (const { at, ms, session } of samples)
    if (at < to && at + ms > from) slowest.set(session, Math.max(ms, slowest.get(session) ?? 0));
  return [...slowest.values()];
}

/** The code of what a turn was refused with, and of what caused that. */
export function codeOf(error: unknown): string {
  const codes: string[] = [];
  for (let at = error; at instanceof Error; at = at.cause) {
    const { code } = at as { code?: unknown };
    if (typeof code === "string") codes.push(code);
  }
  return codes.join(" < ") || String(error);
}

/** Resolves after a while, or at once when the signal says so. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
