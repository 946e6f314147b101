import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import * as Comlink from "comlink";
import nodeEndpoint from "comlink/dist/esm/node-adapter.mjs";
import { ignore, systemClock } from "../../src/async/index.js";
import { type LoadedPlugin, loadPlugin, type PluginManifest } from "../../src/plugin/index.js";
import { HookTable } from "../../src/session/plugins/hook-table.js";
import { PluginGroup } from "../../src/session/plugins/hosts/plugin-group.js";
import { WorkerLink } from "../../src/session/plugins/hosts/worker-link.js";
import { InlineLink } from "../../src/session/plugins/inline-link.js";
import { type PluginLink, PluginSlot } from "../../src/session/plugins/plugin-link.js";
import { readDirectives } from "../../src/session/plugins/read-directives.js";
import { SessionHooks } from "../../src/session/plugins/session-hooks.js";
import { PhaseProbe } from "../../src/trace/index.js";
import { Caller, Lane } from "../../src/wire/index.js";
import { type GuardFacts, makeContexts } from "../measuring/contexts.js";
import { type Contender, median, type Rounds, takeRounds } from "../measuring/sampling.js";
import guard from "../plugins/guard.js";
import type { Guard, GuardPorts } from "./comlink.js";

/**
 * The thread hooks are measured from. It stands where a session worker stands and calls hooks as a turn does: through
 * SessionHooks, with a signal, the deadline and the probe, reading the answer for directives.
 */
export interface MeasureSetup {
  readonly echo: MessagePort;
  readonly ack: MessagePort;
  readonly guard: GuardPorts;
  readonly plugin: MessagePort;
  readonly host: MessagePort;
  readonly stage: Int32Array;
  readonly started: Int32Array;
  readonly manifest: PluginManifest;
  readonly cells: readonly CellPlan[];
  readonly routes: readonly CellPlan[];
  readonly inline: { readonly bytes: number; readonly budgetMs: number };
}

export interface CellPlan {
  readonly bytes: number;
  readonly inFlight: number;
  readonly budgetMs: number;
}

export type Peer = "echo" | "ack" | "comlink" | "troupe";
/** The ways a call can take to another thread, each with the same function at its end. */
export type Route = "port" | "comlink" | "wrapped" | "lane";
export type InlinePeer = "bare" | "inline";

export type MeasureReport =
  | { readonly type: "measuring"; readonly what: string }
  | {
      readonly type: "done";
      readonly cells: readonly (CellPlan & { readonly rounds: Rounds<Peer> })[];
      readonly routes: readonly (CellPlan & { readonly rounds: Rounds<Route> })[];
      readonly inline: Rounds<InlinePeer>;
    };

const SLOT_MS = 10;
const LEAST_ROUNDS = 3;
const DEADLINE_MS = 5_000;
const AWAITS_PER_BATCH = 500;

type Call = (facts: GuardFacts, index: number) => Promise<unknown>;

async function measure(setup: MeasureSetup, report: (report: MeasureReport) => void): Promise<void> {
  const sessions = Math.max(...setup.cells.map(({ inFlight }) => inFlight));
  const bare = bareCalls(setup.ack);
  const comlink = comlinkCalls(setup.guard.comlink);
  const measureCells = async <Name extends string>(
    plans: readonly CellPlan[],
    calls: Readonly<Record<Name, Call>>,
  ): Promise<(CellPlan & { rounds: Rounds<Name> })[]> => {
    const cells: (CellPlan & { rounds: Rounds<Name> })[] = [];
    for (const cell of plans) {
      report({ type: "measuring", what: `${cell.bytes / 1024} KB, ${cell.inFlight} in flight` });
      const contexts = makeContexts(cell.inFlight, cell.bytes);
      const contenders = (Object.entries(calls) as [Name, Call][]).map(([name, call]) => batches(name, call, contexts));
      const rounds = await takeRounds(contenders, { budgetMs: cell.budgetMs, slotMs: SLOT_MS, least: LEAST_ROUNDS });
      cells.push({ ...cell, rounds });
    }
    return cells;
  };
  const cells = await measureCells(setup.cells, {
    echo: bareCalls(setup.echo),
    ack: bare,
    comlink,
    troupe: hookCalls(isolatedLink(setup), sessions),
  });
  const routes = await measureCells(setup.routes, {
    port: bare,
    comlink,
    wrapped: wrappedCalls(setup.guard.wrapped),
    lane: laneCalls(setup.guard.lane),
  });
  report({ type: "measuring", what: "inline" });
  report({ type: "done", cells, routes, inline: await measureInline(setup.inline) });
}

/** All contexts at once, again and again: the middle batch's time over the calls in it. */
function batches<Name extends string>(name: Name, call: Call, contexts: readonly GuardFacts[]): Contender<Name> {
  const [only] = contexts;
  const batch =
    contexts.length === 1 && only !== undefined ? () => call(only, 0) : () => Promise.all(contexts.map(call));
  return {
    name,
    async measure(ms) {
      const costs: number[] = [];
      const until = performance.now() + ms;
      do {
        const started = performance.now();
        await batch();
        costs.push(((performance.now() - started) * 1000) / contexts.length);
      } while (performance.now() < until);
      return median(costs);
    },
  };
}

/** A port and nothing else. Answers come in the order of the questions, so a queue is all the book-keeping there is. */
function bareCalls(port: MessagePort): Call {
  const waiting: ((answer: unknown) => void)[] = [];
  let first = 0;
  port.on("message", (answer) => {
    waiting[first++]?.(answer);
    if (first < waiting.length) return;
    waiting.length = 0;
    first = 0;
  });
  return (facts) =>
    new Promise((resolve) => {
      waiting.push(resolve);
      port.postMessage(facts);
    });
}

function comlinkCalls(port: MessagePort): Call {
  const remote = Comlink.wrap<Guard>(nodeEndpoint(port));
  return (facts) => remote.beforeToolCall(facts);
}

/** As `wire/calls.ts` calls: Comlink with a deadline, errors as data, and calls that settle when the thread dies. */
function wrappedCalls(port: MessagePort): Call {
  const caller = new Caller<Guard>(port, { name: "The guard", clock: systemClock, deadlineMs: DEADLINE_MS });
  return (facts) => caller.to.beforeToolCall(facts);
}

/** As the lane calls, with the same promises: a deadline, errors with their codes, and calls that settle. */
function laneCalls(port: MessagePort): Call {
  const lane = new Lane(port, { name: "The guard", clock: systemClock });
  return (facts) => lane.call("beforeToolCall", facts, { deadlineMs: DEADLINE_MS });
}

/** Hooks as `session/tool-calls.ts` calls them, one session per call in flight. */
function hookCalls(link: PluginLink, sessions: number): Call {
  const table = new HookTable([link], [link.manifest.contributions], "sequential");
  const all = Array.from({ length: sessions }, (_, n) => ({
    hooks: new SessionHooks(table, [new PluginSlot(`session-${n}`, { number: n })]),
    signal: new AbortController().signal,
  }));
  return (facts, index) => {
    const { hooks, signal } = all[index] as (typeof all)[number];
    return hooks.each(
      "before_tool_call",
      () => facts,
      (answer, pluginId) => {
        for (const { value } of readDirectives(answer, "before_tool_call", pluginId)) throw new Error(value.kind);
      },
      { signal },
    );
  };
}

/** What a link needs that no hook of the bench asks for. */
const LINK_PARTS = {
  clock: systemClock,
  deadlineMs: DEADLINE_MS,
  optionalInChildren: false,
  development: false,
  host: () => Promise.reject(new Error("No hook of this bench asks for host services.")),
};

function isolatedLink({ manifest, plugin, host, stage, started }: MeasureSetup): PluginLink {
  const group = new PluginGroup({
    ...LINK_PARTS,
    number: 0,
    name: manifest.id,
    shards: 1,
    isolation: "shared",
    want: ignore,
    down: ignore,
    floating: ignore,
  });
  const link = new WorkerLink({ ...LINK_PARTS, manifest, probe: new PhaseProbe(), group, member: 0 });
  group.attach({ group: 0, key: "shard 0", port: plugin, hostPort: host, lane: 1, stage, started });
  return link;
}

/** The same function behind the runtime and bare, awaited one call after another. */
async function measureInline({ bytes, budgetMs }: MeasureSetup["inline"]): Promise<Rounds<InlinePeer>> {
  const plugin = await loadPlugin(guard, undefined, "bench/plugins/guard.js");
  const [facts] = makeContexts(1, bytes) as [GuardFacts];
  const inline = hookCalls(new InlineLink({ ...LINK_PARTS, plugin, probe: new PhaseProbe() }), 1);
  const bare = bareHook(plugin, facts);
  return takeRounds([awaits("bare", bare), awaits("inline", () => inline(facts, 0))], {
    budgetMs,
    slotMs: SLOT_MS,
    least: LEAST_ROUNDS,
  });
}

function bareHook(plugin: LoadedPlugin, facts: GuardFacts): () => unknown {
  const hook = plugin.contributed.hook("before_tool_call", 0) as unknown as (context: object) => unknown;
  const context = { ...facts, state: { calls: 0 }, options: plugin.options };
  return () => hook(context);
}

function awaits<Name extends string>(name: Name, call: () => unknown): Contender<Name> {
  return {
    name,
    async measure(ms) {
      const costs: number[] = [];
      const until = performance.now() + ms;
      do {
        const started = performance.now();
        for (let i = 0; i < AWAITS_PER_BATCH; i++) await call();
        costs.push(((performance.now() - started) * 1000) / AWAITS_PER_BATCH);
      } while (performance.now() < until);
      return median(costs);
    },
  };
}

if (parentPort === null) throw new Error("bench/threads/measure-hooks.js is the entry of a worker thread.");
const main = parentPort;
await measure(workerData as MeasureSetup, (report) => main.postMessage(report));
