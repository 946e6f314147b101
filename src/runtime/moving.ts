import { TroupeError } from "../kernel/index.js";
import type { Remnant } from "../session/index.js";
import type { Observers } from "./observers.js";
import { leastLoaded } from "./placement.js";
import type { Runtime } from "./runtime.js";

/** Brings sessions from one worker to another. */
export class Moving {
  readonly #runtime: Runtime;
  readonly #observers: Observers;

  constructor(runtime: Runtime, observers: Observers) {
    this.#runtime = runtime;
    this.#observers = observers;
  }

  async move(sessionId: string, worker: number): Promise<void> {
    this.#runtime.checkOpen();
    const to = this.#runtime.worker(worker);
    const moved = await this.#runtime.directory.moveOver(sessionId, async (residence) => {
      if (residence.worker === worker) return;
      const from = this.#runtime.worker(residence.worker);
      const remnant = await from.handOver(sessionId);
      await to.takeOver(sessionId, remnant);
      residence.worker = worker;
      this.#observers.moved(sessionId, from);
    });
    if (moved) return;
    throw new TroupeError("session_unknown", `This runtime has no session ${sessionId}.`, { details: { sessionId } });
  }

  async rebalance(): Promise<number> {
    this.#runtime.checkOpen();
    const { directory, crew } = this.#runtime;
    const fair = Math.ceil(directory.loads().reduce((sum, load) => sum + load, 0) / crew.sessionWorkers.length);
    let moved = 0;
    for (const { index } of crew.sessionWorkers) {
      const own = directory.on(index);
      const idle = own.filter(({ handle }) => !directory.isBusy(handle.id));
      for (const { handle } of idle.slice(0, Math.max(0, own.length - fair))) {
        const done = await this.move(handle.id, leastLoaded(directory.loads(), index)).then(() => true, isBusy);
        if (done) moved++;
      }
    }
    return moved;
  }

  async recycle(worker: number): Promise<void> {
    this.#runtime.checkOpen();
    const own = this.#runtime.worker(worker);
    const { directory, options } = this.#runtime;
    const { drainMs } = options;
    const remnants = new Map<string, Remnant>();
    let replaced: () => void = ignore;
    const replacing = new Promise<void>((resolve) => {
      replaced = resolve;
    });
    const stays: Promise<unknown>[] = [];
    const gone = directory.on(worker).map(
      ({ handle: { id } }) =>
        new Promise<void>((left) => {
          const stay = directory.moveOver(id, async () => {
            // A session that is busy by itself is stored when the thread ends.
            const remnant = await own.handOver(id).catch(ignore);
            if (remnant !== undefined) remnants.set(id, remnant);
            left();
            await replacing;
          });
          stays.push(stay.finally(left));
        }),
    );
    await Promise.all(gone);
    try {
      await own.recycle({ drainMs });
      await Promise.all([...remnants].map(([id, remnant]) => own.takeOver(id, remnant)));
    } finally {
      replaced();
      await Promise.allSettled(stays);
    }
  }
}

/** False for a session that is busy; any other error is one. */
function isBusy(error: TroupeError): boolean {
  if (error.code === "session_busy") return false;
  throw error;
}

function ignore(): void {}
