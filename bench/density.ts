import type { Session, Troupe } from "troupe";
import { eachOf, exposeGc, heldBy, MEMORY_PLUGIN } from "./measuring/held.js";
import { grow, withTroupe } from "./measuring/long-session.js";
import { INPUT } from "./measuring/reference-turn.js";
import type { Bench, BenchRun } from "./measuring/report.js";
import { quantile } from "./measuring/sampling.js";
import { WINDOW } from "./plugins/window.js";

const WINDOW_PLUGIN = { module: new URL("./plugins/window.js", import.meta.url), tier: "inline" } as const;
/** Turns an idle session in memory has had. */
const TURNS = 20;
const LENGTHS = [100, 5_000] as const;
/** Sessions that are made and closed before anything is counted. */
const WARM_UP = 1_000;
/** Calls under way at once while sessions are made, asked and parked. */
const AT_ONCE = 50;

export const density: Bench = {
  name: "density",
  question: "What does a session cost that has nothing to do, in memory and parked?",
  bars: [
    { id: "parked_bytes", atMost: 300, says: "bytes per parked session, session worker and main thread together" },
    { id: "resident_kb", atMost: 30, says: `KB per idle session in memory after ${TURNS} turns, likewise` },
    { id: "resume_100_ms", atMost: 10, says: "ms for the first turn of a parked session of 100 turns, p95" },
    {
      id: "resume_5000_vs_100",
      atMost: 2,
      says: `the same with 5,000 turns, over that; the model is given the last ${WINDOW} messages`,
    },
  ],
  async run(run) {
    exposeGc();
    const count = run.quick ? 2_000 : 10_000;
    return withTroupe(
      {
        sessionWorkers: 1,
        plugins: [MEMORY_PLUGIN, WINDOW_PLUGIN],
        parkAfterMs: Number.POSITIVE_INFINITY,
        grown: Object.fromEntries(
          LENGTHS.flatMap((turns) => [
            [`windowed-${turns}`, turns],
            [`whole-${turns}`, turns],
          ]),
        ),
      },
      async (troupe) => {
        const held = await measureMemory(troupe, count, run);
        const returns = [];
        for (const turns of LENGTHS) returns.push(await measureReturns(troupe, turns, run));
        const [short, long] = returns.map(({ windowed }) => quantile(windowed, 0.95)) as [number, number];
        return {
          ratios: {
            parked_bytes: held.parked / count,
            resident_kb: held.resident / count / 1024,
            resume_100_ms: short,
            resume_5000_vs_100: long / short,
          },
          samples: { sessions: count, held, returns },
          tables: [
            {
              title: `${count} sessions`,
              columns: ["state", "session worker", "main thread", "together, bytes each"],
              rows: [
                ["in memory", held.worker.resident / count, held.main.resident / count, held.resident / count],
                ["parked", held.worker.parked / count, held.main.parked / count, held.parked / count],
              ],
            },
            {
              title: "Coming back, ms",
              columns: [
                "turns of history",
                "parked p95",
                "answers p95",
                `turn, last ${WINDOW} p50`,
                "p95",
                "turn, all p50",
                "p95",
              ],
              rows: returns.map(({ turns, park, wake, windowed, whole }) => [
                String(turns),
                quantile(park, 0.95),
                quantile(wake, 0.95),
                quantile(windowed, 0.5),
                quantile(windowed, 0.95),
                quantile(whole, 0.5),
                quantile(whole, 0.95),
              ]),
            },
          ],
          notes: [
            "Heap and external memory of the two threads after collecting, less what they held before the sessions were opened. The plugin is inline; the store's own thread and file are not counted.",
            `The sessions are forks of one with ${TURNS - 1} turns and have had one of their own, so each has read its history.`,
            `Coming back: \`answers\` is a question that needs no history. A turn is the reference turn, durable; its model is given the last ${WINDOW} messages, or all of the history, four messages for each turn of it: those are read and decoded.`,
          ],
        };
      },
    );
  },
};

interface Each {
  readonly resident: number;
  readonly parked: number;
}

async function measureMemory(troupe: Troupe, count: number, run: BenchRun) {
  const probe = await troupe.session("probe");
  const parent = await troupe.session("parent");
  await grow(parent, TURNS - 1, run.progress);
  const sessions: Session[] = [];
  const make = async (id: string) => {
    const session = await parent.fork({ id });
    await session.turn(INPUT);
    sessions.push(session);
    if (sessions.length % 500 === 0) run.progress(`${sessions.length} of ${count} sessions`);
  };
  // Compiled code and what threads set up once are nobody's.
  await eachOf(namesOf("warm-up", WARM_UP), AT_ONCE, make);
  await eachOf(sessions, AT_ONCE, (session) => session.park());
  await eachOf(sessions.splice(0), AT_ONCE, (session) => session.close());
  const before = await heldBy(probe);
  await eachOf(namesOf("session", count), AT_ONCE, make);
  const { resident: residents } = (await troupe.stats()).sessions;
  if (residents < count) throw new Error(`Only ${residents} of ${count} sessions are in memory.`);
  const full = await heldBy(probe);
  run.progress("parking");
  await eachOf(sessions, AT_ONCE, (session) => session.park());
  const { parked } = (await troupe.stats()).sessions;
  if (parked !== count) throw new Error(`${parked} of ${count} sessions are parked.`);
  // The handles are the host's, and a host that parks need not keep them.
  sessions.length = 0;
  const empty = await heldBy(probe);
  const of = (thread: "worker" | "main"): Each => ({
    resident: full[thread] - before[thread],
    parked: empty[thread] - before[thread],
  });
  const [worker, main] = [of("worker"), of("main")];
  return { worker, main, resident: worker.resident + main.resident, parked: worker.parked + main.parked };
}

async function measureReturns(troupe: Troupe, turns: number, run: BenchRun) {
  const windowed = await troupe.session(`windowed-${turns}`);
  const whole = await troupe.session(`whole-${turns}`);
  const times = { park: [] as number[], wake: [] as number[], windowed: [] as number[], whole: [] as number[] };
  const timed = async (into: number[], call: () => PromiseLike<unknown>) => {
    const started = performance.now();
    await call();
    into.push(performance.now() - started);
  };
  const rounds = run.quick ? 20 : 100;
  for (let n = 0; n < rounds; n++) {
    run.progress(`coming back with ${turns} turns: ${n}`);
    await timed(times.park, () => windowed.park());
    await timed(times.wake, () => windowed.inputs());
    await windowed.park();
    await timed(times.windowed, () => windowed.turn(INPUT));
  }
  // Apart from the others: collecting what it leaves behind is this one's own cost.
  for (let n = 0; n < rounds; n++) {
    run.progress(`coming back with all of ${turns} turns: ${n}`);
    await whole.park();
    await timed(times.whole, () => whole.turn(INPUT));
  }
  return { turns, ...times };
}

const namesOf = (kind: string, count: number) => Array.from({ length: count }, (_, n) => `${kind}-${n}`);
