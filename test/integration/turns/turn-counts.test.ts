import { type Activity, defineTool, type Session, scriptedModel, type Troupe, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import { INPUT, SCRIPT } from "../../../bench/measuring/reference-turn.js";
import { collect, EMPTY_OBJECT, PATIENT, RESIDENT, startTroupe, tempFolder } from "../../support/runtime.js";

/**
 * What the reference turn of DESIGN §12 costs, counted: two model calls, one tool call, four hooks. The plugins and the
 * script are those of the benchmark. A message, a write or a hook call more is a decision, not an accident.
 */
interface Counts {
  /** Calls of the reference plugin's hooks. */
  readonly hooks: Readonly<Record<string, number>>;
  /** Session worker → plugin worker, and back. */
  readonly hookLane: readonly [sent: number, received: number];
  /** What the main thread was sent: on the lanes, and by Comlink. */
  readonly main: readonly [lane: number, control: number];
  readonly store: { readonly commits: number; readonly transactions: number; readonly records: number };
}

const PLUGIN = "bench.reference";
/** What asking for the statistics costs itself: one answer from the session worker, one from the store worker. */
const ASKING = 2;

async function counted(troupe: Troupe, act: () => PromiseLike<unknown>): Promise<Counts> {
  const before = await troupe.stats();
  await act();
  const after = await troupe.stats();
  const since = (of: (stats: typeof after) => number) => of(after) - of(before);
  const called = Object.entries(after.hooks).map(([phase, { count }]) => [
    phase.replace("plugin_hook.", "").replace(`.${PLUGIN}`, ""),
    count - (before.hooks[phase]?.count ?? 0),
  ]);
  return {
    hooks: Object.fromEntries(called.filter(([, count]) => count !== 0)),
    hookLane: [since(({ hookMessages }) => hookMessages.sent), since(({ hookMessages }) => hookMessages.received)],
    main: [since(({ mainMessages }) => mainMessages.lane), since(({ mainMessages }) => mainMessages.control) - ASKING],
    store: {
      commits: since(({ store }) => store.commits),
      transactions: since(({ store }) => store.transactions),
      records: since(({ store }) => store.records),
    },
  };
}

const module = (name: string) => new URL(`../../../dist/bench/plugins/${name}.js`, import.meta.url);
async function startReference(
  { tier, plugin = "reference", durable = false }: Variant,
  options: TroupeOptions = {},
): Promise<{ readonly troupe: Troupe; readonly session: Session }> {
  const troupe = await startTroupe({
    ...RESIDENT, // Leaving memory is a message to the plugin.
    sessionWorkers: 1,
    model: scriptedModel(SCRIPT),
    plugins: [{ module: module(plugin), tier, ...PATIENT }],
    store: durable ? { path: await tempFolder() } : { memory: true },
    journal: false,
    ...options,
  });
  return { troupe, session: await troupe.session("s") };
}
interface Variant {
  readonly tier: "inline" | "worker";
  readonly plugin?: "reference" | "reference-stateful";
  readonly durable?: boolean;
}

/**
 * What the main thread is sent when a session worker's first call of an isolated plugin opens the lane between the two: the
 * wish for it, and that each of them has its end. Never again as long as both threads live.
 */
function withLane({ tier }: Variant, [lane, control]: readonly [number, number]): readonly [number, number] {
  return tier === "worker" ? [lane + 1, control + 2] : [lane, control];
}

const HOOKS = { before_turn: 1, before_tool_call: 1, after_tool_call: 1, after_turn: 1 };
/** The four hooks and the plugin's tool. */
const FIVE_TRIPS = [5, 5] as const;
const NO_TRIP = [0, 0] as const;
/** The head and the segment with the turn's messages. */
const ONE_WRITE = { commits: 1, transactions: 1, records: 2 };
/** And the plugin's state, which came back with the answer of its afterTurn hook. */
const WITH_STATE = { commits: 1, transactions: 1, records: 3 };

describe("the reference turn costs", () => {
  // `lane`: the result, and nothing else. `streamed`: activities leave together as long as nothing is waited for.
  const VARIANTS: [string, Variant, Pick<Counts, "hookLane" | "store"> & { readonly streamed: number }][] = [
    ["inline", { tier: "inline" }, { hookLane: NO_TRIP, store: ONE_WRITE, streamed: 2 }],
    ["isolated", { tier: "worker" }, { hookLane: FIVE_TRIPS, store: ONE_WRITE, streamed: 4 }],
    ["durable", { tier: "worker", durable: true }, { hookLane: FIVE_TRIPS, store: ONE_WRITE, streamed: 4 }],
    [
      "inline with state",
      { tier: "inline", plugin: "reference-stateful" },
      { hookLane: NO_TRIP, store: WITH_STATE, streamed: 2 },
    ],
    [
      "durable with state",
      { tier: "worker", plugin: "reference-stateful", durable: true },
      { hookLane: FIVE_TRIPS, store: WITH_STATE, streamed: 4 },
    ],
  ];

  test.each(VARIANTS)(
    "%s: the same in every turn, streamed or not, but for the lane that the first one opens",
    async (_, variant, { streamed, ...costs }) => {
      const { troupe, session } = await startReference(variant);
      const silent = { hooks: HOOKS, ...costs, main: [1, 0] };
      const first = await counted(troupe, () => session.turn(INPUT));
      expect(first).toEqual({ ...silent, main: withLane(variant, [1, 0]) });
      for (let turn = 1; turn < 4; turn++) expect(await counted(troupe, () => session.turn(INPUT))).toEqual(silent);
      const watched = await counted(troupe, () => collect(session.turn(INPUT)));
      expect(watched).toEqual({ ...silent, main: [streamed, 0] });
    },
  );

  test.each([
    ["without state", "reference", FIVE_TRIPS, ONE_WRITE.records],
    // The state its tool left is fetched to be written down with the call.
    ["with state", "reference-stateful", [6, 6], WITH_STATE.records],
  ] as const)(
    "journaled, %s: a row for its beginning and what its model is asked with, each answer and the tool call",
    async (_, plugin, hookLane, records) => {
      const { troupe, session } = await startReference({ tier: "worker", plugin, durable: true }, { journal: true });
      for (let turn = 0; turn < 3; turn++) {
        const before = (await troupe.stats()).store.recorded;
        const { store, ...costs } = await counted(troupe, () => session.turn(INPUT));
        const main = turn === 0 ? withLane({ tier: "worker" }, [1, 0]) : [1, 0];
        expect(costs).toEqual({ hooks: HOOKS, hookLane, main });
        expect([store.commits, store.records]).toEqual([1, records + 4]);
        expect((await troupe.stats()).store.recorded - before).toBe(4);
      }
    },
  );

  test("inspected: four notes a turn, and nothing any more when nobody inspects", async () => {
    const { troupe, session } = await startReference({ tier: "inline" });
    const silent = { hooks: HOOKS, hookLane: NO_TRIP, store: ONE_WRITE, main: [1, 0] };
    const told: string[] = [];
    const stop = await troupe.inspect(({ event }) => void told.push(event), { sessions: ["s"] });
    // Notes that follow each other at once leave together, the last ones with the result.
    await session.turn(INPUT);
    told.length = 0;
    expect(await counted(troupe, () => session.turn(INPUT))).toEqual({ ...silent, main: [3, 0] });
    expect(told).toEqual(["posted", "turn.begun", "turn.stored", "work.done"]);
    stop();
    await session.turn(INPUT);
    expect(await counted(troupe, () => session.turn(INPUT))).toEqual(silent);
  });

  test("no message and no write more in a session that was closed and opened again", async () => {
    const { troupe, session } = await startReference({ tier: "inline", durable: true });
    await session.turn(INPUT);
    await session.close();
    await troupe.session("s");
    expect(await counted(troupe, () => session.turn(INPUT))).toEqual({
      hooks: HOOKS,
      hookLane: NO_TRIP,
      main: [1, 0],
      store: ONE_WRITE,
    });
  });
});

describe("the reference turn with a tool of the host, and something said into it, costs", () => {
  const script = scriptedModel({
    turns: [[{ toolCalls: [{ tool: "hold", args: {} }] }, { text: "It is 21 degrees in Oslo." }, { text: "Warm." }]],
  });

  /** Says it while the tool runs, so that the turn has its checkpoints still before it. */
  async function steered(variant: Variant, boundary: "after_work" | "before_completion") {
    let session: Session | undefined;
    const hold = defineTool({
      description: "Holds the turn until something was said into it",
      inputSchema: EMPTY_OBJECT,
      execute: async () => {
        await session?.steer("In Celsius, please.", { boundary });
        return "through";
      },
    });
    const started = await startReference(variant, { model: script, tools: { hold } });
    session = started.session;
    return counted(started.troupe, () => started.session.turn(INPUT));
  }
  // The tool's call, the receipt of what was said, and the result.
  const main = [3, 0] as const;
  // The first write keeps it (head and list), the second is the turn with the list settled: it is empty then, and no record.
  const costs = { hooks: HOOKS, store: { commits: 2, transactions: 2, records: 4 } };

  test.each<[string, Variant, readonly [number, number]]>([
    ["inline", { tier: "inline" }, NO_TRIP],
    // The tool is not the plugin's: the four hooks are left.
    ["isolated", { tier: "worker" }, [4, 4]],
    ["durable", { tier: "worker", durable: true }, [4, 4]],
  ])("%s: one write more, wherever it is delivered", async (_, variant, hookLane) => {
    const expected = { ...costs, hookLane, main: withLane(variant, main) };
    expect(await steered(variant, "after_work")).toEqual(expected);
    expect(await steered(variant, "before_completion")).toEqual(expected);
  });
});

describe("on its session worker, and warm, a turn makes no more than", () => {
  /** Each is some hundred nanoseconds of every turn: one more is a decision. */
  test.each([
    [145, "with four hooks inline, a tool and two model calls", SCRIPT, ["reference"]],
    [68, "with one model call and no hooks", { turns: [[{ text: "Hello." }]] }, []],
  ] as const)("%i promises %s", async (most, _, script, plugins) => {
    const counts = new URL("../../fixtures/plugins/counts-promises.mjs", import.meta.url);
    const troupe = await startTroupe({
      ...RESIDENT,
      sessionWorkers: 1,
      model: scriptedModel(script),
      plugins: [counts, ...plugins.map(module)].map((url) => ({ module: url, tier: "inline" as const, ...PATIENT })),
      store: { memory: true },
    });
    const session = await troupe.session("s");
    const made = async (turns: number) => {
      const before = (await session.query("promises.made")) as number;
      for (let turn = 0; turn < turns; turn++) await session.turn(INPUT);
      return ((await session.query("promises.made")) as number) - before;
    };
    await made(2);
    // What asking costs is the same for any number of turns. Now and then the main thread looks whether the worker answers:
    // that is a few promises, and not one for every turn.
    const extra = (await made(102)) - (await made(2));
    expect(Math.floor(extra / 100)).toBeLessThanOrEqual(most);
  });
});

describe("a turn that nobody has hooks for costs", () => {
  test("one message and one write, however long its history", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1 });
    const session = await troupe.session("s");
    const one = { hooks: {}, hookLane: NO_TRIP, main: [1, 0], store: ONE_WRITE };
    for (let turn = 0; turn < 20; turn++) expect(await counted(troupe, () => session.turn("hi"))).toEqual(one);
  });

  test("no message for arguments that are streamed, unless somebody looks", async () => {
    const args = { city: "Oslo".repeat(100) };
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model: scriptedModel([{ toolCalls: [{ tool: "nothing", args, streamArgs: true }] }, { text: "Hm." }]),
    });
    const session = await troupe.session("s");
    expect((await counted(troupe, () => session.turn("hi"))).main).toEqual([1, 0]);
    const deltas = (await collect(session.turn("hi"))).filter(({ type }) => type === "tool_input_delta");
    const written = deltas.map((each) => (each.type === "tool_input_delta" ? each.text : "")).join("");
    expect(JSON.parse(written)).toEqual(args);
  });

  test("no message for activities that come when nobody listens any more", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model: scriptedModel({ turns: [[{ chunks: ["a", "b", "c"] }]] }),
    });
    const session = await troupe.session("s");
    const seen: Activity["type"][] = [];
    const late = async () => {
      const turn = session.turn("hi");
      await turn;
      // The last activity is the result, which is here already.
      for await (const { type } of turn) seen.push(type);
    };
    expect((await counted(troupe, late)).main).toEqual([1, 0]);
    expect(seen).toEqual(["turn_finished"]);
  });
});
