import type { Session, Troupe } from "troupe";
import { eachOf, exposeGc, heldBy, MEMORY_PLUGIN } from "./measuring/held.js";
import { grow, withTroupe } from "./measuring/long-session.js";
import { INPUT } from "./measuring/reference-turn.js";
import type { Bench, BenchRun } from "./measuring/report.js";
import { median } from "./measuring/sampling.js";

const SESSIONS = 20;
/** Every so many cycles a session also has a turn, so that something would be lost if something could be. */
const CYCLES_PER_TURN = 50;
/** Memory is looked at so often, evenly. */
const LOOKS = 10;
/** The looks that count begin here: before, code is compiled and caches fill. */
const WARM = 5;

export const cycles: Bench = {
  name: "cycles",
  question: "Does anything grow when sessions are parked and brought back again and again?",
  bars: [
    {
      id: "cycle_bytes",
      atMost: 32,
      says: "bytes a cycle of parking and coming back leaves behind, session worker and main thread together",
    },
    { id: "cycle_turns_lost", atMost: 0, says: "turns between the cycles that are not in their session at the end" },
  ],
  async run(run) {
    exposeGc();
    return withTroupe(
      { sessionWorkers: 1, plugins: [MEMORY_PLUGIN], parkAfterMs: Number.POSITIVE_INFINITY },
      async (troupe) => {
        const { count, looks, lost, seconds } = await goRound(troupe, run);
        const counted = looks.slice(WARM);
        const left = slopeOf(counted.map(({ cycles, worker, main }) => [cycles, worker + main]));
        return {
          ratios: { cycle_bytes: Math.max(0, left), cycle_turns_lost: lost },
          samples: { cycles: count, looks, seconds, left },
          tables: [
            {
              title: `${count} cycles, ${SESSIONS} sessions`,
              columns: ["cycles so far", "session worker, KB", "main thread, KB"],
              rows: looks.map(({ cycles, worker, main }) => [String(cycles), worker / 1024, main / 1024]),
            },
          ],
          notes: [
            `A cycle is \`park()\` and a question that brings the session back; every ${CYCLES_PER_TURN}th also has a turn. ${(count / seconds).toFixed(0)} cycles a second. Heap and external memory after collecting, everything parked; the first ${WARM} looks are not counted.`,
          ],
        };
      },
    );
  },
};

interface Look {
  readonly cycles: number;
  readonly worker: number;
  readonly main: number;
}

async function goRound(troupe: Troupe, run: BenchRun) {
  const count = run.quick ? 20_000 : 100_000;
  const probe = await troupe.session("probe");
  const sessions = await Promise.all(Array.from({ length: SESSIONS }, (_, n) => troupe.session(`s${n}`)));
  await eachOf(sessions, SESSIONS, (session) => grow(session, 2, run.progress));
  const started = performance.now();
  const perLook = count / LOOKS / SESSIONS;
  const looks: Look[] = [];
  for (let look = 1; look <= LOOKS; look++) {
    await eachOf(sessions, SESSIONS, (session) => cycle(session, perLook));
    looks.push({ cycles: look * perLook * SESSIONS, ...(await heldBy(probe)) });
    run.progress(`${look * perLook * SESSIONS} of ${count} cycles`);
  }
  const expected = 2 + (LOOKS * perLook) / CYCLES_PER_TURN;
  let lost = 0;
  for (const session of sessions) lost += Math.abs(expected - (await session.info()).turns);
  return { count, looks, lost, seconds: (performance.now() - started) / 1000 };
}

/** The middle of the slopes between any two points: one that is off does not count. */
function slopeOf(points: readonly (readonly [number, number])[]): number {
  return median(points.flatMap(([x, y], i) => points.slice(i + 1).map(([x2, y2]) => (y2 - y) / (x2 - x))));
}

async function cycle(session: Session, times: number): Promise<void> {
  for (let n = 1; n <= times; n++) {
    await session.park();
    await (n % CYCLES_PER_TURN === 0 ? session.turn(INPUT) : session.inputs());
  }
  await session.park();
}
