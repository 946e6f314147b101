import { fork } from "node:child_process";
import { once } from "node:events";
import { answerOf } from "./measuring/own-process.js";
import type { Bench, BenchRun, Table } from "./measuring/report.js";
import { quantile } from "./measuring/sampling.js";
import type { Fetch, ProviderPlan, ProviderSample, Reader } from "./threads/provider-once.js";

const ONCE = new URL("./threads/provider-once.js", import.meta.url);
const SERVER = new URL("./threads/provider-server.js", import.meta.url);
const CONVERSATIONS = [100, 300] as const;

/** `quick`: with up to how many conversations it is measured in `--quick`. */
const READERS: readonly { readonly reader: Reader; readonly fetch: Fetch; readonly quick: number }[] = [
  { reader: "http", fetch: "http", quick: 300 },
  { reader: "client", fetch: "global", quick: 0 },
  { reader: "client", fetch: "http", quick: 0 },
  { reader: "ai", fetch: "global", quick: 100 },
  { reader: "ai", fetch: "http", quick: 0 },
  { reader: "troupe", fetch: "global", quick: 100 },
  { reader: "troupe", fetch: "http", quick: 300 },
];

const WORDS: Readonly<Record<Reader, string>> = {
  http: "node:http + JSON.parse",
  client: "@ai-sdk/openai-compatible",
  ai: "ai, streamText",
  troupe: "Troupe, iterated",
};

interface Measured {
  readonly usPerToken: number;
  readonly mainUs: number | undefined;
  readonly tokensPerSecond: number;
  readonly p50: number;
  readonly p99: number;
}

const nameOf = ({ reader, fetch }: { readonly reader: Reader; readonly fetch: Fetch }) =>
  reader === "http" ? reader : `${reader}_${fetch}`;

export const provider: Bench = {
  name: "provider",
  question:
    "What does a streamed token cost, from a real client over a local provider at 50 tokens/s per conversation?",
  bars: CONVERSATIONS.flatMap((count) => {
    const at = count === 100 ? "" : `_${count}`;
    const talks = `${count} conversations`;
    return [
      { id: `token_cpu_vs_http${at}`, says: `processor per token, Troupe with httpFetch over node:http, ${talks}` },
      { id: `token_cpu_vs_http_global${at}`, says: "the same with the global fetch" },
      { id: `ai_cpu_vs_http${at}`, says: "the same of ai's streamText with the global fetch" },
      { id: `main_us_per_token${at}`, says: "processor of Troupe's main thread per token, us (httpFetch)" },
      { id: `first_token_p50_ms${at}`, says: "Troupe with httpFetch: from turn() to its first token" },
      { id: `first_token_p99_ms${at}`, says: "the same, the slowest of a hundred" },
    ];
  }),
  async run(run) {
    const isChosen = (name: string) => run.only.length === 0 || run.only.includes(name);
    const named = READERS.filter((one) => isChosen(nameOf(one)));
    if (named.length === 0) throw new Error(`The parts are ${READERS.map(nameOf).join(", ")}.`);
    const ratios: Record<string, number> = {};
    const samples: Record<string, unknown> = { node: process.version };
    const tables: Table[] = [];
    const server = fork(SERVER, { stdio: ["ignore", "ignore", "inherit", "ipc"] });
    try {
      const [url] = (await once(server, "message")) as [string];
      for (const conversations of CONVERSATIONS) {
        const measured = new Map<string, Measured>();
        const chosen = named.filter(({ quick }) => !run.quick || quick >= conversations);
        for (const one of chosen) {
          const name = nameOf(one);
          run.progress(`${conversations} conversations, ${name}`);
          measured.set(name, await measure({ ...one, ...paceOf(run), url, conversations }));
        }
        Object.assign(ratios, ratiosOf(measured, conversations));
        samples[conversations] = Object.fromEntries(measured);
        tables.push(tableOf(chosen, measured, conversations));
      }
    } finally {
      server.disconnect();
    }
    return {
      ratios,
      samples,
      tables,
      notes: [
        "Every row is a process of its own; the provider is another one, and not counted. Processor time is of all threads, divided by the tokens that came meanwhile.",
        "Troupe and ai do more with a token than the client alone: records, hooks, activities across a thread; ai the parts of its own protocol.",
        "A machine that is busy, with this or with others, gives fewer tokens/s than asked for; then times to the first token say how long the queue was.",
      ],
    };
  },
};

function paceOf({ quick }: BenchRun): Pick<ProviderPlan, "rampMs" | "warmMs" | "windowMs"> {
  return quick ? { rampMs: 400, warmMs: 300, windowMs: 1_200 } : { rampMs: 1_000, warmMs: 2_000, windowMs: 8_000 };
}

async function measure(plan: ProviderPlan): Promise<Measured> {
  const { tokens, cpuUs, mainUs, firstTokenMs } = await answerOf<ProviderSample>(ONCE, [JSON.stringify(plan)]);
  return {
    usPerToken: cpuUs / tokens,
    mainUs: mainUs === undefined ? undefined : mainUs / tokens,
    tokensPerSecond: (tokens * 1_000) / plan.windowMs,
    p50: quantile(firstTokenMs, 0.5),
    p99: quantile(firstTokenMs, 0.99),
  };
}

function ratiosOf(measured: ReadonlyMap<string, Measured>, conversations: number): Record<string, number> {
  const at = conversations === 100 ? "" : `_${conversations}`;
  const [bare, ours] = [measured.get("http"), measured.get("troupe_http")];
  const over = (name: string) => (measured.get(name)?.usPerToken ?? Number.NaN) / (bare?.usPerToken ?? Number.NaN);
  const figures = {
    token_cpu_vs_http: over("troupe_http"),
    token_cpu_vs_http_global: over("troupe_global"),
    ai_cpu_vs_http: over("ai_global"),
    main_us_per_token: ours?.mainUs ?? Number.NaN,
    first_token_p50_ms: ours?.p50 ?? Number.NaN,
    first_token_p99_ms: ours?.p99 ?? Number.NaN,
  };
  const known = Object.entries(figures).filter(([, figure]) => !Number.isNaN(figure));
  return Object.fromEntries(known.map(([id, figure]) => [`${id}${at}`, figure]));
}

function tableOf(chosen: typeof READERS, measured: ReadonlyMap<string, Measured>, conversations: number): Table {
  return {
    title: `${conversations} conversations at 50 tokens/s`,
    columns: ["reader", "fetch", "tokens/s", "cpu us/token", "main us/token", "first token p50 ms", "p99 ms"],
    rows: chosen.map((one) => {
      const { usPerToken, mainUs, tokensPerSecond, p50, p99 } = measured.get(nameOf(one)) as Measured; // just measured
      const fetch = one.reader === "http" ? "-" : one.fetch === "http" ? "httpFetch" : "global";
      return [WORDS[one.reader], fetch, tokensPerSecond, usPerToken, mainUs ?? "-", p50, p99];
    }),
  };
}
