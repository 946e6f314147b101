import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import { createTroupe } from "troupe";

const NUMBERED = new URL("../plugins/numbered.js", import.meta.url);

/** What one start took, in a process that did nothing before. */
export interface StartSample {
  /** Until `createTroupe` has resolved, or every empty Worker is online. */
  readonly ms: number;
  /** Until every session worker answers as well. */
  readonly allMs: number;
  readonly cpuMs: number;
  readonly rssMb: number;
}

/** `bare <threads>`, or `troupe <plugins> [lazy|packages]`: starts once, says what it took on stdout, and ends. */
const [what, count = "0", how] = process.argv.slice(2);
const sample = what === "bare" ? await startBare(Number(count)) : await startTroupe(Number(count), how);
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

async function startTroupe(count: number, how: string | undefined): Promise<StartSample> {
  const folder = mkdtempSync(join(tmpdir(), "troupe-bench-"));
  const numbers = Array.from({ length: count }, (_, n) => n);
  if (how === "packages") installPackages(folder, numbers);
  const home =
    how === "packages" ? (n: number) => pathToFileURL(`${packageOf(folder, n)}/numbered.js`) : () => NUMBERED;
  const plugins = numbers.map((n) => ({ module: new URL(`?n=${n}`, home(n)), lazy: how === "lazy" }));
  const measured = measure();
  try {
    await using troupe = await createTroupe({ sessionWorkers: 2, store: { path: join(folder, "store") }, plugins });
    const { ms } = measured();
    await troupe.stats();
    const { ms: allMs, ...rest } = measured();
    return { ...rest, ms, allMs };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** As an application has plugins of many publishers: each in a package of its own beside Troupe. */
function installPackages(folder: string, numbers: readonly number[]): void {
  for (const n of numbers) {
    const root = packageOf(folder, n);
    mkdirSync(root, { recursive: true });
    writeFileSync(join(root, "package.json"), JSON.stringify({ name: basename(root), type: "module" }));
    copyFileSync(NUMBERED, join(root, "numbered.js"));
  }
  symlinkSync(fileURLToPath(new URL("../../..", import.meta.url)), join(folder, "node_modules/troupe"));
}

function packageOf(folder: string, n: number): string {
  return join(folder, `node_modules/plugin-${n}`);
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
