import { createTroupe, type PluginEntry, type Session, type TroupeOptions } from "troupe";
import { type PrefixProvider, type PrefixScript, startPrefixProvider } from "./measuring/prefix-provider.js";
import type { Bench, BenchRun } from "./measuring/report.js";

const TURNS = 50;
const COMPACTED_AFTER = 25;
const CALLS = 2;
/** Sixteen turns fit: it is cut once before the compaction and twice after it, the last time shortly before the fork. */
const WINDOW = { maxMessages: 100, keepMessages: 50 };
/** What Anthropic charges for a token, as a multiple of one that no cache is used for. */
const PRICE = { input: 1, write: 1.25, read: 0.1 };

const SCRIPT: PrefixScript = {
  calls: CALLS,
  tool: { name: "look_up", input: { term: "returns" } },
  text: "As the handbook says: it may be sent back within thirty days, and whoever sent it is paid when it has arrived.",
};
const HANDBOOK = "Answer as the handbook says, and look up what you do not know. ".repeat(120);
const FOUND = "Whoever bought it may send it back within thirty days, in the box it came in. ".repeat(10);
const INPUT_SCHEMA = { type: "object", properties: { term: { type: "string" } }, required: ["term"] } as const;

const plugin = (file: string): URL => new URL(`./plugins/${file}`, import.meta.url);

/** What a real session has: a text that stays, one that is new every turn, a guard, something counted, a compactor. */
const five = (numbered: boolean): readonly PluginEntry[] => [
  { module: plugin("says.js?id=bench.tone"), options: { slot: "guidance", content: "Be friendly, and brief." } },
  {
    module: plugin("says.js?id=bench.clock"),
    options: {
      slot: numbered ? "runtime_context" : "guidance",
      content: "Two orders are open. This is turn",
      numbered,
    },
  },
  { module: plugin("guard.js") },
  { module: plugin("counter.js") },
  { module: plugin("sums-up.js"), options: { keep: 12 } },
];

interface Variant {
  readonly name: string;
  readonly says: string;
  readonly sessionId: string;
  readonly options: TroupeOptions;
  /** Nobody asks for a compaction: the conversation is summed up by itself. */
  readonly automatic?: boolean;
}

const VARIANTS: readonly Variant[] = [
  { name: "kept", says: "Troupe's defaults and its window", sessionId: "kept", options: { window: WINDOW } },
  {
    name: "sliding",
    says: "a plugin's window that slides with every turn",
    sessionId: "windowed",
    options: { plugins: [...five(true), { module: plugin("window.js") }] },
  },
  {
    name: "still",
    says: "as the first, and no plugin says something new every turn",
    sessionId: "still",
    options: { window: WINDOW, plugins: five(false) },
  },
  {
    name: "automatic",
    says: "no window, and Troupe sums the conversation up by itself",
    sessionId: "summed",
    options: { plugins: five(true).slice(0, 4), maxContextTokens: 12_000, compaction: {} },
    automatic: true,
  },
  { name: "off", says: 'cache: "off"', sessionId: "off", options: { window: WINDOW, cache: "off" } },
];

/** What requests came to, in tokens. */
interface Paid {
  readonly requests: number;
  readonly input: number;
  readonly read: number;
  readonly written: number;
}

interface Measured {
  readonly conversation: Paid;
  /** The first call of a fork on the other worker. */
  readonly fork: Paid;
}

export const cache: Bench = {
  name: "cache",
  question: `How much of what is sent is read from the provider's cache? (${TURNS} turns, ${CALLS} tool calls each, five plugins, a window, one compaction)`,
  bars: [
    { id: "cache_read_share", atLeast: 0.9, says: "tokens read from the cache, of all that were sent" },
    { id: "fork_cache_share", atLeast: 0.95, says: "the same of a fork's first call, on another worker" },
    { id: "auto_cache_read_share", atLeast: 0.9, says: "the first of a conversation that is summed up by itself" },
    { id: "cache_cost_share", says: "what was paid for input, over the price without a cache" },
  ],
  async run(run) {
    const chosen = VARIANTS.filter(({ name }) => run.only.length === 0 || run.only.includes(name));
    if (chosen.length === 0) throw new Error(`The variants are ${VARIANTS.map(({ name }) => name).join(", ")}.`);
    const measured: { readonly variant: Variant; readonly conversation: Paid; readonly fork: Paid }[] = [];
    for (const variant of chosen) measured.push({ variant, ...(await measure(variant, run)) });
    const kept = measured.find(({ variant: { name } }) => name === "kept");
    const summed = measured.find(({ variant: { name } }) => name === "automatic");
    return {
      ratios: {
        ...(kept && {
          cache_read_share: shareOf(kept.conversation),
          fork_cache_share: shareOf(kept.fork),
          cache_cost_share: costOf(kept.conversation),
        }),
        ...(summed && { auto_cache_read_share: shareOf(summed.conversation) }),
      },
      samples: Object.fromEntries(
        measured.map(({ variant: { name }, conversation, fork }) => [name, { conversation, fork }]),
      ),
      tables: [
        {
          title: "The same conversation, five ways",
          columns: ["", "tokens sent", "read from the cache", "share", "price", "share of a fork's first call"],
          rows: measured.map(({ variant: { says }, conversation, fork }) => [
            says,
            conversation.input,
            conversation.read,
            shareOf(conversation),
            costOf(conversation),
            shareOf(fork),
          ]),
        },
      ],
      notes: [
        "Anthropic's own client, against a local server that prices prefixes as Anthropic does: kept where they are marked, from 1,024 tokens on, looked for 20 blocks back, four marks at most. It forgets nothing; a token is four bytes.",
        "Price: of a token without a cache, 1.25 when it is written to the cache and 0.1 when it is read from there.",
        "What a plugin says anew every turn stands behind the turn's input and is gone in the next turn, so the turn before is read anew. A fork's first turn keeps it where its parent's last turn read it: what its first call misses is its own input.",
        "Nothing is timed: the figures are the same on every machine, and with --quick.",
      ],
    };
  },
};

async function measure({ name, sessionId, options, automatic = false }: Variant, run: BenchRun): Promise<Measured> {
  await using provider = await startPrefixProvider(SCRIPT);
  const model = new URL(`./threads/anthropic-model.js?base=${encodeURIComponent(provider.url)}`, import.meta.url);
  const look_up = { description: "Looks a term up in the handbook", inputSchema: INPUT_SCHEMA, execute: () => FOUND };
  const tools = { look_up };
  await using troupe = await createTroupe({
    model,
    instructions: HANDBOOK,
    tools,
    plugins: five(true),
    sessionWorkers: 2,
    development: false,
    ...options,
  });
  const session = await troupe.session(sessionId);
  for (let n = 1; n <= TURNS; n++) {
    if (n % 10 === 1) run.progress(`${name}: turn ${n} of ${TURNS}`);
    await finished(session, `Question ${n}: may I send it back, and who pays for that?`);
    if (n === COMPACTED_AFTER && !automatic && !(await session.compact())) throw new Error("Nothing was compacted.");
  }
  if ((await session.view()).frames.length === 0) throw new Error("Nothing was compacted by itself.");
  const conversation = paid(provider, 0);
  const { cache } = await session.spending();
  if (cache.cachedInputTokens !== conversation.read || cache.inputTokens !== conversation.input)
    throw new Error(`The session counted ${JSON.stringify(cache)}, its provider ${JSON.stringify(conversation)}.`);
  run.progress(`${name}: a fork`);
  const before = provider.requests.length;
  await finished(await session.fork(), "And if it is broken?");
  return { conversation, fork: paid(provider, before, before + 1) };
}

async function finished(session: Session, input: string): Promise<void> {
  const { outcome, issues } = await session.turn(input);
  if (outcome.type === "finished" && issues.length === 0) return;
  throw new Error(`A turn ended with ${JSON.stringify({ outcome, issues })}.`);
}

function paid({ requests }: PrefixProvider, from: number, to?: number): Paid {
  const of = requests.slice(from, to).map(({ usage }) => usage);
  const sum = (read: (usage: (typeof of)[number]) => number) => of.reduce((total, usage) => total + read(usage), 0);
  const read = sum((usage) => usage.cache_read_input_tokens);
  const written = sum((usage) => usage.cache_creation_input_tokens);
  return { requests: of.length, input: sum((usage) => usage.input_tokens) + read + written, read, written };
}

const shareOf = ({ read, input }: Paid): number => read / input;

const costOf = ({ read, written, input }: Paid): number =>
  (PRICE.input * (input - read - written) + PRICE.write * written + PRICE.read * read) / input;
