import type { Session } from "troupe";
import { grow, withTroupe } from "./measuring/long-session.js";
import { INPUT } from "./measuring/reference-turn.js";
import type { Bench } from "./measuring/report.js";
import { type Contender, compare, median, middle, quantile, takeRounds } from "./measuring/sampling.js";

const SHORT = 100;
const LONG = 5_000;
/** Turns of one lap. */
const TURNS = 20;

export const length: Bench = {
  name: "length",
  question: `Does a turn cost more when its session is long? (${LONG} turns against ${SHORT}, hooks inline, memory)`,
  bars: [{ id: "turn_5000_vs_100", atMost: 1.1, says: `us per turn at ${LONG} turns of history over ${SHORT}` }],
  run: (run) =>
    withTroupe({ sessionWorkers: 1, store: { memory: true } }, async (troupe) => {
      const session = await troupe.session("short");
      await grow(session, SHORT, run.progress);
      const long = await session.fork({ id: "long" });
      await grow(long, LONG, run.progress);
      const laps = [lapOf("short", youngForks(session)), lapOf("long", async () => long)] as const;
      const rounds = await takeRounds<"short" | "long">(laps, {
        budgetMs: run.quick ? 12_000 : 40_000,
        slotMs: 0,
        least: 5,
        onRound: (count) => run.progress(`round ${count}`),
      });
      const { middle: ratio, low, high } = compare(rounds, (round) => round.long / round.short);
      const [shortUs, longUs] = [middle(rounds, "short"), middle(rounds, "long")];
      return {
        ratios: { turn_5000_vs_100: ratio },
        samples: { rounds: rounds.length, shortUs, longUs, low, high },
        tables: [
          {
            title: "The reference turn, one session at a time",
            columns: ["turns of history", "us/turn", "p95 us"],
            rows: [
              [String(SHORT), shortUs, quantile(laps[0].times, 0.95)],
              [String(LONG), longUs, quantile(laps[1].times, 0.95)],
            ],
          },
        ],
        notes: [
          `${rounds.length} rounds of ${TURNS} turns each, the middle turn of each compared; middle 80% of the ratios ${low.toFixed(2)}-${high.toFixed(2)}. The short session is a fork that is replaced before it has grown, the long one goes on.`,
        ],
      };
    }),
};

interface Lap<Name extends string> extends Contender<Name> {
  readonly times: number[];
}

/** `next`: the session to ask; another one when that has grown too much. */
function lapOf<Name extends string>(name: Name, next: () => Promise<Session>): Lap<Name> {
  const times: number[] = [];
  return {
    name,
    times,
    async measure() {
      const session = await next();
      const own: number[] = [];
      for (let n = 0; n < TURNS; n++) {
        const started = performance.now();
        await session.turn(INPUT);
        own.push((performance.now() - started) * 1000);
      }
      times.push(...own);
      return median(own);
    },
  };
}

/** Forks of a session, each good for a few laps: what is short must stay so. */
function youngForks(session: Session): () => Promise<Session> {
  let young: Session | undefined;
  let laps = 0;
  return async () => {
    if (young !== undefined && laps++ < 5) return young;
    await young?.close();
    young = await session.fork();
    laps = 0;
    // Reads the history.
    await young.turn(INPUT);
    return young;
  };
}
