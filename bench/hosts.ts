import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { createTroupe, scriptedModel, type Troupe } from "troupe";
import { answerOf } from "./measuring/own-process.js";
import { INPUT, lookUp, lookUpInput, SCRIPT } from "./measuring/reference-turn.js";
import type { Bar, Bench, BenchRun, Table } from "./measuring/report.js";
import { type Contender, compare, median, middle, takeRounds } from "./measuring/sampling.js";
import type { IdlePlan, IdleSample } from "./threads/idle-once.js";
import type { SaturatedPlan, SaturatedSample } from "./threads/saturated-once.js";
import type { StartSample } from "./threads/start-once.js";

const IDLE = new URL("./threads/idle-once.js", import.meta.url);
const SATURATED = new URL("./threads/saturated-once.js", import.meta.url);
const START = fileURLToPath(new URL("./threads/start-once.js", import.meta.url));
const BUSY: Pick<SaturatedPlan, "workMs" | "sessions"> = { workMs: 2, sessions: 32 };
const GROUPED = 16;
const PLUGINS = 200;
const PARTS = ["busy", "group", "idle"];

const BARS: readonly Bar[] = [
  {
    id: "busy_plugin_2_vs_1",
    atLeast: 1.6,
    says: "turns/s of a plugin with 2 ms of work per hook: two threads over one, on two cores",
  },
  { id: "group_16_vs_1", atMost: 1.3, says: "turn p50 with 16 plugins of four hooks in one group, over one plugin" },
  { id: "idle_200_share", atMost: 0.02, says: "of a core, idle, with 200 plugins in one group, all called" },
  { id: "idle_200_uncalled_share", says: "the same, 200 plugins each in its own group, none ever called" },
  { id: "idle_200_own_share", says: "the same, 200 plugins each in its own group, all called" },
  { id: "group_200_start_vs_bare", says: "start with 200 plugins in one group, over two empty Workers" },
  { id: "group_200_rss_vs_bare", says: "memory of the process with 200 plugins in one group, over two empty Workers" },
];

export const hosts: Bench = {
  name: "hosts",
  question: "What do plugin hosts cost, and what do several of them bring?",
  bars: BARS,
  async run(run) {
    const isChosen = (part: string) => run.only.length === 0 || run.only.includes(part);
    if (!PARTS.some(isChosen)) throw new Error(`The parts are ${PARTS.join(", ")}.`);
    const measured: Measured = { ratios: {}, samples: { node: process.version } };
    const tables: Table[] = [];
    if (isChosen("busy")) tables.push(await busy(run, measured));
    if (isChosen("group")) tables.push(await grouped(run, measured));
    if (isChosen("idle")) tables.push(await idle(run, measured));
    return {
      ...measured,
      tables,
      notes: [
        "A busy plugin's turns are counted in the second half of each run, when it has as many threads as it will have; session workers and the main thread share the two cores with it.",
        "A plugin nobody has called gives its thread back 10 s after the start; the third row is taken behind that.",
      ],
    };
  },
};

interface Measured {
  readonly ratios: Record<string, number>;
  readonly samples: Record<string, unknown>;
}

async function busy(run: BenchRun, { ratios, samples }: Measured): Promise<Table> {
  const rounds = run.quick ? 1 : 5;
  const taken: Record<1 | 2, SaturatedSample>[] = [];
  for (let round = 1; round <= rounds; round++) {
    const of = async (shards: 1 | 2) => {
      run.progress(`a plugin with ${BUSY.workMs} ms of work, ${shards} of its threads at most, ${round} of ${rounds}`);
      const plan: SaturatedPlan = { ...BUSY, shards, forMs: run.quick ? 4_000 : 5_000 };
      return answerOf<SaturatedSample>(SATURATED, [JSON.stringify(plan)]);
    };
    taken.push({ 1: await of(1), 2: await of(2) });
  }
  ratios.busy_plugin_2_vs_1 = median(taken.map((round) => round[2].turnsPerSecond / round[1].turnsPerSecond));
  samples.busy = taken;
  const rowOf = (shards: 1 | 2) => {
    const of = (figure: "turnsPerSecond" | "p50" | "p99" | "threads") =>
      median(taken.map((each) => each[shards][figure]));
    return [shards, of("threads"), of("turnsPerSecond"), of("p50"), of("p99")];
  };
  return {
    title: `A plugin with ${BUSY.workMs} ms of work per hook, ${BUSY.sessions} sessions in a loop`,
    columns: ["threads at most", "threads", "turns/s", "p50 ms", "p99 ms"],
    rows: [rowOf(1), rowOf(2)],
  };
}

/** One session, turn after turn: what more plugins add to each. */
async function grouped(run: BenchRun, { ratios, samples }: Measured): Promise<Table> {
  const variants = [
    { name: "one", plugins: 1, says: "1 plugin" },
    { name: "grouped", plugins: GROUPED, group: true, says: `${GROUPED} plugins in one group` },
    { name: "apart", plugins: GROUPED, says: `${GROUPED} plugins, each in its own` },
  ] as const;
  const troupes: Troupe[] = [];
  try {
    const laps: Contender<(typeof variants)[number]["name"]>[] = [];
    for (const { name, plugins, says, ...how } of variants) {
      run.progress(`starting: ${says}`);
      const troupe = await createTroupe({
        sessionWorkers: 2,
        model: scriptedModel(SCRIPT),
        tools: { look_up: { description: "Looks a city up.", inputSchema: lookUpInput, execute: lookUp } },
        plugins: Array.from({ length: plugins }, (_, n) => ({
          module: new URL(`./plugins/four-hooks.js?n=${n}`, import.meta.url),
          ...("group" in how && { group: "ours" }),
        })),
      });
      troupes.push(troupe);
      laps.push(await lapOf(name, troupe));
    }
    const rounds = await takeRounds(laps, {
      budgetMs: run.quick ? 6_000 : 20_000,
      slotMs: 300,
      least: 5,
      onRound: (count) => run.progress(`turns with ${GROUPED} plugins, round ${count}`),
    });
    ratios.group_16_vs_1 = compare(rounds, (round) => round.grouped / round.one).middle;
    samples.grouped = rounds;
    return {
      title: "A turn with a tool call and four hooks of each plugin, p50",
      columns: ["plugins", "ms"],
      rows: variants.map(({ name, says }) => [says, middle(rounds, name) / 1000]),
    };
  } finally {
    run.progress("closing");
    await Promise.all(troupes.map((troupe) => troupe.close()));
  }
}

async function lapOf<Name extends string>(name: Name, troupe: Troupe): Promise<Contender<Name>> {
  const session = await troupe.session("session");
  return {
    name,
    async measure(ms) {
      const took: number[] = [];
      for (const until = performance.now() + ms; performance.now() < until; ) {
        const asked = performance.now();
        const { outcome } = await session.turn(INPUT);
        if (outcome.type !== "finished") throw new Error(`A turn ended as ${outcome.type}.`);
        took.push((performance.now() - asked) * 1000);
      }
      return median(took);
    },
  };
}

async function idle(run: BenchRun, { ratios, samples }: Measured): Promise<Table> {
  const idleMs = run.quick ? 2_000 : 5_000;
  const plans = {
    grouped: { plugins: PLUGINS, group: true, called: true, idleMs },
    uncalled: { plugins: PLUGINS, group: false, called: false, idleMs },
    ...(!run.quick && { own: { plugins: PLUGINS, group: false, called: true, idleMs } }),
  } satisfies Record<string, IdlePlan>;
  run.progress("two empty Workers");
  const { stdout } = await promisify(execFile)(process.execPath, [START, "bare", "2"]);
  const bare = JSON.parse(stdout) as StartSample;
  const taken: Record<string, IdleSample> = {};
  for (const [name, plan] of Object.entries(plans)) {
    run.progress(`${PLUGINS} plugins, idle: ${name}`);
    taken[name] = await answerOf<IdleSample>(IDLE, [JSON.stringify(plan)]);
  }
  const { grouped, uncalled, own } = taken;
  if (grouped !== undefined) {
    ratios.idle_200_share = grouped.idleShare;
    ratios.group_200_start_vs_bare = grouped.startMs / bare.ms;
    ratios.group_200_rss_vs_bare = grouped.startRssMb / bare.rssMb;
  }
  if (uncalled !== undefined) ratios.idle_200_uncalled_share = uncalled.idleShare;
  if (own !== undefined) ratios.idle_200_own_share = own.idleShare;
  samples.idle = { bare, ...taken };
  const says: Record<string, string> = {
    grouped: "in one group, all called",
    uncalled: "each in its own, none called",
    own: "each in its own, all called",
  };
  return {
    title: `${PLUGINS} plugins, and a runtime with nothing to do`,
    columns: ["plugins", "start ms", "RSS MB then", "first turn ms", "threads", "RSS MB idle", "% of a core"],
    rows: [
      ["two empty Workers, no Troupe", bare.ms, bare.rssMb, "-", 2, "-", "-"],
      ...Object.entries(taken).map(([name, each]) => [
        ...[says[name] ?? name, each.startMs, each.startRssMb, each.turnMs ?? "-"],
        ...[each.threads, each.rssMb, each.idleShare * 100],
      ]),
    ],
  };
}
