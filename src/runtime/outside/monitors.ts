import { ignore, Serial } from "../../async/index.js";
import {
  beginMonitor,
  checkMonitor,
  checkMonitorId,
  isEndedState,
  type Json,
  MOST_ENDED,
  type MonitorEnd,
  type MonitorSnapshot,
  type MonitorSpec,
  type MonitorUpdateBatch,
  monitorKey,
  monitorOfTask,
  monitorStatus,
  monitorTaskId,
  monitorUnknown,
  type StoredMonitor,
  sameJson,
  TroupeError,
  takenFrom,
  taskEndOf,
} from "../../kernel/index.js";
import type { OutsideAsk } from "../../session/index.js";
import { grantedPaths } from "../../wire/index.js";
import type { Tasks } from "../tasks/index.js";
import { changeOf, type MonitorRow, MonitorRows } from "./monitor-rows.js";
import { checkEnvironment, checkGranted, type PermissionsOf } from "./process-services.js";
import { type MonitorsRuntime, type MonitorsWorker, RunningMonitor } from "./running-monitor.js";

const MOST_OF_SESSION = 16;
const MOST_RUNNING = 256;

interface MonitorsParts {
  readonly runtime: MonitorsRuntime;
  readonly worker: MonitorsWorker;
  readonly tasks: Tasks;
  readonly permissionsOf: PermissionsOf;
}

/** Answers what plugins ask of `context.host` about monitors, and has those of the store go on. */
export class Monitors {
  readonly #runtime: MonitorsRuntime;
  readonly #worker: MonitorsWorker;
  readonly #permissionsOf: PermissionsOf;
  readonly #tasks: Tasks;
  readonly #rows: MonitorRows;
  /** By session and key. */
  readonly #running = new Map<string, RunningMonitor>();
  /** Those that are not among them yet. */
  readonly #starting = new Set<{ readonly sessionId: string }>();
  /** Of one id, one thing at a time. */
  readonly #acts = new Map<string, Serial>();
  #takingUp: Promise<void> | undefined;
  #closed = false;

  constructor({ runtime, worker, tasks, permissionsOf }: MonitorsParts) {
    this.#runtime = runtime;
    this.#tasks = tasks;
    this.#worker = worker;
    this.#permissionsOf = permissionsOf;
    this.#rows = new MonitorRows(runtime);
    tasks.setKind("monitor", {
      cancel: async ({ sessionId, id }) => {
        await this.#running.get(nameOfTask(sessionId, id))?.stop({ reason: "stopped" });
      },
      takeUp: ({ sessionId, id }) => this.#takeUpTask(sessionId, id),
    });
  }

  /** `open`: there are some in the store that go on. */
  start(open: boolean): void {
    if (open) this.#takingUp = this.#takeUp().catch(() => undefined);
  }

  async answer({ method, sessionId, pluginId, args, asked }: OutsideAsk): Promise<unknown> {
    switch (method) {
      case "takeMonitorUpdates":
        return this.#take(sessionId, pluginId, asked);
      case "startMonitor":
        await this.#start(sessionId, pluginId, args[0]);
        break;
      case "stopMonitor":
        await this.#stop(sessionId, pluginId, checkMonitorId(args[0]));
        break;
    }
    return this.#snapshot(sessionId, pluginId);
  }

  /** A session was closed, or is about to be deleted: its monitors end, with whatever they started. */
  async left(sessionId: string): Promise<void> {
    const all = [...this.#running.values()].filter((running) => running.sessionId === sessionId);
    await Promise.allSettled(all.map((running) => running.leave()));
  }

  /** Nothing is delivered any more; what is watched ends with the thread, and goes on with the next runtime. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#takingUp;
    await Promise.all([...this.#running.values()].map((running) => running.close()));
  }

  async #takeUp(): Promise<void> {
    for await (const { sessionId, stored } of this.#rows.open()) {
      if (this.#closed) return;
      // One that was started anew meanwhile is another.
      if (this.#running.has(nameOf(sessionId, stored))) continue;
      const isCancelled = stored.end === null && (await this.#hasEndedTask(sessionId, stored));
      await this.#run(sessionId, stored).takeUp(stored, isCancelled ? { reason: "stopped" } : undefined);
    }
  }

  /** Was it cancelled by its task? One that has none yet, because its process was killed in between, has it from now on. */
  async #hasEndedTask(sessionId: string, { owner, id, spec }: StoredMonitor): Promise<boolean> {
    const task = taskOf(owner, id, spec);
    const known = await this.#tasks.find(sessionId, task.id);
    if (known === undefined) await this.#tasks.register(sessionId, null, task);
    return known !== undefined && isEndedState(known.state);
  }

  /** A task that the store had going on: of a monitor that has ended, its process was killed in between. */
  async #takeUpTask(sessionId: string, taskId: string): Promise<void> {
    const key = monitorOfTask(taskId);
    const row = key === undefined ? undefined : await this.#rows.at(sessionId, key);
    if (row === undefined) await this.#tasks.complete(sessionId, null, taskId, "cancelled");
    else if (row.stored.end !== null) this.#tellEnd(sessionId, row.stored);
  }

  /** The task of a monitor ends as it has. */
  #tellEnd(sessionId: string, { owner, id, end }: StoredMonitor): void {
    const told = this.#tasks.complete(
      sessionId,
      null,
      monitorTaskId(monitorKey(owner, id)),
      taskEndOf(end as MonitorEnd),
    );
    // Its session is gone, or the runtime ends: then the next one does it.
    told.catch(ignore);
  }

  async #start(sessionId: string, owner: string, request: unknown): Promise<void> {
    const { id, spec } = checkMonitor(request);
    this.#check(owner, spec);
    await this.#alone(nameOf(sessionId, { owner, id }), async () => {
      await this.#takingUp;
      const running = this.#running.get(nameOf(sessionId, { owner, id }));
      const known = (await this.#rows.one(sessionId, owner, id))?.stored;
      if (running !== undefined && known?.end === null && isSame(known.spec, spec)) return;
      await running?.stop({ reason: "stopped" });
      const begins = this.#takePlace(sessionId);
      try {
        await this.#startNow(sessionId, { owner, id, spec }, begins);
      } finally {
        begins();
      }
      await this.#forgetOld(sessionId, owner);
    });
  }

  /** `begins`: called when it is among those that run. */
  async #startNow(
    sessionId: string,
    { owner, id, spec }: { readonly owner: string; readonly id: string; readonly spec: MonitorSpec },
    begins: () => void,
  ): Promise<void> {
    const before = (await this.#rows.one(sessionId, owner, id))?.stored;
    const stored = beginMonitor({ id, owner, spec, now: this.#runtime.options.clock.wallNow(), before });
    const task = taskOf(owner, id, spec);
    await this.#rows.put(sessionId, stored);
    try {
      await this.#tasks.register(sessionId, null, task);
      const running = this.#run(sessionId, stored);
      begins();
      await running.begin(stored);
    } catch (error) {
      await this.#tasks.unregister(sessionId, null, task.id);
      if (before === undefined) await this.#rows.remove(sessionId, [stored]);
      else await this.#rows.put(sessionId, before);
      throw error;
    }
  }

  async #stop(sessionId: string, owner: string, id: string): Promise<void> {
    await this.#alone(nameOf(sessionId, { owner, id }), async () => {
      await this.#takingUp;
      await this.#running.get(nameOf(sessionId, { owner, id }))?.stop({ reason: "stopped" });
      if ((await this.#rows.one(sessionId, owner, id)) === undefined) throw monitorUnknown(id);
    });
  }

  async #snapshot(sessionId: string, owner: string): Promise<MonitorSnapshot> {
    const all = await this.#rows.of(sessionId, owner);
    return { activeCount: active(all), monitors: all.map(({ stored }) => monitorStatus(stored)) };
  }

  /** Of two who take at once the second finds what the first has left. Who asks again, as after a crash, has the same again. */
  async #take(sessionId: string, owner: string, asked: string | undefined): Promise<MonitorUpdateBatch> {
    for (;;) {
      const all = await this.#rows.of(sessionId, owner);
      const before = all.flatMap(({ stored: { taken } }) =>
        asked !== undefined && taken?.by === asked ? [taken] : [],
      );
      if (before.length > 0)
        return batchOf(
          all,
          before.flatMap(({ updates }) => updates),
        );
      const full = all.filter(({ stored }) => stored.pending.length > 0 && isTaken(stored));
      if (full.length === 0) return batchOf(all, []);
      const updates = full.flatMap(({ stored }) => stored.pending);
      const changes = full.map((row) => changeOf(row, takenFrom(row.stored, asked)));
      if (await this.#rows.write(changes)) return batchOf(all, updates);
    }
  }

  #run(sessionId: string, stored: StoredMonitor): RunningMonitor {
    const name = nameOf(sessionId, stored);
    const running = new RunningMonitor(sessionId, stored, {
      runtime: this.#runtime,
      worker: this.#worker,
      rows: this.#rows,
      onEnd: (ended) => this.#tellEnd(sessionId, ended),
      check: ({ owner, spec }) => this.#check(owner, spec),
    });
    this.#running.set(name, running);
    void running.done.then(() => {
      if (this.#running.get(name) === running) this.#running.delete(name);
    });
    return running;
  }

  /** Throws when the plugin may not have that watched. Gives the paths it may read; null: all. */
  #check(pluginId: string, { watch }: MonitorSpec): readonly string[] | null {
    const permissions = this.#permissionsOf(pluginId);
    if (watch.kind === "command") {
      checkGranted(pluginId, this.#permissionsOf);
      checkEnvironment(pluginId, watch.env, permissions);
    }
    return permissions === "all" ? null : grantedPaths(permissions.read);
  }

  /** For one that is being started: of several at once each counts those before it. Until it is given back. */
  #takePlace(sessionId: string): () => void {
    const all = [...this.#running.values(), ...this.#starting];
    const ofSession = all.filter((each) => each.sessionId === sessionId).length;
    if (ofSession >= MOST_OF_SESSION) throw tooMany(`Session ${sessionId}`, MOST_OF_SESSION);
    if (all.length >= MOST_RUNNING) throw tooMany("The runtime", MOST_RUNNING);
    const place = { sessionId };
    this.#starting.add(place);
    return () => void this.#starting.delete(place);
  }

  async #forgetOld(sessionId: string, owner: string): Promise<void> {
    const ended = (await this.#rows.of(sessionId, owner))
      .map(({ stored }) => stored)
      .filter(({ end }) => end !== null)
      .sort((a, b) => b.since - a.since);
    if (ended.length > MOST_ENDED) await this.#rows.remove(sessionId, ended.slice(MOST_ENDED));
  }

  async #alone<T>(name: string, act: () => Promise<T>): Promise<T> {
    const acts = this.#acts.get(name) ?? new Serial();
    this.#acts.set(name, acts);
    try {
      return await acts.run(act);
    } finally {
      if (acts.size === 0) this.#acts.delete(name);
    }
  }
}

/** As what a monitor stands in its session's list of tasks. */
function taskOf(owner: string, id: string, { label }: MonitorSpec) {
  return { kind: "monitor", id: monitorTaskId(monitorKey(owner, id)), label } as const;
}

function nameOfTask(sessionId: string, taskId: string): string {
  return `${sessionId}\n${monitorOfTask(taskId)}`;
}

function nameOf(sessionId: string, { owner, id }: Pick<StoredMonitor, "owner" | "id">): string {
  return `${sessionId}\n${monitorKey(owner, id)}`;
}

/** What delivers its updates by itself has none to be taken, but for those left when somebody ended it. */
function isTaken({ spec, end }: StoredMonitor): boolean {
  return spec.deliver === "none" || end?.reason === "stopped" || end?.reason === "session_closed";
}

function batchOf(all: readonly MonitorRow[], updates: MonitorUpdateBatch["updates"]): MonitorUpdateBatch {
  return { activeCount: active(all), updates: [...updates].sort((a, b) => a.at - b.at) };
}

function active(all: readonly MonitorRow[]): number {
  return all.filter(({ stored }) => stored.end === null).length;
}

function isSame(a: MonitorSpec, b: MonitorSpec): boolean {
  return sameJson(a as unknown as Json, b as unknown as Json);
}

function tooMany(who: string, limit: number): TroupeError {
  return new TroupeError("monitor_limit", `${who} has ${limit} monitors that go on, and may have no more.`, {
    retryable: true,
    details: { limit },
  });
}
