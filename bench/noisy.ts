import { felt } from "./measuring/neighbours.js";
import { answerOf } from "./measuring/own-process.js";
import type { Bar, Bench, BenchRun, Table } from "./measuring/report.js";
import { quantile } from "./measuring/sampling.js";
import type { Deed } from "./plugins/deeds.js";
import type { NoisyPlan, NoisySample } from "./threads/noisy-once.js";
import type { SaturatedPlan, SaturatedSample } from "./threads/saturated-once.js";

const NOISY = new URL("./threads/noisy-once.js", import.meta.url);
const SATURATED = new URL("./threads/saturated-once.js", import.meta.url);
const GOOD = 20;
/** Each good session asks for a turn so often: together they use about half a core. */
const PACE_MS = 40;
const BLOCKED_MS = 250;
const SHORT_BLOCKED_MS = 50;

/** Judged: the four shapes. A native call is shown only: nothing in the process can end it. */
const DEEDS: readonly Deed[] = ["spin", "exit", "leak", "flood", "native"];
const FIRST: readonly { readonly id: string; readonly blockedMs: number }[] = [
  { id: "first_offence_ms", blockedMs: BLOCKED_MS },
  { id: "first_offence_50_ms", blockedMs: SHORT_BLOCKED_MS },
];
/** A healthy plugin that has more to do than its thread can: so many sessions in a loop, so much work in each turn. */
const SATURATED_PLANS: readonly Omit<SaturatedPlan, "forMs">[] = [
  { workMs: 1, sessions: 64 },
  { workMs: 0.2, sessions: 256 },
];
const PARTS = [...DEEDS, "first", "saturated"];

const idOf = (deed: Deed) => (deed === "spin" ? "noisy_neighbour_p99" : `noisy_${deed}_p99`);

const BARS: readonly Bar[] = [
  {
    id: idOf("spin"),
    atMost: 1.5,
    says: "good sessions' p99 while one spins their plugin again and again, over quiet, after its first two offences",
  },
  { id: idOf("exit"), atMost: 1.5, says: "the same while it ends the thread" },
  { id: idOf("leak"), atMost: 1.5, says: "the same while it fills the heap behind awaits" },
  { id: idOf("flood"), atMost: 1.5, says: "the same while it posts 200,000 messages to the main thread" },
  { id: idOf("native"), says: "the same while it blocks the thread in a native call of seconds" },
  { id: "noisy_refused", atMost: 0, says: "good turns refused in all of them, first offences included" },
  {
    id: "first_offence_ms",
    atMost: BLOCKED_MS + 150,
    says: `what the first spin costs a neighbour, p99 of each session's slowest turn, blockedMs ${BLOCKED_MS}`,
  },
  { id: "first_offence_50_ms", atMost: SHORT_BLOCKED_MS + 150, says: `the same with blockedMs ${SHORT_BLOCKED_MS}` },
  { id: "saturated_refused", atMost: 0, says: "turns refused with a healthy plugin that has more to do than it can" },
  { id: "saturated_restarts", atMost: 0, says: "threads of such a plugin that were replaced" },
];

export const noisy: Bench = {
  name: "noisy",
  question: `What do ${GOOD} sessions feel when another one harms a plugin they share?`,
  bars: BARS,
  async run(run) {
    const isChosen = (part: string) => run.only.length === 0 || run.only.includes(part);
    if (!PARTS.some(isChosen)) throw new Error(`The parts are ${PARTS.join(", ")}.`);
    const ratios: Record<string, number> = {};
    const samples: Record<string, unknown> = { node: process.version };
    const tables: Table[] = [];
    const deeds = DEEDS.filter((deed) => isChosen(deed) && !(run.quick && deed === "native"));
    if (deeds.length > 0) tables.push(await beside(run, deeds, ratios, samples));
    if (isChosen("first")) tables.push(await firstOffences(run, ratios, samples));
    if (isChosen("saturated")) tables.push(await saturated(run, ratios, samples));
    return {
      ratios,
      samples,
      tables,
      notes: [
        `${GOOD} good sessions ask for a turn every ${PACE_MS} ms; the bad one follows its last refusal by ${PACE_MS} ms. Two session workers, one shared plugin, every shape in a process of its own.`,
        "Quiet and noise take turns. The floor is the quiet p99 of every second slice over that of the others: what the same load differs by itself.",
        "After its third offence the bad session is refused without being asked, for 30 s.",
      ],
    };
  },
};

async function beside(
  run: BenchRun,
  deeds: readonly Deed[],
  ratios: Record<string, number>,
  samples: Record<string, unknown>,
): Promise<Table> {
  const rows: (string | number)[][] = [];
  let refused = 0;
  for (const deed of deeds) {
    run.progress(`${GOOD} good sessions and one that does: ${deed}`);
    const sample = await answerOf<NoisySample>(NOISY, [JSON.stringify(planOf(run, deed))]);
    const [quiet, loud, during] = [felt(sample.quiet.flat()), felt(sample.noisy), felt(sample.during)];
    const half = (which: number) => felt(sample.quiet.filter((_, n) => n % 2 === which).flat());
    const floor = half(1).p99 / half(0).p99;
    ratios[idOf(deed)] = loud.p99 / quiet.p99;
    const refusals = Object.values(sample.refused).reduce((sum, count) => sum + count, 0);
    refused += refusals;
    const { offences, quietCores, restarts } = sample;
    const deedsDone = offences.filter(({ how }) => !how.includes("session_quarantined")).length;
    samples[deed] = { quiet, noisy: loud, during, floor, refused: sample.refused, offences, quietCores, restarts };
    rows.push([
      ...[deed, quietCores, deedsDone, quiet.p50, quiet.p99, floor],
      ...[loud.p50, loud.p99, loud.max, during.p99, refusals],
    ]);
  }
  ratios.noisy_refused = refused;
  return {
    title: "Turns of the good sessions in ms, quiet and after the bad one's first two offences",
    columns: [
      ...["bad one", "cores", "deeds", "quiet p50", "p99", "floor"],
      ...["noisy p50", "p99", "max", "p99 during a deed", "refused"],
    ],
    rows,
  };
}

function planOf({ quick }: BenchRun, deed: Deed): NoisyPlan {
  const load = { deed, good: GOOD, paceMs: PACE_MS, blockedMs: BLOCKED_MS };
  if (quick) return { ...load, warmMs: 1_000, sliceMs: 1_200, slices: 2 };
  return { ...load, warmMs: 3_000, sliceMs: 2_500, slices: 8 };
}

/** Every first offence is the first of its process: nothing is ready for it. */
async function firstOffences(
  run: BenchRun,
  ratios: Record<string, number>,
  samples: Record<string, unknown>,
): Promise<Table> {
  const rounds = run.quick ? 2 : 8;
  const rows: (string | number)[][] = [];
  for (const { id, blockedMs } of FIRST) {
    const slowest: number[] = [];
    for (let round = 1; round <= rounds; round++) {
      run.progress(`first offence with blockedMs ${blockedMs}, ${round} of ${rounds}`);
      const plan: NoisyPlan = { ...planOf(run, "spin"), blockedMs, warmMs: 1_000, slices: 0 };
      const { first, refused } = await answerOf<NoisySample>(NOISY, [JSON.stringify(plan)]);
      slowest.push(...first);
      ratios.noisy_refused = Object.values(refused).reduce((sum, n) => sum + n, ratios.noisy_refused ?? 0);
    }
    ratios[id] = quantile(slowest, 0.99);
    samples[id] = slowest;
    rows.push([blockedMs, slowest.length, quantile(slowest, 0.5), quantile(slowest, 0.99), Math.max(...slowest)]);
  }
  return {
    title: "The first spin of all: each neighbour's slowest turn in ms",
    columns: ["blockedMs", "turns", "p50", "p99", "max"],
    rows,
  };
}

async function saturated(
  run: BenchRun,
  ratios: Record<string, number>,
  samples: Record<string, unknown>,
): Promise<Table> {
  const rows: (string | number)[][] = [];
  const all: SaturatedSample[] = [];
  for (const plan of SATURATED_PLANS) {
    run.progress(`a healthy plugin with ${plan.workMs} ms of work and ${plan.sessions} sessions in a loop`);
    const sample = await answerOf<SaturatedSample>(SATURATED, [
      JSON.stringify({ ...plan, forMs: run.quick ? 2_000 : 6_000 }),
    ]);
    all.push(sample);
    const { turns, turnsPerSecond, p50, p99, threads, restarts } = sample;
    const refused = refusedIn(sample);
    rows.push([plan.workMs, plan.sessions, turns, turnsPerSecond, p50, p99, threads, restarts, refused]);
  }
  ratios.saturated_refused = all.reduce((sum, sample) => sum + refusedIn(sample), 0);
  ratios.saturated_restarts = all.reduce((sum, { restarts }) => sum + restarts, 0);
  samples.saturated = all;
  return {
    title: "A healthy plugin with more to do than one thread can",
    columns: ["work ms", "sessions", "turns", "turns/s", "p50 ms", "p99 ms", "threads", "restarts", "refused"],
    rows,
  };
}

function refusedIn({ refused }: SaturatedSample): number {
  return Object.values(refused).reduce((sum, count) => sum + count, 0);
}
