import type { RecordableHistogram } from "node:perf_hooks";
import type { StoreStats } from "../../store/index.js";
import { PhaseProbe, type PhaseStats } from "../../trace/index.js";
import type { Crew, SessionWorker } from "../threads/index.js";

export interface TroupeStats {
  /** Microseconds per `plugin_hook.<kind>.<plugin>`. */
  readonly hooks: Readonly<Record<string, PhaseStats>>;
  readonly workers: readonly {
    readonly index: number;
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
    readonly threadId: number;
    readonly restarts: number;
  }[];
  /** Every turn asked for is finished, refused or still running; none is lost. */
  readonly turns: { readonly asked: number; readonly finished: number; readonly refused: number };
  readonly forks: number;
  readonly store: StoreStats;
  /** Messages this thread received: on the lanes, and by Comlink (`stats()` itself causes some of those). */
  readonly mainMessages: { readonly lane: number; readonly control: number };
  /** Messages between session workers and plugin workers. */
  readonly hookMessages: { readonly sent: number; readonly received: number };
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
    for (const { histograms } of everyone) probe.merge(histograms);
    const sum = (count: (worker: (typeof workers)[number]) => number) =>
      everyone.reduce((total, worker) => total + count(worker), 0);
    return {
      hooks: probe.stats(),
      sessions: { resident: sum(({ sessions }) => sessions), parked: sum(({ parked }) => parked) },
      workers: workers.map(({ histograms, hookMessages, ...worker }) => worker),
      retiring: retiring
        ? { index: retiring.index, threadId: retiring.threadId, sessions: retiring.sessions + retiring.parked }
        : null,
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
    const service = await worker.service();
    const histograms = this.#histograms.get(service) ?? new Map<string, RecordableHistogram>();
    this.#histograms.set(service, histograms);
    const stats = await service.stats({ known: histograms.size });
    for (const [name, histogram] of stats.histograms) histograms.set(name, histogram);
    const { index, restarts, recycled } = worker;
    return { ...stats, histograms, index, restarts, recycled };
  }
}
