import { scriptedModel, type TroupeOptions } from "troupe";
import type { Chance } from "./chance.js";
import { answerTo } from "./record.js";

export const COUNTER = "bench.counter";
export const DEEDS = "bench.deeds";
/** How long a hook of that plugin may take: five of its calls are let hang one after the other. */
const DEEDS_MS = 1_000;
/** How long a tool holds its turn, so that its worker is killed in the middle of it. */
const HOLDS_MS = 500;
/** Looks like a key of a provider. */
export const SECRET = "sk-chaos-0123456789abcdef";

/** Session workers, every host of every plugin, threads of the pool: all but the store's. */
export const VICTIMS = ["session worker", "counter", "group", "works", "pool"] as const;
/** Those of the pool end by a tool. */
export const KILLED_FROM_OUTSIDE = ["session worker", "counter", "group", "works"] as const;

const plugin = (name: string) => new URL(`../plugins/${name}.js`, import.meta.url);
const withQuery = (url: URL, query: string) => new URL(`${url}?${query}`);

/** What a runtime under chaos is made of: plugins alone, in a group and on several threads, tools of the pool. */
export function optionsOf(path: string, sessions: number): TroupeOptions {
  const answer = { text: answerTo("{input}") };
  const turn = (tool: string) => scriptedModel([{ toolCalls: [{ tool, args: { city: "Oslo" } }] }, answer]);
  return {
    sessionWorkers: 2,
    store: { path },
    model: turn("say"),
    models: { falling: turn("fall"), holding: turn("hold") },
    tools: {
      say: { module: plugin("pool-tool") },
      fall: { module: withQuery(plugin("pool-tool"), "falls") },
      hold: { module: withQuery(plugin("pool-tool"), `holdsMs=${HOLDS_MS}`) },
    },
    plugins: [
      { module: plugin("counter") },
      { module: withQuery(plugin("counter"), "id=bench.group-1"), group: "ours" },
      { module: withQuery(plugin("counter"), "id=bench.group-2"), group: "ours" },
      { module: withQuery(plugin("works"), "ms=0.5") },
      { module: plugin("deeds"), deadlineMs: DEEDS_MS },
    ],
    instructions: `The key is ${SECRET}.`,
    // Most of them are parked at any time.
    maxResident: Math.ceil(sessions / 10),
    drainMs: 10_000,
  };
}

/** The same for a runtime that has processes too, and is killed with its own. */
export function processOptionsOf(path: string, sessions: number): TroupeOptions {
  const { plugins = [], ...options } = optionsOf(path, sessions);
  const runs = { module: plugin("runs"), permissions: { processes: true } };
  return { ...options, plugins: [...plugins, runs] };
}

/** The thread that such a kill is for. */
export function threadOf(victim: (typeof KILLED_FROM_OUTSIDE)[number], chance: Chance) {
  if (victim === "session worker") return { sessionWorker: chance.below(2) };
  const id = { counter: COUNTER, group: "bench.group-1", works: "bench.works" }[victim];
  return { plugin: id, host: chance.below(8) };
}
