import { parseArgs } from "node:util";
import { Progress } from "../measuring/progress.js";
import { type ChaosReport, chaos } from "./chaos.js";
import { chaosOfProcesses, type ProcessChaosPlan, type ProcessChaosReport } from "./processes.js";

const USAGE = `npm run -s chaos -- [--seconds <n>] [--sessions <n>] [--seed <n>] [--json] [--kill-process-every <seconds>]

Kills a random thread (never the store's) every 250 ms under many sessions, then compares the store with what callers were
told: every turn has one outcome, nothing finished is lost, nothing is done twice, no handle is left. Events and logs must have
each restart, quarantine, breaker and resumed turn once, and nothing of what was said. Exits with 1 otherwise.

  --seconds   how long threads are killed; default 60
  --sessions  default 5,000; a tenth of them at most in each session worker's memory
  --seed      the seed of a run before, for the same choices
  --json      one JSON object on stdout
  --kill-process-every  the runtime is a process of its own, and is killed (SIGKILL) every so many seconds in the middle of a
              turn; the next one has the same store. A turn whose process is gone is asked for again under its key: it has one
              outcome all the same. Turns that finished before are answered again and not run, and no process of a killed
              runtime is left. Events and logs are not read then`;
/** When something still keeps the process from ending after so long, it was left behind. */
const END_MS = 10_000;
const MOST_SHOWN = 20;

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "60" },
    sessions: { type: "string", default: "5000" },
    seed: { type: "string" },
    json: { type: "boolean", default: false },
    "kill-process-every": { type: "string" },
    help: { type: "boolean", short: "h", default: false },
  },
});

if (values.help) console.log(USAGE);
else process.exitCode = await main();

async function main(): Promise<number> {
  const seed = Number(values.seed ?? Date.now() % 1_000_000);
  const progress = new Progress();
  progress.say(`seed ${seed}`);
  const every = values["kill-process-every"];
  const plan = {
    seed,
    sessions: Number(values.sessions),
    seconds: Number(values.seconds),
    killEveryMs: 250,
    askers: 48,
    progress: progress.say,
  };
  const report = every === undefined ? await chaos(plan) : await chaosOfProcesses(processPlan(plan, Number(every)));
  progress.clear();
  const { violations, refused } = report;
  if (values.json) console.log(JSON.stringify({ seed, ...report }));
  else {
    for (const line of "kills" in report ? threadLines(report) : processLines(report)) console.log(line);
    console.log(`Refused: ${counts(refused)}`);
    for (const violation of violations.slice(0, MOST_SHOWN)) console.log(`✗ ${violation}`);
    const how = every === undefined ? "" : ` --kill-process-every ${every}`;
    if (violations.length > 0)
      console.log(`✗ ${violations.length} violations. Again: npm run -s chaos -- --seed ${seed}${how}`);
  }
  // This does not keep the process alive: that it is reached says that something else does.
  setTimeout(() => {
    console.log(`✗ The process does not end: ${process.getActiveResourcesInfo().join(", ")}. Seed ${seed}.`);
    process.exit(1);
  }, END_MS).unref();
  return violations.length > 0 ? 1 : 0;
}

function processPlan(
  { seconds, ...plan }: Omit<ProcessChaosPlan, "processKills" | "killProcessEveryMs"> & { readonly seconds: number },
  every: number,
): ProcessChaosPlan {
  const processKills = Math.max(1, Math.floor(seconds / every));
  return { ...plan, processKills, killProcessEveryMs: every * 1000 };
}

function threadLines({ finished, kills, resident, events }: ChaosReport): string[] {
  return [
    `${finished} turns finished and are in the store; ${resident} of ${values.sessions} sessions were in memory at the end.`,
    `Killed: ${counts(kills)}`,
    `Told: ${counts(events)}`,
  ];
}

function processLines({ finished, answeredAgain, ...report }: ProcessChaosReport): string[] {
  const { processKills, threadKills, askedAgain, resumed } = report;
  return [
    `${finished} turns finished and are in the store, ${askedAgain} of them asked for again of the next process; ${answeredAgain} were answered again and not run.`,
    `Killed: the process ${processKills} times, threads ${threadKills}. Turns taken up: ${resumed}`,
  ];
}

function counts(of: Readonly<Record<string, number>>): string {
  return (
    Object.entries(of)
      .map(([what, count]) => `${what} ${count}`)
      .join(", ") || "none"
  );
}
