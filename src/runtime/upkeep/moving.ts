import { Serial, sleep } from "../../async/index.js";
import { messageOf, sessionUnknown, type TroupeError } from "../../kernel/index.js";
import type { Observers } from "../observe/index.js";
import { leastLoaded, type Residence, type Runtime } from "../places/index.js";
import { type SessionWorker, unknownWorker } from "../threads/index.js";

/** How often a session is tried again that is busy by itself. */
const BUSY_MS = 50;

/** Brings sessions from one worker to another. */
export class Moving {
  readonly #runtime: Runtime;
  readonly #observers: Observers;
  /** Recyclings, one at a time. */
  readonly #recycling = new Serial();

  constructor(runtime: Runtime, observers: Observers) {
    this.#runtime = runtime;
    this.#observers = observers;
  }

  async move(sessionId: string, worker: number): Promise<void> {
    this.#runtime.checkOpen();
    const { sessionWorkers } = this.#runtime.crew;
    if (sessionWorkers[worker] === undefined) throw unknownWorker(worker, sessionWorkers.length);
    const moved = await this.#runtime.directory.moveOver(sessionId, async (residence) => {
      if (residence.worker !== worker) await this.#bring(residence, worker);
    });
    if (moved) return;
    throw sessionUnknown(sessionId, "in this runtime");
  }

  async rebalance(): Promise<number> {
    this.#runtime.checkOpen();
    const { directory, crew } = this.#runtime;
    const fair = Math.ceil(directory.loads().reduce((sum, load) => sum + load, 0) / crew.sessionWorkers.length);
    let moved = 0;
    for (const { index } of crew.sessionWorkers) {
      const own = directory.on(index);
      const idle = own.filter(({ id }) => !directory.isBusy(id));
      for (const { id } of idle.slice(0, Math.max(0, own.length - fair))) {
        const done = await this.move(id, leastLoaded(directory.loads(), index)).then(() => true, unlessBusy);
        if (done) moved++;
      }
    }
    return moved;
  }

  /** One at a time: whoever comes meanwhile waits. */
  recycle(worker: number): Promise<void> {
    return this.#recycling.run(() => this.#recycle(worker));
  }

  /** A worker's heap stays full. While another is being recycled it waits, and will say so again. */
  full(worker: SessionWorker): void {
    if (this.#recycling.size > 0 || this.#runtime.isClosing || worker.place !== worker.index) return;
    this.recycle(worker.index).catch((error: unknown) => {
      if (!this.#runtime.isClosing) process.emitWarning(`A session worker could not be recycled: ${messageOf(error)}`);
    });
  }

  async #recycle(worker: number): Promise<void> {
    this.#runtime.checkOpen();
    const { directory, crew, options } = this.#runtime;
    const old = await crew.replace(worker, ({ place }) => directory.follow(worker, place));
    // Again, because a session may be on its way there while the others leave.
    for (let left = directory.on(old.place); left.length > 0; left = directory.on(old.place)) {
      await Promise.all(left.map(({ id }) => this.#bringAway(id, old)));
      this.#runtime.checkOpen();
    }
    await crew.endRetired(options);
  }

  /** As soon as the session has nothing to do; one that cannot be stored is left behind, and ends with the thread. */
  async #bringAway(sessionId: string, old: SessionWorker): Promise<void> {
    for (let busy = true; busy && !this.#runtime.isClosing; ) {
      busy = false;
      await this.#runtime.directory.moveOver(sessionId, async (residence) => {
        if (residence.worker !== old.place) return;
        await this.#bring(residence, old.index).catch((error: TroupeError) => {
          // A turn that waiting inputs began; only its worker knows when it ends.
          busy = isBusy(error);
          if (busy) return;
          residence.worker = old.index;
          this.#observers.moved(sessionId, old);
        });
      });
      if (busy) await sleep(this.#runtime.options.clock, BUSY_MS, { ref: false });
    }
  }

  async #bring(residence: Residence, to: number): Promise<void> {
    const { id } = residence;
    const from = this.#runtime.worker(residence.worker);
    const notes = await from.ask("handOver", { sessionId: id });
    const target = this.#runtime.worker(to);
    await target.ask("takeOver", { sessionId: id, notes });
    // It may have left its place meanwhile.
    residence.worker = target.place;
    this.#observers.moved(id, from);
  }
}

/** For a move that may fail because the session is busy. */
function unlessBusy(error: TroupeError): boolean {
  if (isBusy(error)) return false;
  throw error;
}

function isBusy({ code }: TroupeError): boolean {
  return code === "session_busy";
}
