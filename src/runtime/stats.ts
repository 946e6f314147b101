import type { StoreStats } from "../store/index.js";
import { PhaseProbe, type PhaseStats } from "../trace/index.js";
import type { Crew } from "./crew.js";

export interface TroupeStats {
  /** Microseconds per `plugin_hook.<kind>.<plugin>`. */
  readonly hooks: Readonly<Record<string, PhaseStats>>;
  readonly workers: readonly {
    readonly index: number;
    readonly threadId: number;
    /** Sessions in its memory. */
    readonly sessions: number;
    readonly parked: number;
    readonly restarts: number;
  }[];
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

/** What the threads have measured so far. */
export async function statsOf(crew: Crew, counts: Pick<TroupeStats, "turns" | "forks">): Promise<TroupeStats> {
  const workers = await Promise.all(crew.sessionWorkers.map((worker) => worker.stats()));
  const probe = new PhaseProbe();
  for (const { histograms } of workers) probe.merge(histograms);
  const sum = (count: (worker: (typeof workers)[number]) => number) =>
    workers.reduce((total, worker) => total + count(worker), 0);
  return {
    hooks: probe.stats(),
    sessions: { resident: sum(({ sessions }) => sessions), parked: sum(({ parked }) => parked) },
    workers: workers.map(({ sessions, parked, threadId }, index) => ({
      index,
      threadId,
      sessions,
      parked,
      restarts: crew.worker(index).restarts,
    })),
    plugins: crew.plugins(),
    ...counts,
    store: await crew.store.stats(),
    mainMessages: crew.messages(),
    hookMessages: {
      sent: sum(({ hookMessages }) => hookMessages.sent),
      received: sum(({ hookMessages }) => hookMessages.received),
    },
  };
}
