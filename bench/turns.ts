import { mkdtemp, rm } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { createTroupe, scriptedModel, type TroupeStats, type TurnResult } from "troupe";
import { bareTurns, HOOK_KINDS, INPUT, SCRIPT } from "./measuring/reference-turn.js";
import type { Bar, Bench, BenchResult, BenchRun } from "./measuring/report.js";
import { type Contender, compare, median, middle, quantile, type Rounds, takeRounds } from "./measuring/sampling.js";

const SESSIONS = 50;
const PLUGIN_ID = "bench.reference";

const BARS: readonly Bar[] = [
  { id: "turn_added_us_inline", says: "us per turn over the bare loop: hooks and tool inline, memory" },
  { id: "turn_added_us_isolated", says: "us per turn over the bare loop: hooks and tool isolated, memory" },
  { id: "turn_added_us_durable", says: "us per turn over the bare loop: isolated, embedded store, synced, journaled" },
  { id: "turn_added_us_committed", says: "us per turn over the bare loop: the same without the journal" },
  { id: "main_messages_per_turn", atMost: 2, says: "messages the main thread gets per turn, the most of any variant" },
];

interface VariantPlan {
  readonly name: Variant;
  readonly says: string;
  readonly tier: "inline" | "worker";
  readonly plugin: string;
  readonly durable: boolean;
  readonly journal?: boolean;
}
type Variant = "inline" | "isolated" | "durable" | "committed" | "stateful";
type Lap = "bare" | Variant;

const VARIANTS: readonly VariantPlan[] = [
  { name: "inline", says: "hooks inline, memory", tier: "inline", plugin: "reference", durable: false },
  { name: "isolated", says: "hooks isolated, memory", tier: "worker", plugin: "reference", durable: false },
  {
    name: "durable",
    says: "hooks isolated, embedded store, synced, journaled",
    tier: "worker",
    plugin: "reference",
    durable: true,
  },
  {
    name: "committed",
    says: "as durable, without the journal: one write per turn",
    tier: "worker",
    plugin: "reference",
    durable: true,
    journal: false,
  },
  {
    name: "stateful",
    says: "as isolated, and plugin state changes and is stored every turn",
    tier: "worker",
    plugin: "reference-stateful",
    durable: false,
  },
];

export const turns: Bench = {
  name: "turns",
  question: `What does the runtime add to a turn? (${SESSIONS} sessions in flight)`,
  bars: BARS,
  async run(run) {
    const chosen = VARIANTS.filter(({ name }) => run.only.length === 0 || run.only.includes(name));
    if (chosen.length === 0) throw new Error(`The variants are ${VARIANTS.map(({ name }) => name).join(", ")}.`);
    const runtimes: Runtime[] = [];
    try {
      for (const plan of chosen) {
        run.progress(`starting: ${plan.says}`);
        runtimes.push(await startRuntime(plan));
      }
      return await measure(run, runtimes);
    } finally {
      run.progress("closing");
      await Promise.all(runtimes.map((runtime) => runtime.close()));
    }
  },
};

async function measure(run: BenchRun, runtimes: readonly Runtime[]): Promise<BenchResult> {
  run.progress("warming up");
  // Until the compiler has seen a few thousand turns the figures say more about it than about the runtime.
  for (const runtime of runtimes) for (let i = 0; i < (run.quick ? 2 : 4); i++) await runtime.lap.measure(300);
  for (const runtime of runtimes) runtime.forget();
  const laps: Contender<Lap>[] = [bareLap(), ...runtimes.map(({ lap }) => lap)];
  const rounds = await takeRounds(laps, {
    budgetMs: run.quick ? 14_000 : 60_000,
    slotMs: run.quick ? 150 : 250,
    least: 3,
    onRound: (count) => run.progress(`round ${count}`),
  });
  return resultOf(rounds, runtimes);
}

interface Runtime {
  readonly plan: VariantPlan;
  readonly lap: Contender<Variant>;
  readonly latencies: number[];
  readonly messagesPerTurn: number[];
  /** Processor time per turn, all threads of the process together. */
  readonly cpuUsPerTurn: number[];
  /** Drops what was seen while warming up. */
  forget(): void;
  close(): Promise<void>;
}

async function startRuntime(plan: VariantPlan): Promise<Runtime> {
  const folder = plan.durable ? await mkdtemp(join(tmpdir(), "troupe-bench-")) : undefined;
  const troupe = await createTroupe({
    model: scriptedModel(SCRIPT),
    plugins: [{ module: new URL(`./plugins/${plan.plugin}.js`, import.meta.url), tier: plan.tier }],
    store: folder === undefined ? { memory: true } : { path: folder },
    ...(plan.journal !== undefined && { journal: plan.journal }),
  });
  const sessions = await Promise.all(Array.from({ length: SESSIONS }, (_, n) => troupe.session(`session-${n}`)));
  const latencies: number[] = [];
  const messagesPerTurn: number[] = [];
  const cpuUsPerTurn: number[] = [];
  let turnsPerSession = 4;

  const ask = async (session: (typeof sessions)[number], count: number) => {
    for (let i = 0; i < count; i++) {
      const started = performance.now();
      const result = await session.turn(INPUT);
      latencies.push(performance.now() - started);
      checkTurn(result);
    }
  };
  const lap: Contender<Variant> = {
    name: plan.name,
    async measure(ms) {
      const before = await troupe.stats();
      const cpu = process.cpuUsage();
      const started = performance.now();
      await Promise.all(sessions.map((session) => ask(session, turnsPerSession)));
      const took = performance.now() - started;
      const { user, system } = process.cpuUsage(cpu);
      const asked = SESSIONS * turnsPerSession;
      const after = await troupe.stats();
      checkCounts(before, after, asked);
      messagesPerTurn.push((after.mainMessages.lane - before.mainMessages.lane) / asked);
      cpuUsPerTurn.push((user + system) / asked);
      turnsPerSession = Math.max(2, Math.round((turnsPerSession * ms) / took));
      return (took * 1000) / asked;
    },
  };
  return {
    plan,
    lap,
    latencies,
    messagesPerTurn,
    cpuUsPerTurn,
    forget() {
      cpuUsPerTurn.length = 0;
      latencies.length = 0;
      messagesPerTurn.length = 0;
    },
    async close() {
      await troupe.close();
      if (folder !== undefined) await rm(folder, { recursive: true, force: true });
    },
  };
}

function bareLap(): Contender<"bare"> {
  const turn = bareTurns();
  let turnsPerSession = 50;
  const ask = async (session: string, count: number) => {
    for (let i = 0; i < count; i++) {
      const text = await turn(session);
      if (text !== "It is 21 degrees in Oslo.") throw new Error(`The bare turn answered "${text}".`);
    }
  };
  return {
    name: "bare",
    async measure(ms) {
      const started = performance.now();
      await Promise.all(Array.from({ length: SESSIONS }, (_, n) => ask(`session-${n}`, turnsPerSession)));
      const took = performance.now() - started;
      const asked = SESSIONS * turnsPerSession;
      turnsPerSession = Math.max(2, Math.round((turnsPerSession * ms) / took));
      return (took * 1000) / asked;
    },
  };
}

/** A turn that did less than the reference turn would make every figure a lie. */
function checkTurn({ outcome, modelCalls, toolCalls, issues }: TurnResult): void {
  const toolStatus = toolCalls[0]?.output.status;
  if (outcome.type === "finished" && modelCalls === 2 && toolCalls.length === 1 && toolStatus === "success") return;
  const found = JSON.stringify({ outcome, modelCalls, toolCalls, issues });
  throw new Error(`A turn was not the reference turn of 2 model calls and 1 tool call: ${found}`);
}

function checkCounts(before: TroupeStats, after: TroupeStats, asked: number): void {
  for (const kind of HOOK_KINDS) {
    const phase = `plugin_hook.${kind}.${PLUGIN_ID}`;
    const called = (after.hooks[phase]?.count ?? 0) - (before.hooks[phase]?.count ?? 0);
    if (called !== asked) throw new Error(`${kind} was called ${called} times in ${asked} turns.`);
  }
  const finished = after.turns.finished - before.turns.finished;
  if (finished !== asked) throw new Error(`${finished} of ${asked} turns finished.`);
}

function resultOf(rounds: Rounds<Lap>, runtimes: readonly Runtime[]): BenchResult {
  const bare = middle(rounds, "bare");
  const added = (name: Variant) => compare(rounds, (round) => round[name] - round.bare);
  const perVariant = runtimes.map(({ plan, latencies, messagesPerTurn, cpuUsPerTurn }) => {
    const { name, says } = plan;
    const { middle: addedUs, low, high } = added(name);
    const us = middle(rounds, name);
    return {
      name,
      says,
      us,
      addedUs,
      spread: [low, high],
      turnsPerSecond: 1e6 / us,
      cpuUs: median(cpuUsPerTurn),
      turns: latencies.length,
      p50Ms: quantile(latencies, 0.5),
      p99Ms: quantile(latencies, 0.99),
      mainMessagesPerTurn: median(messagesPerTurn),
    };
  });
  const judged = perVariant.filter(({ name }) => name !== "stateful");
  return {
    ratios: {
      ...Object.fromEntries(judged.map(({ name, addedUs }) => [`turn_added_us_${name}`, addedUs])),
      main_messages_per_turn: Math.max(...perVariant.map(({ mainMessagesPerTurn }) => mainMessagesPerTurn)),
    },
    samples: {
      node: process.version,
      cores: availableParallelism(),
      sessions: SESSIONS,
      rounds: rounds.length,
      bare: { us: bare, turnsPerSecond: 1e6 / bare },
      variants: perVariant,
    },
    tables: [
      {
        title: "The reference turn: 2 model calls, 1 tool call, 4 hook calls",
        columns: ["variant", "turns/s", "us/turn", "added us", "cpu us", "p50 ms", "p99 ms", "main msgs/turn"],
        rows: [
          ["bare loop: model and tool only, one thread", 1e6 / bare, bare, "-", bare, "-", "-", "-"],
          ...perVariant.map((v) => [
            v.says,
            v.turnsPerSecond,
            v.us,
            v.addedUs,
            v.cpuUs,
            v.p50Ms,
            v.p99Ms,
            v.mainMessagesPerTurn,
          ]),
        ],
      },
    ],
    notes: [
      `us/turn is wall time over turns with ${SESSIONS} sessions in flight on ${availableParallelism()} cores; p50 and p99 are one turn's time among the ${SESSIONS}. cpu us is processor time of all threads together: what a turn costs a busy machine.`,
      "The tool is the plugin's own: isolated, it is a fifth hop to the plugin's thread in every turn.",
      "Counts are checked in every round: 2 model calls and 1 tool call in each result, 4 hook calls per turn in the histograms.",
      `${rounds.length} rounds, every variant in each; medians over rounds. Middle 80% of rounds: ${perVariant
        .map(({ name, spread: [low = 0, high = 0] }) => `${name} ${low.toFixed(0)}-${high.toFixed(0)}`)
        .join(", ")} us added.`,
    ],
  };
}
