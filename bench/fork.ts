import type { Session, Troupe } from "troupe";
import { withTroupe } from "./measuring/long-session.js";
import type { Bench } from "./measuring/report.js";
import { type Contender, compare, middle, quantile, takeRounds } from "./measuring/sampling.js";

const SHORT = 50;
const LONG = 5_000;
/** Forks of one slot. */
const FORKS = 20;

export const fork: Bench = {
  name: "fork",
  question: `Does a fork to another worker cost more when the session is long? (${LONG} turns against ${SHORT}, embedded store)`,
  bars: [
    { id: "fork_5000_vs_50", atMost: 1.1, says: `us per fork at ${LONG} turns of history over ${SHORT}` },
    { id: "fork_records", atMost: 1, says: "records a fork writes: its head, and so no history" },
  ],
  run: (run) =>
    withTroupe({ sessionWorkers: 2, grown: { short: SHORT, long: LONG } }, async (troupe) => {
      const [short, long] = [await troupe.session("short"), await troupe.session("long")];
      const forks = { short: forksOf("short", short), long: forksOf("long", long) };
      const before = await troupe.stats();
      const rounds = await takeRounds([forks.short, forks.long], {
        budgetMs: run.quick ? 8_000 : 30_000,
        slotMs: 0,
        least: 5,
        onRound: (count) => run.progress(`round ${count}`),
      });
      const records = await recordsPerFork(troupe, before);
      const { middle: ratio, low, high } = compare(rounds, (round) => round.long / round.short);
      return {
        ratios: { fork_5000_vs_50: ratio, fork_records: records },
        samples: {
          rounds: rounds.length,
          shortUs: middle(rounds, "short"),
          longUs: middle(rounds, "long"),
          low,
          high,
          records,
        },
        tables: [
          {
            title: "One fork, plugin state included",
            columns: ["turns of history", "us", "p95 us"],
            rows: [
              [String(SHORT), middle(rounds, "short"), quantile(forks.short.times, 0.95)],
              [String(LONG), middle(rounds, "long"), quantile(forks.long.times, 0.95)],
            ],
          },
        ],
        notes: [
          `From the call to the child's handle: captured, adopted by the other worker, its head stored and synced. ${rounds.length} rounds of ${FORKS} forks each; middle 80% of the ratios ${low.toFixed(2)}-${high.toFixed(2)}.`,
        ],
      };
    }),
};

function forksOf<Name extends string>(name: Name, session: Session): Contender<Name> & { readonly times: number[] } {
  const times: number[] = [];
  return {
    name,
    times,
    async measure() {
      const began = times.length;
      const children: Session[] = [];
      for (let n = 0; n < FORKS; n++) {
        const started = performance.now();
        children.push(await session.fork());
        times.push((performance.now() - started) * 1000);
      }
      for (const child of children) await child.close();
      return times.slice(began).reduce((sum, us) => sum + us, 0) / FORKS;
    },
  };
}

async function recordsPerFork(troupe: Troupe, before: Awaited<ReturnType<Troupe["stats"]>>): Promise<number> {
  const after = await troupe.stats();
  return (after.store.records - before.store.records) / (after.forks - before.forks);
}
