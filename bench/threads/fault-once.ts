import { monitorEventLoopDelay } from "node:perf_hooks";
import { createTroupe, type PluginEntry, type Session, scriptedModel, type Troupe, type TurnResult } from "troupe";
import { codeOf, type Felt, felt, Neighbours, pause } from "../measuring/neighbours.js";
import { answerWith } from "../measuring/own-process.js";
import type { Deed } from "../plugins/deeds.js";

export type FaultTier = "own" | "group" | "inline";

/** One session does something to a plugin's thread, once or in a loop, beside sessions that share the plugin or do not. */
export interface FaultPlan {
  readonly deed: Deed;
  readonly tier: FaultTier;
  readonly loop: boolean;
  readonly each: number;
  readonly paceMs: number;
  readonly warmMs: number;
  readonly forMs: number;
}

export interface FaultSample {
  /** Sessions that share the faulty plugin, and those that do without it. */
  readonly same: Felt;
  readonly others: Felt;
  readonly quietP99: number;
  /** Why innocent turns were refused. */
  readonly refusals: Readonly<Record<string, number>>;
  /** What the bad session was told. */
  readonly told: readonly string[];
  readonly restarts: number;
  readonly rssMb: number;
  /** The longest the main thread stood still. */
  readonly mainBlockedMs: number;
}

const FAULTY = "bench.deeds";
const module = (name: string) => new URL(`../plugins/${name}.js`, import.meta.url);

/** The deeds that are a model's. */
const MODELS = {
  schema: scriptedModel([{ toolCalls: [{ tool: "word", args: { word: `${"a".repeat(60)}!` } }] }, { text: "done" }]),
  model: new URL("./floating-model.js", import.meta.url),
};

/** How a turn ended, or its tool. */
function endOf({ outcome, toolCalls }: TurnResult): string {
  const failed = toolCalls.find(({ output }) => output.status === "failure")?.output;
  return failed?.status === "failure" ? failed.failure.code : outcome.type;
}

answerWith(await measure(JSON.parse(process.argv[2] ?? "{}") as FaultPlan));

function pluginsOf(tier: FaultTier): PluginEntry[] {
  const group = tier === "group" ? { group: "ours" } : {};
  return [
    { module: module("deeds"), optionalInChildren: true, tier: tier === "inline" ? "inline" : "worker", ...group },
    { module: module("counter"), ...group },
  ];
}

async function measure({ deed, tier, loop, each, paceMs, warmMs, forMs }: FaultPlan): Promise<FaultSample> {
  await using troupe = await createTroupe({
    sessionWorkers: 2,
    plugins: pluginsOf(tier),
    models: MODELS,
    drainMs: 1_000,
  });
  const bad = await troupe.session("bad");
  await bad.turn("hi");
  const sharing = await Promise.all(Array.from({ length: each }, (_, n) => troupe.session(`same-${n}`)));
  const same = new Neighbours(sharing, paceMs);
  const others = new Neighbours(await without(troupe, each), paceMs);
  await pause(warmMs);

  const delay = monitorEventLoopDelay({ resolution: 10 });
  delay.enable();
  const from = performance.now();
  let rssMb = 0;
  const rss = setInterval(() => {
    rssMb = Math.max(rssMb, process.memoryUsage.rss() / 2 ** 20);
  }, 50);
  const told: string[] = [];
  do {
    const left = new AbortController();
    const model = Object.hasOwn(MODELS, deed) ? { model: deed } : {};
    const how = bad.turn(`deed:${deed}`, model).then(endOf, codeOf);
    told.push(await Promise.race([how, pause(from + forMs - performance.now(), left.signal).then(() => "waits")]));
    left.abort();
    await pause(paceMs);
  } while (loop && performance.now() < from + forMs);
  await pause(Math.max(0, from + forMs - performance.now()));
  clearInterval(rss);
  delay.disable();
  await Promise.all([same.stop(), others.stop()]);

  const within = ({ samples }: Neighbours) => felt(samples.filter(({ at, ms }) => at + ms > from));
  const before = [...same.samples, ...others.samples].filter(({ at, ms }) => at + ms < from && at > from - warmMs / 2);
  return {
    same: within(same),
    others: within(others),
    quietP99: felt(before).p99,
    refusals: { ...same.refusals, ...others.refusals },
    told: [...new Set(told)],
    restarts: (await troupe.stats()).plugins[0]?.restarts ?? 0,
    rssMb,
    mainBlockedMs: delay.max / 1e6,
  };
}

/** Sessions without the faulty plugin, on the same session workers. */
async function without(troupe: Troupe, count: number): Promise<Session[]> {
  const root = await troupe.session("root");
  await root.turn("hi");
  const authority = { withoutPlugins: [FAULTY] };
  return Promise.all(Array.from({ length: count }, (_, n) => root.fork({ id: `other-${n}`, authority })));
}
