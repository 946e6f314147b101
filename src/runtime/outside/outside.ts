import type { ProcessMethod } from "../../plugin/index.js";
import type { OutsideAsk } from "../../session/index.js";
import type { Runtime } from "../places/index.js";
import { ProcessServices } from "./process-services.js";
import { ProcessWorker } from "./process-worker.js";

/** What sessions have outside of their workers. */
export class Outside {
  readonly #worker: ProcessWorker;
  readonly #processes: ProcessServices;

  constructor(runtime: Runtime) {
    this.#worker = new ProcessWorker(runtime.options.clock);
    this.#processes = new ProcessServices(this.#worker, (pluginId) => runtime.crew.permissionsOf(pluginId));
    runtime.onLeft.push((sessionId) => this.#left(sessionId));
  }

  answer(ask: OutsideAsk): Promise<unknown> {
    return this.#processes.answer(ask.method as ProcessMethod, ask);
  }

  /** Ends the thread of all processes as a crash would. */
  kill(): Promise<void> {
    return this.#worker.kill();
  }

  close(): Promise<void> {
    return this.#worker.close();
  }

  async #left(sessionId: string): Promise<void> {
    await this.#worker.askIfThere("endSession", { sessionId });
  }
}
