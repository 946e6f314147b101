import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createTroupe, type StoreOptions, type Troupe } from "troupe";
import { HELP, type RunOptions, readArguments } from "./args.js";
import { checkCounts, checkStore } from "./check.js";
import { Load } from "./load.js";
import { Screen, SHOW_CURSOR, summaryOf } from "./screen.js";
import { model } from "./script.js";
import { untilInterrupted } from "./stop.js";
import { weather } from "./tools/weather.js";

const COUNTS_WRONG = 1;
const NOT_STARTED = 2;

async function main(): Promise<number> {
  const read = readArguments(process.argv.slice(2));
  switch (read.kind) {
    case "help":
      process.stdout.write(HELP);
      return 0;
    case "wrong":
      process.stderr.write(`${read.message}\nTry --help.\n`);
      return NOT_STARTED;
    case "run":
      return runIn(read.options);
  }
}

/** Makes the store's folder where one is needed and removes it whatever happens. */
async function runIn(options: RunOptions): Promise<number> {
  const { store } = options;
  const folder = store.kind === "temporary" ? mkdtempSync(join(tmpdir(), "troupe-host-")) : undefined;
  const cleanUp = () => {
    if (process.stdout.isTTY) process.stdout.write(SHOW_CURSOR);
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  };
  const interrupted = untilInterrupted(cleanUp);
  try {
    if (folder !== undefined) return await host(options, { path: folder }, interrupted);
    return await host(options, store.kind === "kept" ? { path: store.path } : { memory: true }, interrupted);
  } finally {
    cleanUp();
  }
}

/** Starts the runtime, asks until time is up, closes, and says whether the counts are right. */
async function host(options: RunOptions, store: StoreOptions, interrupted: AbortSignal): Promise<number> {
  process.stdout.write(`Opening ${options.sessions} sessions, stored in ${"path" in store ? store.path : "memory"}.\n`);
  let troupe: Troupe;
  try {
    troupe = await start(store, options);
  } catch (error) {
    process.stderr.write(`The runtime could not start: ${error instanceof Error ? error.message : error}\n`);
    return NOT_STARTED;
  }
  await using running = troupe;
  const load = new Load(running, options);
  await load.open(options.sessions);
  const screen = new Screen(running, load, options);
  await load.run(options.seconds * 1_000, interrupted);
  const { elapsedMs } = screen;
  await screen.stop();
  const stats = await running.stats();
  const problems = await checkCounts(running, load);
  await running.close();
  if ("path" in store) problems.push(...(await checkStore(store.path, load)));
  process.stdout.write(summaryOf({ options, load, stats, elapsedMs, problems }));
  return problems.length === 0 ? 0 : COUNTS_WRONG;
}

function start(store: StoreOptions, { seed }: RunOptions): Promise<Troupe> {
  return createTroupe({
    model,
    store,
    instructions: "Answer briefly.",
    plugins: [
      { module: new URL("./plugins/guard.js", import.meta.url), options: { largest: 100_000 } },
      { module: new URL("./plugins/meter.js", import.meta.url) },
      {
        module: new URL("./plugins/chaos.js", import.meta.url),
        options: { seed, throws: 500, hangs: 200, blocks: 30, crashes: 60 },
        deadlineMs: 2_000,
        blockedMs: 500,
      },
    ],
    tools: { weather, primes: { module: new URL("./tools/primes.js", import.meta.url) } },
  });
}

process.exitCode = await main();
