import type { Session } from "../src/index.js";
import { grow, withTroupe } from "./long-session.js";
import { INPUT } from "./reference-turn.js";
import type { Bench } from "./report.js";
import { type Contender, compare, middle, takeRounds } from "./sampling.js";

const SHORT = 100;
const LONG = 5_000;
/** Turns of one fork that are measured: few enough for its length to stay what it is. */
const TURNS = 20;

export const length: Bench = {
  name: "length",
  question: `Does a turn cost more when its session is long? (${LONG} turns against ${SHORT}, hooks inline, memory)`,
  bars: [{ id: "turn_5000_vs_100", atMost: 1.5, says: `us per turn at ${LONG} turns of history over ${SHORT}` }],
  run: (run) =>
    withTroupe({ sessionWorkers: 1, store: { memory: true } }, async (troupe) => {
      const session = await troupe.session("short");
      await grow(session, SHORT, run.progress);
      const long = await session.fork({ id: "long" });
      await grow(long, LONG, run.progress);
      const rounds = await takeRounds([lapOf("short", session), lapOf("long", long)], {
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
            columns: ["turns of history", "us/turn"],
            rows: [
              [String(SHORT), shortUs],
              [String(LONG), longUs],
            ],
          },
        ],
        notes: [
          `Each round forks both sessions and takes ${TURNS} turns of each fork behind a first one that reads the history. ${rounds.length} rounds; middle 80% of the ratios ${low.toFixed(2)}-${high.toFixed(2)}.`,
        ],
      };
    }),
};

function lapOf<Name extends string>(name: Name, session: Session): Contender<Name> {
  return {
    name,
    async measure() {
      await using fork = await session.fork();
      await fork.turn(INPUT);
      const started = performance.now();
      for (let n = 0; n < TURNS; n++) await fork.turn(INPUT);
      return ((performance.now() - started) * 1000) / TURNS;
    },
  };
}
