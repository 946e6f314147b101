import { runtimeClosed, type TroupeError } from "../../kernel/index.js";
import type { AnswerOf, ArgumentOf, SessionMethod } from "../../session/index.js";
import { type EventSink, eventError } from "../../trace/index.js";
import type { CallOptions } from "../../wire/index.js";
import type { ResolvedOptions } from "../options/index.js";
import { Crew, type CrewEvents, type SessionWorker, type StoreWorker } from "../threads/index.js";
import { SessionDirectory } from "./directory.js";

/** What the parts of a runtime share: its threads, and which session is on which. */
export class Runtime {
  readonly options: ResolvedOptions;
  readonly crew: Crew;
  readonly directory: SessionDirectory;
  /** Undefined: nobody listens. */
  readonly events: EventSink | undefined;
  /** How many forks hosts have made. */
  forks = 0;
  /** Ends what goes on for a session outside of its worker: it was closed, or is about to be deleted. */
  readonly onLeft: ((sessionId: string) => Promise<void>)[] = [];
  #closing = false;
  /** Why nothing can be asked any more, when its store died. */
  #storeLost: TroupeError | undefined;

  constructor(options: ResolvedOptions, events: CrewEvents) {
    this.options = options;
    this.events = events.hub;
    this.crew = new Crew(options, events);
    this.directory = new SessionDirectory(options.sessionWorkers);
  }

  /** Throws when nothing can be asked any more. */
  get store(): StoreWorker {
    this.checkOpen();
    return this.crew.store;
  }

  worker(index: number): SessionWorker {
    return this.crew.worker(index);
  }

  /** A call about a session, made where it is. */
  use<T>(sessionId: string, call: (worker: SessionWorker) => Promise<T>): Promise<T> {
    this.checkNotClosed();
    if (this.#storeLost !== undefined) return Promise.reject(this.#storeLost);
    return this.directory.use(sessionId, ({ worker }) => {
      this.checkOpen();
      return call(this.worker(worker));
    });
  }

  ask<M extends SessionMethod>(method: M, argument: ArgumentOf<M>, options?: CallOptions): Promise<AnswerOf<M>> {
    return this.use(argument.sessionId, (worker) => worker.ask(method, argument, options));
  }

  /** A new thread opens its sessions with what they were opened with. */
  async retellOptions(worker: SessionWorker): Promise<void> {
    for (const { id: sessionId, opening } of this.directory.on(worker.place))
      if (opening !== undefined) await worker.configured?.caller.to.takeOver({ sessionId, notes: opening });
  }

  async left(sessionId: string): Promise<void> {
    for (const end of this.onLeft) await end(sessionId);
  }

  loseStore(error: TroupeError): void {
    this.#storeLost = error;
    process.emitWarning(error.message, { code: error.code });
    this.events?.emit({ type: "store_lost", error: eventError(error) });
  }

  get isClosing(): boolean {
    return this.#closing;
  }

  stopIntake(): void {
    this.#closing = true;
  }

  /** Who uses a closed runtime made a mistake: told at once, also where others are told later. */
  checkNotClosed(): void {
    if (this.#closing) throw runtimeClosed();
  }

  get storeLost(): TroupeError | undefined {
    return this.#storeLost;
  }

  checkOpen(): void {
    this.checkNotClosed();
    if (this.#storeLost !== undefined) throw this.#storeLost;
  }
}
