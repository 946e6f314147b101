import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { createTroupe } from "troupe";

/** What one start took, in a process that did nothing before. */
export interface StartSample {
  /** Until `createTroupe` has resolved, or every empty Worker is online. */
  readonly ms: number;
  /** Until every session worker answers as well. */
  readonly allMs: number;
  readonly cpuMs: number;
  readonly rssMb: number;
}

/** `bare <threads>`, or `troupe <plugins> [lazy]`: starts once, says what it took on stdout, and ends. */
const [what, count = "0", lazy] = process.argv.slice(2);
const sample = what === "bare" ? await startBare(Number(count)) : await startTroupe(Number(count), lazy === "lazy");
process.stdout.write(JSON.stringify(sample));

async function startBare(threads: number): Promise<StartSample> {
  const measured = measure();
  const workers = Array.from({ length: threads }, () => new Worker("setInterval(() => {}, 1e6)", { eval: true }));
  await Promise.all(workers.map((worker) => new Promise((resolve) => worker.once("online", resolve))));
  const ms = measured().ms;
  const sample = { ...measured(), ms, allMs: ms };
  await Promise.all(workers.map((worker) => worker.terminate()));
  return sample;
}

async function startTroupe(plugins: number, lazy: boolean): Promise<StartSample> {
  const path = mkdtempSync(join(tmpdir(), "troupe-bench-"));
  const module = (n: number) => new URL(`../plugins/numbered.js?n=${n}`, import.meta.url);
  const measured = measure();
  try {
    await using troupe = await createTroupe({
      sessionWorkers: 2,
      store: { path },
      plugins: Array.from({ length: plugins }, (_, n) => ({ module: module(n), lazy })),
    });
    const { ms } = measured();
    await troupe.stats();
    const { ms: allMs, ...rest } = measured();
    return { ...rest, ms, allMs };
  } finally {
    rmSync(path, { recursive: true, force: true });
  }
}

function measure(): () => Omit<StartSample, "allMs"> {
  const started = performance.now();
  const before = process.cpuUsage();
  return () => {
    const { user, system } = process.cpuUsage(before);
    return {
      ms: performance.now() - started,
      cpuMs: (user + system) / 1000,
      rssMb: process.memoryUsage.rss() / 2 ** 20,
    };
  };
}
