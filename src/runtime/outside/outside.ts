import { HOST_METHODS, type ProcessMethod } from "../../plugin/index.js";
import type { OutsideAsk } from "../../session/index.js";
import type { Runtime } from "../places/index.js";
import type { Tasks } from "../tasks/index.js";
import { Monitors } from "./monitors.js";
import { type PermissionsOf, ProcessServices } from "./process-services.js";
import { ProcessWorker } from "./process-worker.js";

/** What sessions have outside of their workers. */
export class Outside {
  readonly #worker: ProcessWorker;
  readonly #processes: ProcessServices;
  readonly #monitors: Monitors;

  constructor(runtime: Runtime, tasks: Tasks) {
    const permissionsOf: PermissionsOf = (pluginId) => runtime.crew.permissionsOf(pluginId);
    this.#worker = new ProcessWorker(runtime.options.clock);
    this.#processes = new ProcessServices(this.#worker, permissionsOf);
    this.#monitors = new Monitors({ runtime, worker: this.#worker, tasks, permissionsOf });
    // Before its tasks are cancelled: monitors end because their session does.
    runtime.onLeft.unshift((sessionId) => this.#left(sessionId));
  }

  /** `monitors`: some in the store go on. */
  start(monitors: boolean): void {
    this.#monitors.start(monitors);
  }

  answer(ask: OutsideAsk): Promise<unknown> {
    if (HOST_METHODS[ask.method] === "monitor") return this.#monitors.answer(ask);
    return this.#processes.answer(ask.method as ProcessMethod, ask);
  }

  /** Ends the thread of all processes as a crash would. */
  kill(): Promise<void> {
    return this.#worker.kill();
  }

  /** Sessions are told of nothing any more. */
  stopTelling(): Promise<void> {
    return this.#monitors.close();
  }

  close(): Promise<void> {
    return this.#worker.close();
  }

  async #left(sessionId: string): Promise<void> {
    await this.#monitors.left(sessionId);
    await this.#worker.askIfThere("endSession", { sessionId });
  }
}
