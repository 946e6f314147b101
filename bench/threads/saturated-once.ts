import { createTroupe } from "troupe";
import { codeOf, pause } from "../measuring/neighbours.js";
import { answerWith } from "../measuring/own-process.js";

/** Sessions that ask for turn after turn of a plugin that works for some time in each. */
export interface SaturatedPlan {
  readonly workMs: number;
  readonly sessions: number;
  readonly forMs: number;
  /** Over how many threads the plugin may spread; undefined: its default. */
  readonly shards?: number;
}

export interface SaturatedSample {
  /** Finished in the second half, when the plugin has as many threads as it will have. */
  readonly turnsPerSecond: number;
  readonly refused: Readonly<Record<string, number>>;
  readonly turns: number;
  readonly p50: number;
  readonly p99: number;
  readonly restarts: number;
  readonly threads: number;
}

answerWith(await saturate(JSON.parse(process.argv[2] ?? "{}") as SaturatedPlan));

async function saturate({ workMs, sessions, forMs, shards }: SaturatedPlan): Promise<SaturatedSample> {
  const module = new URL(`../plugins/works.js?ms=${workMs}`, import.meta.url);
  await using troupe = await createTroupe({
    sessionWorkers: 2,
    plugins: [{ module, ...(shards !== undefined && { shards }) }],
  });
  const opened = await Promise.all(Array.from({ length: sessions }, (_, n) => troupe.session(`session-${n}`)));
  const refused: Record<string, number> = {};
  const ends: number[] = [];
  const took: number[] = [];
  let isOver = false;
  const loops = opened.map(async (session) => {
    while (!isOver) {
      const at = performance.now();
      const code = await session.turn("hi").then(() => undefined, codeOf);
      ends.push(performance.now());
      took.push(performance.now() - at);
      if (code !== undefined) refused[code] = (refused[code] ?? 0) + 1;
    }
  });
  await pause(forMs / 2);
  const half = performance.now();
  await pause(forMs / 2);
  isOver = true;
  const end = performance.now();
  await Promise.all(loops);
  const [plugin] = (await troupe.stats()).plugins;
  took.sort((a, b) => a - b);
  return {
    turnsPerSecond: ends.filter((at) => at >= half && at < end).length / ((end - half) / 1000),
    refused,
    turns: took.length,
    p50: took[Math.floor(took.length * 0.5)] ?? Number.NaN,
    p99: took[Math.floor(took.length * 0.99)] ?? Number.NaN,
    restarts: plugin?.restarts ?? 0,
    threads: plugin?.threads ?? 0,
  };
}
