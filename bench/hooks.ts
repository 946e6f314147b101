import { availableParallelism } from "node:os";
import { MessageChannel, Worker } from "node:worker_threads";
import { systemClock } from "../src/async/index.js";
import { ThreadPermissions } from "../src/runtime/options/permissions.js";
import { Thread } from "../src/runtime/threads/threads.js";
import type { PluginHostService } from "../src/session/index.js";
import { newStage } from "../src/wire/index.js";
import type { Bar, Bench, BenchResult, BenchRun, Table } from "./measuring/report.js";
import { compare, middle } from "./measuring/sampling.js";
import type { CellPlan, MeasureReport, MeasureSetup, Route } from "./threads/measure-hooks.js";

const BARS: readonly Bar[] = [
  {
    id: "hook_isolated_p50_vs_port",
    atMost: 1.1,
    says: "isolated hook, one at a time, 0.5 KB: p50 over that of a bare MessagePort echo of the same payload",
  },
  {
    id: "hook_isolated_100_vs_comlink",
    atMost: 0.18,
    says: "isolated hook, 100 in flight, 0.5 KB: cost per call over that of plain Comlink on the same work",
  },
  { id: "hook_inline_us", atMost: 2, says: "inline hook: microseconds added to calling the function bare" },
];

const SIZES = [512, 8 * 1024, 64 * 1024];
const IN_FLIGHT = [1, 10, 100, 1000];

type Measured = Extract<MeasureReport, { type: "done" }>;
type Cell = Measured["cells"][number];

export const hooks: Bench = {
  name: "hooks",
  question: "What does a hook call cost, isolated and inline?",
  bars: BARS,
  async run(run) {
    return resultOf(await measure(run));
  },
};

/** Starts the peers, a thread each, and the thread that measures them from where a session worker stands. */
async function measure({ quick, progress }: BenchRun): Promise<Measured> {
  progress("starting threads");
  const [echo, ack, comlink, wrapped, lane, plugin, host] = [
    new MessageChannel(),
    new MessageChannel(),
    new MessageChannel(),
    new MessageChannel(),
    new MessageChannel(),
    new MessageChannel(),
    new MessageChannel(),
  ];
  const workers: Worker[] = [];
  const start = (entry: string, workerData: object, transferList: MessageChannel["port1"][]) => {
    const worker = new Worker(new URL(`./threads/${entry}.js`, import.meta.url), { workerData, transferList });
    workers.push(worker);
    return worker;
  };
  const module = new URL("./plugins/guard.js", import.meta.url).href;
  const rights = new ThreadPermissions().rights({ name: module, modules: [module], permissions: {} });
  // As `runtime/threads/plugin-hosts.ts` starts it.
  const pluginThread = new Thread<PluginHostService>({
    kind: "plugin",
    clock: systemClock,
    name: "Plugin worker",
    env: rights.env,
    execArgv: rights.execArgv,
  });
  try {
    start("echo", { echo: echo.port2, ack: ack.port2 }, [echo.port2, ack.port2]);
    start("comlink", { comlink: comlink.port2, wrapped: wrapped.port2, lane: lane.port2 }, [
      comlink.port2,
      wrapped.port2,
      lane.port2,
    ]);
    const stage = newStage();
    const { manifests } = await pluginThread.caller.to.load({
      plugins: [{ module, options: undefined }],
      development: false,
      stage,
      externalMb: 256,
      denials: rights.denials,
    });
    const started = new Int32Array(new SharedArrayBuffer(4));
    await pluginThread.caller.to.attach(
      { port: plugin.port2, hostPort: host.port2, name: "The measuring thread", lane: 1, started, alone: false },
      { transfer: [plugin.port2, host.port2] },
    );
    const setup: MeasureSetup = {
      echo: echo.port1,
      ack: ack.port1,
      guard: { comlink: comlink.port1, wrapped: wrapped.port1, lane: lane.port1 },
      plugin: plugin.port1,
      host: host.port1,
      stage,
      started,
      manifest: manifests[0] as MeasureSetup["manifest"],
      cells: SIZES.flatMap((bytes) => IN_FLIGHT.map((inFlight) => planCell(bytes, inFlight, quick))),
      routes: [1, 100].map((inFlight) => ({ bytes: 512, inFlight, budgetMs: quick ? 2_000 : 8_000 })),
      inline: { bytes: 512, budgetMs: quick ? 1_500 : 6_000 },
    };
    const measuring = start(
      "measure-hooks",
      setup,
      [echo, ack, comlink, wrapped, lane, plugin, host].map(({ port1 }) => port1),
    );
    return await new Promise<Measured>((resolve, reject) => {
      for (const worker of workers) {
        worker.on("error", reject);
        worker.on("exit", (code) => reject(new Error(`A thread of the bench ended with code ${code}.`)));
      }
      measuring.on("message", (report: MeasureReport) => {
        if (report.type === "measuring") progress(`measuring ${report.what}`);
        else resolve(report);
      });
    });
  } finally {
    await Promise.all([...workers.map((worker) => worker.terminate()), pluginThread.terminate()]);
  }
}

/** The cells that are judged get most of the time. */
function planCell(bytes: number, inFlight: number, quick: boolean): CellPlan {
  const judged = bytes === 512 && (inFlight === 1 || inFlight === 100);
  if (judged) return { bytes, inFlight, budgetMs: quick ? 3_000 : 12_000 };
  return { bytes, inFlight, budgetMs: quick ? 600 : 3_000 };
}

function resultOf({ cells, routes, inline }: Measured): BenchResult {
  const alone = cellOf(cells, 512, 1);
  const crowd = cellOf(cells, 512, 100);
  const vsPort = compare(alone.rounds, ({ troupe, echo }) => troupe / echo);
  const vsComlink = compare(crowd.rounds, ({ troupe, comlink }) => troupe / comlink);
  const added = compare(inline, (round) => round.inline - round.bare);
  return {
    ratios: {
      hook_isolated_p50_vs_port: vsPort.middle,
      hook_isolated_100_vs_comlink: vsComlink.middle,
      hook_inline_us: added.middle,
    },
    samples: {
      node: process.version,
      cores: availableParallelism(),
      spread: {
        hook_isolated_p50_vs_port: [vsPort.low, vsPort.high],
        hook_isolated_100_vs_comlink: [vsComlink.low, vsComlink.high],
        hook_inline_us: [added.low, added.high],
      },
      hook_isolated_p50_vs_port_ack: compare(alone.rounds, ({ troupe, ack }) => troupe / ack).middle,
      inline: { rounds: inline.length, bareUs: middle(inline, "bare"), inlineUs: middle(inline, "inline") },
      routes: routes.map(({ bytes, inFlight, rounds }) => ({
        bytes,
        inFlight,
        rounds: rounds.length,
        ...Object.fromEntries(ROUTES.map((route) => [`${route}Us`, middle(rounds, route)])),
        laneOfComlink: compare(rounds, ({ lane, comlink }) => lane / comlink),
        laneOfWrapped: compare(rounds, ({ lane, wrapped }) => lane / wrapped),
        wrappedOfComlink: compare(rounds, ({ wrapped, comlink }) => wrapped / comlink),
      })),
      cells: cells.map(({ bytes, inFlight, rounds }) => ({
        bytes,
        inFlight,
        rounds: rounds.length,
        echoUs: middle(rounds, "echo"),
        ackUs: middle(rounds, "ack"),
        comlinkUs: middle(rounds, "comlink"),
        troupeUs: middle(rounds, "troupe"),
      })),
    },
    tables: [cellTable(cells), routeTable(routes)],
    notes: [
      "Everything is called from one worker thread, as a session worker would, in alternating slots of one run; each peer has a thread of its own.",
      "Isolated is the real path: SessionHooks, deadline, signal, probe, hook lane, workers/plugin.js, directives read. Contexts are distinct objects.",
      "port echo sends the payload back; port ack answers with nothing, as the hook does. One in flight: p50 of a round trip; more: wall time per call of a batch.",
      `Medians over rounds; ratios are taken round by round. Middle 80% of rounds: ${vsPort.low.toFixed(2)}-${vsPort.high.toFixed(2)} of port, ${vsComlink.low.toFixed(3)}-${vsComlink.high.toFixed(3)} of Comlink, ${added.low.toFixed(2)}-${added.high.toFixed(2)} us inline.`,
      `Inline: ${middle(inline, "inline").toFixed(2)} us through the runtime, ${middle(inline, "bare").toFixed(2)} us bare. ${availableParallelism()} cores, Node ${process.version}.`,
    ],
  };
}

function cellOf(cells: readonly Cell[], bytes: number, inFlight: number): Cell {
  const cell = cells.find((candidate) => candidate.bytes === bytes && candidate.inFlight === inFlight);
  if (cell === undefined) throw new Error(`The cell of ${bytes} bytes and ${inFlight} in flight was not measured.`);
  return cell;
}

function cellTable(cells: readonly Cell[]): Table {
  return {
    title: "Microseconds per call",
    columns: [
      "context",
      "in flight",
      "port echo",
      "port ack",
      "Comlink",
      "isolated",
      "of echo",
      "of ack",
      "of Comlink",
      "rounds",
    ],
    rows: cells.map(({ bytes, inFlight, rounds }) => [
      `${bytes / 1024} KB`,
      inFlight,
      middle(rounds, "echo"),
      middle(rounds, "ack"),
      middle(rounds, "comlink"),
      middle(rounds, "troupe"),
      compare(rounds, ({ troupe, echo }) => troupe / echo).middle,
      compare(rounds, ({ troupe, ack }) => troupe / ack).middle,
      compare(rounds, ({ troupe, comlink }) => troupe / comlink).middle,
      rounds.length,
    ]),
  };
}

const ROUTES = ["port", "comlink", "wrapped", "lane"] as const satisfies readonly Route[];

/** The same function called by each route, without anything of the runtime around it. */
function routeTable(routes: Measured["routes"]): Table {
  return {
    title: "Microseconds per call, by route",
    columns: [
      "context",
      "in flight",
      "bare port",
      "Comlink",
      "wrapped Comlink",
      "lane",
      "wrapped of Comlink",
      "lane of Comlink",
      "lane of wrapped",
      "rounds",
    ],
    rows: routes.map(({ bytes, inFlight, rounds }) => [
      `${bytes / 1024} KB`,
      inFlight,
      ...ROUTES.map((route) => middle(rounds, route)),
      compare(rounds, ({ wrapped, comlink }) => wrapped / comlink).middle,
      compare(rounds, ({ lane, comlink }) => lane / comlink).middle,
      compare(rounds, ({ lane, wrapped }) => lane / wrapped).middle,
      rounds.length,
    ]),
  };
}
