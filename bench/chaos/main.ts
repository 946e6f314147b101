import { parseArgs } from "node:util";
import { Progress } from "../measuring/progress.js";
import { chaos } from "./chaos.js";

const USAGE = `npm run -s chaos -- [--seconds <n>] [--sessions <n>] [--seed <n>] [--json]

Kills a random thread (never the store's) every 250 ms under many sessions, then compares the store with what callers were
told: every turn has one outcome, nothing finished is lost, nothing is done twice, no handle is left. Events and logs must have
each restart, quarantine, breaker and resumed turn once, and nothing of what was said. Exits with 1 otherwise.

  --seconds   how long threads are killed; default 60
  --sessions  default 5,000; a tenth of them at most in each session worker's memory
  --seed      the seed of a run before, for the same choices
  --json      one JSON object on stdout`;
/** When something still keeps the process from ending after so long, it was left behind. */
const END_MS = 10_000;
const MOST_SHOWN = 20;

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "60" },
    sessions: { type: "string", default: "5000" },
    seed: { type: "string" },
    json: { type: "boolean", default: false },
    help: { type: "boolean", short: "h", default: false },
  },
});

if (values.help) console.log(USAGE);
else process.exitCode = await main();

async function main(): Promise<number> {
  const seed = Number(values.seed ?? Date.now() % 1_000_000);
  const progress = new Progress();
  progress.say(`seed ${seed}`);
  const report = await chaos({
    seed,
    sessions: Number(values.sessions),
    seconds: Number(values.seconds),
    killEveryMs: 250,
    askers: 48,
    progress: progress.say,
  });
  progress.clear();
  const { violations, finished, refused, kills, resident, events } = report;
  if (values.json) console.log(JSON.stringify({ seed, ...report }));
  else {
    console.log(
      `${finished} turns finished and are in the store; ${resident} of ${values.sessions} sessions were in memory at the end.`,
    );
    console.log(`Killed: ${counts(kills)}`);
    console.log(`Refused: ${counts(refused)}`);
    console.log(`Told: ${counts(events)}`);
    for (const violation of violations.slice(0, MOST_SHOWN)) console.log(`✗ ${violation}`);
    if (violations.length > 0)
      console.log(`✗ ${violations.length} violations. Again: npm run -s chaos -- --seed ${seed}`);
  }
  // This does not keep the process alive: that it is reached says that something else does.
  setTimeout(() => {
    console.log(`✗ The process does not end: ${process.getActiveResourcesInfo().join(", ")}. Seed ${seed}.`);
    process.exit(1);
  }, END_MS).unref();
  return violations.length > 0 ? 1 : 0;
}

function counts(of: Readonly<Record<string, number>>): string {
  return (
    Object.entries(of)
      .map(([what, count]) => `${what} ${count}`)
      .join(", ") || "none"
  );
}
