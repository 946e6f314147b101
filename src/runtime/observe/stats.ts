import type { RecordableHistogram } from "node:perf_hooks";
import { type CacheUse, OWN_SOURCE, usageReport } from "../../kernel/index.js";
import type { SessionWorkerStats } from "../../session/index.js";
import type { StoreStats } from "../../store/index.js";
import { modelOfPhase, PhaseProbe, type PhaseStats } from "../../trace/index.js";
import type { Crew, SessionWorker } from "../threads/index.js";

export interface TroupeStats {
  /** Microseconds per `plugin_hook.<kind>.<plugin>`, and how many calls failed or missed their deadline. */
  readonly hooks: Readonly<Record<string, PhaseStats>>;
  /** Microseconds from asking a model to its first token, by the model's id. */
  readonly firstToken: Readonly<Record<string, Omit<PhaseStats, "errors" | "timeouts">>>;
  readonly workers: readonly {
    readonly index: number;
    /** -1: it was given up, and its other figures are of no thread. */
    readonly threadId: number;
    /** Sessions in its memory. */
    readonly sessions: number;
    readonly parked: number;
    /** How full its heap is, of 1. */
    readonly heapShare: number;
    /** Times its thread was replaced because it had died. */
    readonly restarts: number;
    /** Times its thread was replaced by `recycle`, or because its heap stayed full. */
    readonly recycled: number;
  }[];
  /** The thread of a worker that was recycled and still has turns to finish; null when there is none. */
  readonly retiring: { readonly index: number; readonly threadId: number; readonly sessions: number } | null;
  /** Sessions of this runtime that are in memory, and those that left it and come back with the next message. */
  readonly sessions: { readonly resident: number; readonly parked: number };
  readonly plugins: readonly {
    readonly id: string;
    readonly tier: "worker" | "inline";
    /** Of its first host; -1 while that has no thread. */
    readonly threadId: number;
    readonly restarts: number;
    /** Plugin hosts of its group that have a thread now. */
    readonly threads: number;
  }[];
  /** Every turn asked for is finished, refused or still running; none is lost. */
  readonly turns: { readonly asked: number; readonly finished: number; readonly refused: number };
  readonly forks: number;
  /**
   * What the models of the session workers' threads have read so far, and how much of it came from their providers'
   * caches: in all, by model, and by agent of sessions that have one. A session's own is in `session.spending()`.
   */
  readonly cache: CacheUse & {
    readonly byModel: Readonly<Record<string, CacheUse>>;
    readonly byAgent: Readonly<Record<string, CacheUse>>;
  };
  readonly store: StoreStats;
  /**
   * Messages this thread received: on the lanes, and by Comlink (`stats()` itself causes some of those; what other threads
   * answer to the watchdog is not counted).
   */
  readonly mainMessages: { readonly lane: number; readonly control: number };
  /** Messages between session workers and plugin workers. */
  readonly hookMessages: { readonly sent: number; readonly received: number };
}

const OF_NO_THREAD: Omit<SessionWorkerStats, "histograms"> = {
  failures: [],
  threadId: -1,
  sessions: 0,
  parked: 0,
  heapShare: 0,
  turns: 0,
  tokens: { byModel: {}, byAgent: {} },
  hookMessages: { sent: 0, received: 0 },
};

function cacheStats(counted: readonly SessionWorkerStats["tokens"][]): TroupeStats["cache"] {
  const ledgerBy = (by: keyof SessionWorkerStats["tokens"]) =>
    counted.flatMap((tokens) =>
      Object.entries(tokens[by]).map(([model, usage]) => ({ source: OWN_SOURCE, model, usage })),
    );
  return { ...usageReport(ledgerBy("byModel")).cache, byAgent: usageReport(ledgerBy("byAgent")).cache.byModel };
}

/** Asks the threads what they have measured so far. */
export class Statistics {
  readonly #crew: Crew;
  /** Of each thread, as long as it is there, by the service it is asked through. They are live, and so come once. */
  readonly #histograms = new WeakMap<object, Map<string, RecordableHistogram>>();

  constructor(crew: Crew) {
    this.#crew = crew;
  }

  async read(counts: Pick<TroupeStats, "turns" | "forks">): Promise<TroupeStats> {
    const crew = this.#crew;
    const workers = await Promise.all(crew.sessionWorkers.map((worker) => this.#of(worker)));
    // It may end while it is asked.
    const retiring = crew.retiring && (await this.#of(crew.retiring).catch(() => undefined));
    const everyone = retiring === undefined ? workers : [...workers, retiring];
    const probe = new PhaseProbe();
    for (const { histograms, failures } of everyone) probe.merge(histograms, failures);
    const sum = (count: (worker: (typeof workers)[number]) => number) =>
      everyone.reduce((total, worker) => total + count(worker), 0);
    return {
      ...phasesOf(probe),
      sessions: { resident: sum(({ sessions }) => sessions), parked: sum(({ parked }) => parked) },
      workers: workers.map(({ histograms, failures, hookMessages, tokens, ...worker }) => worker),
      retiring: retiring
        ? { index: retiring.index, threadId: retiring.threadId, sessions: retiring.sessions + retiring.parked }
        : null,
      cache: cacheStats(everyone.map(({ tokens }) => tokens)),
      plugins: crew.plugins(),
      ...counts,
      store: await crew.store.ask("stats", undefined),
      mainMessages: crew.messages(),
      hookMessages: {
        sent: sum(({ hookMessages }) => hookMessages.sent),
        received: sum(({ hookMessages }) => hookMessages.received),
      },
    };
  }

  async #of(worker: SessionWorker) {
    const { index } = worker;
    if (worker.givenUp) {
      const { restarts, recycled } = worker;
      return { ...OF_NO_THREAD, histograms: new Map<string, RecordableHistogram>(), index, restarts, recycled };
    }
    const service = await worker.service();
    const histograms = this.#histograms.get(service) ?? new Map<string, RecordableHistogram>();
    this.#histograms.set(service, histograms);
    const stats = await service.stats({ known: histograms.size });
    for (const [name, histogram] of stats.histograms) histograms.set(name, histogram);
    const { restarts, recycled } = worker;
    return { ...stats, histograms, index, restarts, recycled };
  }
}

function phasesOf(probe: PhaseProbe): Pick<TroupeStats, "hooks" | "firstToken"> {
  const hooks: Record<string, PhaseStats> = {};
  const firstToken: Record<string, TroupeStats["firstToken"][string]> = {};
  for (const [name, stats] of Object.entries(probe.stats())) {
    const model = modelOfPhase(name);
    const { errors: _errors, timeouts: _timeouts, ...durations } = stats;
    if (model === undefined) hooks[name] = stats;
    else firstToken[model] = durations;
  }
  return { hooks, firstToken };
}
