import { parseArgs } from "node:util";
import { background } from "./background.js";
import { cache } from "./cache.js";
import { commits } from "./commits.js";
import { cycles } from "./cycles.js";
import { density } from "./density.js";
import { faults } from "./faults.js";
import { fork } from "./fork.js";
import { hooks } from "./hooks.js";
import { hosts } from "./hosts.js";
import { length } from "./length.js";
import { Progress } from "./measuring/progress.js";
import { asJson, asText, type Bench } from "./measuring/report.js";
import { noisy } from "./noisy.js";
import { provider } from "./provider.js";
import { start } from "./start.js";
import { turns } from "./turns.js";

const BENCHES: readonly Bench[] = [
  hooks,
  turns,
  length,
  fork,
  density,
  commits,
  cycles,
  start,
  noisy,
  hosts,
  faults,
  provider,
  cache,
  background,
];

const USAGE = `npm run -s bench -- <name> [--json] [--quick] [--only <variant>]...

Benches
${BENCHES.map(({ name, question }) => `  ${name.padEnd(10)} ${question}`).join("\n")}

Options
  --json    one JSON object on stdout: { bench, ratios, samples }
  --quick   at most 40 s, with fewer samples
  --only    only this variant or part, for a profiler; may be repeated. turns: inline, isolated, durable, committed,
            stateful; noisy: spin, exit, leak, flood, native, first, saturated; hosts: busy,
            group, idle; faults: own, group, inline, or a deed (spin, exit, leak, ...);
            provider: http, client_global, client_http, ai_global, ai_http, troupe_global, troupe_http;
            cache: kept, sliding, still, off; background: held, due, woken, step
  --help    this text`;

process.exitCode = await main(process.argv.slice(2));

async function main(args: readonly string[]): Promise<number> {
  let parsed: ReturnType<typeof parse>;
  try {
    parsed = parse(args);
  } catch (error) {
    return refuse(error instanceof Error ? error.message : String(error));
  }
  const { values, positionals } = parsed;
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  const [name, ...rest] = positionals;
  if (name === undefined) return refuse("Name a bench.");
  if (rest.length > 0) return refuse(`One bench at a time; ${rest.join(", ")} is too much.`);
  const bench = BENCHES.find((candidate) => candidate.name === name);
  if (bench === undefined) return refuse(`There is no bench "${name}".`);

  const progress = new Progress();
  try {
    const result = await bench.run({ quick: values.quick, only: values.only, progress: progress.say });
    progress.clear();
    console.log(values.json ? asJson(bench, result) : asText(bench, result));
    return 0;
  } catch (error) {
    progress.clear();
    console.error(error instanceof Error ? error.stack : error);
    return 1;
  }
}

function parse(args: readonly string[]) {
  return parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      json: { type: "boolean", default: false },
      quick: { type: "boolean", default: false },
      only: { type: "string", multiple: true, default: [] },
      help: { type: "boolean", short: "h", default: false },
    },
  });
}

function refuse(why: string): number {
  console.error(`${why}\n\n${USAGE}`);
  return 2;
}
