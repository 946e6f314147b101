import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { createTroupe, scriptedModel } from "troupe";
import { INPUT, SCRIPT } from "./measuring/reference-turn.js";
import type { Bench, BenchRun } from "./measuring/report.js";
import { median } from "./measuring/sampling.js";
import type { StartSample } from "./threads/start-once.js";

const run = promisify(execFile);
const PROGRAM = fileURLToPath(new URL("./threads/start-once.js", import.meta.url));
/** Two session workers, the store, one plugin. */
const THREADS = 4;
const PLUGINS = 200;
const SESSIONS = 50;
const COLD = 1_000;
const WARM_FROM = 20_000;

/** Each in a process of its own; those of one round stand beside each other. */
const STARTS = {
  bare: ["bare", String(THREADS)],
  troupe: ["troupe", "1"],
  bare_200: ["bare", String(PLUGINS)],
  plugins_200: ["troupe", String(PLUGINS)],
  plugins_200_lazy: ["troupe", String(PLUGINS), "lazy"],
  plugins_200_packages: ["troupe", String(PLUGINS), "packages"],
} as const;
type Start = keyof typeof STARTS;
const SMALL: readonly Start[] = ["bare", "troupe"];
const LARGE: readonly Start[] = ["bare_200", "plugins_200", "plugins_200_lazy", "plugins_200_packages"];

export const start: Bench = {
  name: "start",
  question: "What does a start cost, beside starting as many empty Workers?",
  bars: [
    {
      id: "start_vs_bare_workers",
      says: "createTroupe with two session workers, a store on disk and a plugin, over four empty Workers",
      atMost: 2,
    },
    { id: "start_all_vs_bare_workers", says: "the same until the second session worker answers too" },
    { id: "plugins_200_vs_bare", says: "the same with 200 worker plugins, over 200 empty Workers", atMost: 1.5 },
    { id: "plugins_200_lazy_vs_bare", says: "the same with 200 plugins nobody has called yet" },
    { id: "plugins_200_packages_vs_bare", says: "the same with 200 worker plugins in as many packages" },
    { id: "cold_vs_warm", says: "processor time of turns 1 to 1,000 over that of turns 20,001 to 21,000" },
  ],
  async run(bench) {
    const samples = new Map<Start, StartSample[]>();
    const rounds = bench.quick ? [5, 1] : [15, 5];
    for (const [names, count] of [
      [SMALL, rounds[0]],
      [LARGE, rounds[1]],
    ] as const) {
      for (let round = 1; round <= (count ?? 1); round++) {
        for (const name of names) {
          bench.progress(`${name}, round ${round} of ${count}`);
          const { stdout } = await run(process.execPath, [PROGRAM, ...STARTS[name]]);
          samples.set(name, [...(samples.get(name) ?? []), JSON.parse(stdout) as StartSample]);
        }
      }
    }
    const middle = (name: Start, figure: keyof StartSample) =>
      median((samples.get(name) ?? []).map((sample) => sample[figure]));
    const over = (name: Start, bare: Start, figure: "ms" | "allMs" = "ms") =>
      median((samples.get(name) ?? []).map((one, i) => one[figure] / (samples.get(bare)?.[i]?.ms ?? Number.NaN)));
    const warming = await coldAndWarm(bench);
    return {
      ratios: {
        start_vs_bare_workers: over("troupe", "bare"),
        start_all_vs_bare_workers: over("troupe", "bare", "allMs"),
        plugins_200_vs_bare: over("plugins_200", "bare_200"),
        plugins_200_lazy_vs_bare: over("plugins_200_lazy", "bare_200"),
        plugins_200_packages_vs_bare: over("plugins_200_packages", "bare_200"),
        cold_vs_warm: warming.coldUs / warming.warmUs,
      },
      samples: { starts: Object.fromEntries(samples), ...warming },
      tables: [
        {
          title: "Starts, medians",
          columns: ["what", "ms to the first answer", "ms to the last thread", "CPU ms", "RSS MB"],
          rows: [...SMALL, ...LARGE].map((name) => [
            name,
            middle(name, "ms"),
            middle(name, "allMs"),
            middle(name, "cpuMs"),
            middle(name, "rssMb"),
          ]),
        },
        {
          title: "Processor time of a turn, all threads",
          columns: ["turns", "us"],
          rows: [
            [`1 to ${COLD}`, warming.coldUs],
            [`${WARM_FROM + 1} to ${WARM_FROM + COLD}`, warming.warmUs],
          ],
        },
      ],
      notes: [
        "Every start is a process of its own; its Node is up and its modules are imported before the clock runs.",
        "createTroupe resolves when the first session worker serves; the others start behind it.",
      ],
    };
  },
};

/** The reference turn, inline and in memory: what is measured is the compiler warming up, not a disk. */
async function coldAndWarm(bench: BenchRun): Promise<{ coldUs: number; warmUs: number }> {
  await using troupe = await createTroupe({
    sessionWorkers: 2,
    model: scriptedModel(SCRIPT),
    plugins: [{ module: new URL("./plugins/reference.js", import.meta.url), tier: "inline" }],
    store: { memory: true },
  });
  await troupe.stats();
  const sessions = await Promise.all(Array.from({ length: SESSIONS }, (_, n) => troupe.session(`session-${n}`)));
  const turns = async (count: number): Promise<number> => {
    const before = process.cpuUsage();
    const ask = async (session: (typeof sessions)[number]) => {
      for (let n = 0; n < count / SESSIONS; n++) await session.turn(INPUT);
    };
    await Promise.all(sessions.map(ask));
    const { user, system } = process.cpuUsage(before);
    return (user + system) / count;
  };
  bench.progress("cold turns");
  const coldUs = await turns(COLD);
  for (let done = COLD; done < WARM_FROM; done += COLD) {
    bench.progress(`warming up, ${done} turns`);
    await turns(COLD);
  }
  return { coldUs, warmUs: await turns(COLD) };
}
