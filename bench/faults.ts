import { inOwnProcess, type OwnProcess } from "./measuring/own-process.js";
import type { Bar, Bench } from "./measuring/report.js";
import type { Deed } from "./plugins/deeds.js";
import type { FaultPlan, FaultSample, FaultTier } from "./threads/fault-once.js";

const PROGRAM = new URL("./threads/fault-once.js", import.meta.url);
const EACH = 10;
const PACE_MS = 40;

interface Shape {
  readonly deed: Deed;
  readonly says: string;
  readonly loop?: boolean;
  /** What an inline plugin does, the session worker does: shown where that says something. */
  readonly inline?: boolean;
  /** Part of a quick run. */
  readonly quick?: boolean;
}

const SHAPES: readonly Shape[] = [
  { deed: "throw", says: "throws", inline: true, quick: true },
  { deed: "recursion", says: "recurses without an end", inline: true },
  { deed: "never", says: "never resolves", inline: true },
  { deed: "rejection", says: "a rejection nobody waits for", inline: true },
  { deed: "exit", says: "process.exit, once", inline: true },
  { deed: "exit", says: "process.exit, in a loop", loop: true, quick: true },
  { deed: "spin-200", says: "spins 200 ms, in a loop", loop: true },
  { deed: "spin-400", says: "spins 400 ms, once" },
  { deed: "spin-900", says: "spins 900 ms, in a loop", loop: true },
  { deed: "spin", says: "spins for ever", inline: true, quick: true },
  { deed: "wait", says: "Atomics.wait" },
  { deed: "microtasks", says: "microtasks without an end" },
  { deed: "regexp", says: "a pattern that backtracks" },
  { deed: "timers", says: "200,000 timers", quick: true },
  { deed: "leak", says: "fills the heap, behind awaits", quick: true },
  { deed: "buffers", says: "Buffers, behind awaits" },
  { deed: "flood", says: "200,000 messages on parentPort", quick: true },
  { deed: "print", says: "300,000 console.log" },
  { deed: "large", says: "an answer of 300 MB" },
  { deed: "native", says: "a native call of seconds" },
  { deed: "patch", says: "patches Map, push, nextTick" },
  { deed: "thenable", says: "patches Object.prototype.then" },
  { deed: "schema", says: "a tool's pattern that backtracks", inline: true },
  { deed: "model", says: "a model's floating rejection", inline: true },
];
const TIERS: readonly FaultTier[] = ["own", "group", "inline"];
const TIER_SAYS: Readonly<Record<FaultTier, string>> = {
  own: "a plugin with threads of its own",
  group: "a plugin in a group; the others use another plugin of the group",
  inline: "an inline plugin",
};

const BARS: readonly Bar[] = [
  { id: "faults_refused_own", atMost: 0, says: "innocent turns refused, all shapes, a plugin with threads of its own" },
  { id: "faults_refused_group", atMost: 0, says: "the same, a plugin in a group" },
  { id: "faults_refused_inline", says: "the same, an inline plugin" },
  { id: "faults_died", atMost: 0, says: "shapes that ended the process" },
];

interface Cell {
  readonly tier: FaultTier;
  readonly shape: string;
  readonly loop: boolean;
  readonly result: OwnProcess<FaultSample>;
}

export const faults: Bench = {
  name: "faults",
  question: "What do neighbours feel of each fault of a plugin?",
  bars: BARS,
  async run({ quick, only, progress }) {
    const cells: Cell[] = [];
    for (const tier of TIERS) {
      for (const { deed, says, loop = false, inline = false, quick: isQuick = false } of SHAPES) {
        if (tier === "inline" ? !inline || quick : quick && !isQuick) continue;
        if (only.length > 0 && !only.includes(deed) && !only.includes(tier)) continue;
        progress(`${TIER_SAYS[tier]}: ${says}`);
        const times = quick ? { warmMs: 800, forMs: 1_000 } : { warmMs: 1_500, forMs: 4_000 };
        const plan: FaultPlan = { deed, tier, loop, each: EACH, paceMs: PACE_MS, ...times };
        const result = await inOwnProcess<FaultSample>(PROGRAM, [JSON.stringify(plan)]);
        cells.push({ tier, shape: says, loop, result });
      }
    }
    const refused = (tier: FaultTier) =>
      of(cells, tier).reduce((sum, { result: { answer } }) => sum + refusedIn(answer), 0);
    const measured = TIERS.filter((tier) => of(cells, tier).length > 0);
    return {
      ratios: {
        ...Object.fromEntries(measured.map((tier) => [`faults_refused_${tier}`, refused(tier)])),
        faults_died: cells.filter(({ result }) => result.answer === undefined).length,
      },
      samples: { node: process.version, cells },
      tables: measured.map((tier) => ({
        title: `${TIER_SAYS[tier]}: turns in ms of ${EACH} sessions that share the plugin, and of ${EACH} that do not`,
        columns: [
          ...["one session", "quiet p99", "same p50", "p99", "max", "refused", "others p50", "p99", "max", "refused"],
          ...["main stood", "RSS MB", "restarts", "it was told"],
        ],
        rows: of(cells, tier).map(rowOf),
      })),
      notes: [
        `Every row is a process of its own, with two session workers; sessions ask for a turn every ${PACE_MS} ms, and a turn counts that was under way at the deed or behind it. The deed is done once where no loop is said.`,
      ],
    };
  },
};

const of = (cells: readonly Cell[], tier: FaultTier) => cells.filter((cell) => cell.tier === tier);

function refusedIn(sample: FaultSample | undefined): number {
  return sample === undefined ? 0 : sample.same.refused + sample.others.refused;
}

function rowOf({ shape, result: { answer, died } }: Cell): (string | number)[] {
  if (answer === undefined) return [shape, `the process died: ${died?.slice(0, 60).replaceAll("\n", " ")}`];
  const { quietP99, same, others, mainBlockedMs, rssMb, restarts, told } = answer;
  return [
    ...[
      shape,
      quietP99,
      same.p50,
      same.p99,
      same.max,
      same.refused,
      others.p50,
      others.p99,
      others.max,
      others.refused,
    ],
    ...[mainBlockedMs, rssMb, restarts, told.map((code) => code.split(" < ").at(-1)).join(", ")],
  ];
}
