import { createTroupe, type Troupe } from "troupe";
import { pause } from "../measuring/neighbours.js";
import { answerWith } from "../measuring/own-process.js";

/** A runtime with many plugins that has nothing to do. */
export interface IdlePlan {
  readonly plugins: number;
  /** In one group, or each in its own. */
  readonly group: boolean;
  /** A turn calls every plugin before it is idle; otherwise nobody ever does. */
  readonly called: boolean;
  readonly idleMs: number;
}

export interface IdleSample {
  readonly startMs: number;
  readonly startRssMb: number;
  readonly turnMs: number | undefined;
  /** Threads of plugins while it is idle, and what the process then takes: of memory, and of a core. */
  readonly threads: number;
  readonly rssMb: number;
  readonly idleShare: number;
}

answerWith(await measure(JSON.parse(process.argv[2] ?? "{}") as IdlePlan));

async function measure({ plugins, group, called, idleMs }: IdlePlan): Promise<IdleSample> {
  const module = (n: number) => new URL(`../plugins/numbered.js?n=${n}`, import.meta.url);
  const started = performance.now();
  await using troupe = await createTroupe({
    sessionWorkers: 2,
    plugins: Array.from({ length: plugins }, (_, n) => ({ module: module(n), ...(group && { group: "ours" }) })),
  });
  const startMs = performance.now() - started;
  const startRssMb = rssMb();
  let turnMs: number | undefined;
  if (called) {
    const session = await troupe.session("session");
    const asked = performance.now();
    await session.turn("hi");
    turnMs = performance.now() - asked;
  } else {
    // A plugin nobody calls gives its thread back after a while.
    while ((await threadsOf(troupe)) > 0) await pause(500);
  }
  await pause(1_000);
  const cpu = process.cpuUsage();
  const from = performance.now();
  await pause(idleMs);
  const { user, system } = process.cpuUsage(cpu);
  const idleShare = (user + system) / 1000 / (performance.now() - from);
  return { startMs, startRssMb, turnMs, threads: await threadsOf(troupe), rssMb: rssMb(), idleShare };
}

async function threadsOf(troupe: Troupe): Promise<number> {
  const groups = new Map<number, number>();
  const { plugins } = await troupe.stats();
  for (const { threadId, threads } of plugins) if (threadId >= 0) groups.set(threadId, threads);
  return [...groups.values()].reduce((sum, threads) => sum + threads, 0);
}

function rssMb(): number {
  return process.memoryUsage.rss() / 2 ** 20;
}
