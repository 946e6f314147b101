import { TroupeError } from "../kernel/index.js";
import { Crew, type CrewEvents } from "./crew.js";
import { SessionDirectory } from "./directory.js";
import type { ResolvedOptions } from "./options.js";
import type { Session } from "./session-handle.js";
import type { SessionWorker } from "./session-worker.js";

/** What the parts of a runtime share: its threads, and which session is on which. */
export class Runtime {
  readonly options: ResolvedOptions;
  readonly crew: Crew;
  readonly directory: SessionDirectory;
  #closing = false;

  constructor(options: ResolvedOptions, parts: { handleOf: (sessionId: string) => Session; events: CrewEvents }) {
    this.options = options;
    this.crew = new Crew(options, parts.events);
    this.directory = new SessionDirectory(options.sessionWorkers, parts.handleOf);
  }

  worker(index: number): SessionWorker {
    return this.crew.worker(index);
  }

  /** A call about a session, made where it is. */
  use<T>(sessionId: string, call: (worker: SessionWorker) => Promise<T>): Promise<T> {
    this.checkOpen();
    return this.directory.use(sessionId, ({ worker }) => {
      this.checkOpen();
      return call(this.worker(worker));
    });
  }

  get isClosing(): boolean {
    return this.#closing;
  }

  stopIntake(): void {
    this.#closing = true;
  }

  checkOpen(): void {
    if (this.#closing) throw new TroupeError("closed", "This runtime is closed. Create another one.");
  }
}
