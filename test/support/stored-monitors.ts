import { type Deferred, deferred } from "../../src/async/index.js";
import {
  MONITORS,
  type MonitorEnd,
  type MonitorRequest,
  type MonitorSnapshot,
  type MonitorUpdateBatch,
  type StoredMonitor,
  TroupeError,
  type WatchNews,
} from "../../src/kernel/index.js";
import { Monitors } from "../../src/runtime/outside/monitors.js";
import type { MonitorsRuntime, MonitorsWorker } from "../../src/runtime/outside/running-monitor.js";
import type { ArgumentOf, LoneAnswer } from "../../src/session/index.js";
import { decode } from "../../src/wire/index.js";
import { storedTasks } from "./stored-tasks.js";

/** A thread of processes that says what a test has it say. */
export class SaidNews {
  readonly started: string[] = [];
  readonly fed: string[] = [];
  readonly #waiting = new Map<string, Deferred<WatchNews>>();
  readonly #said = new Map<string, WatchNews[]>();
  #refusal: TroupeError | undefined;

  readonly #calls: Record<string, (argument: never) => unknown> = {
    startWatch: ({ id }: { id: string }) => {
      if (this.#refusal !== undefined) throw this.#refusal;
      this.started.push(id);
      return null;
    },
    nextNews: ({ id }: { id: string }) => {
      const said = this.#said.get(id)?.shift();
      if (said !== undefined) return said;
      const waiting = deferred<WatchNews>();
      this.#waiting.set(id, waiting);
      return waiting.promise;
    },
    feedWatch: ({ line }: { line: string }) => {
      this.fed.push(line);
      this.say([line]);
    },
    stopWatch: ({ id, end }: { id: string; end: MonitorEnd }) => this.#tell(id, newsOf([], { end })),
  };

  readonly ask = (async (method: string, argument: never) => this.#calls[method]?.(argument)) as MonitorsWorker["ask"];
  readonly askIfThere = this.ask as MonitorsWorker["askIfThere"];

  /** Of the watch that was started last. */
  say(lines: readonly string[], more: Partial<WatchNews> = {}): void {
    this.#tell(this.started.at(-1) as string, newsOf(lines, more));
  }

  refuse(error: TroupeError | undefined): void {
    this.#refusal = error;
  }

  /** The thread ends. */
  die(): void {
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const each of waiting) each.reject(new TroupeError("worker_lost", "The thread ended.", { retryable: true }));
  }

  #tell(id: string, news: WatchNews): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (waiting !== undefined) waiting.resolve(news);
    else this.#said.set(id, [...(this.#said.get(id) ?? []), news]);
  }
}

function newsOf(lines: readonly string[], more: Partial<WatchNews> = {}): WatchNews {
  return { lines, dropped: 0, place: null, restarted: false, end: null, ...more };
}

/** Monitors of plugin `p` over a store in memory, a thread that says what it is told, and sessions that note what they are told. */
export function storedMonitors(stored = storedTasks()) {
  const { tasks, clock, runtime } = stored;
  const worker = new SaidNews();
  const tools: string[] = [];
  let outcome: () => "taken" | "skipped" = () => "taken";
  let answer: (tool: string) => LoneAnswer | Promise<LoneAnswer> = () => ({ status: "answered", text: "" });
  let onWritten = () => {};
  const asked: MonitorsRuntime = {
    ...runtime,
    store: {
      ask: (async (method: "changeRows", argument: never) => {
        const answer = await runtime.store.ask(method, argument);
        if (method === "changeRows") onWritten();
        return answer;
      }) as MonitorsRuntime["store"]["ask"],
    },
    ask: (async (method: string, argument: never) => {
      if (method === "runTool") {
        const { tool } = argument as ArgumentOf<"runTool">;
        tools.push(tool);
        return answer(tool);
      }
      const delivery = argument as ArgumentOf<"deliverInput">;
      if (outcome() === "taken") return runtime.ask("deliverInput", delivery);
      const { skipped } = delivery.rows;
      await runtime.store.ask("changeRows", { changes: skipped === undefined ? [] : [skipped] });
      return "skipped";
    }) as MonitorsRuntime["ask"],
  };
  const monitors = new Monitors({ runtime: asked, worker, tasks, permissionsOf: () => "all" });
  const call = (method: string, ...args: unknown[]) =>
    monitors.answer({ method: method as never, sessionId: "s", pluginId: "p", args, asked: undefined });
  return {
    ...stored,
    monitors,
    worker,
    tools,
    start: (request: MonitorRequest) => call("startMonitor", request) as Promise<MonitorSnapshot>,
    stop: (id: string) => call("stopMonitor", id) as Promise<MonitorSnapshot>,
    snapshot: () => call("monitorSnapshot") as Promise<MonitorSnapshot>,
    take: (by?: string) =>
      monitors.answer({
        method: "takeMonitorUpdates",
        sessionId: "s",
        pluginId: "p",
        args: [],
        asked: by,
      }) as Promise<MonitorUpdateBatch>,
    row: (): StoredMonitor | undefined => {
      const [row] = stored.backend.rows({ table: MONITORS, session: "s", limit: 1 });
      return row && decode<StoredMonitor>(row.value);
    },
    /** What a session says when an input comes to it. */
    onOutcome: (then: typeof outcome) => {
      outcome = then;
    },
    /** Told of a write that was made, before it is answered. */
    onWritten: (then: typeof onWritten) => {
      onWritten = then;
    },
    onTool: (then: typeof answer) => {
      answer = then;
    },
    settled: () => clock.turn(),
  };
}
