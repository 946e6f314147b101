import { ignore } from "../../async/index.js";
import { invalidOptions, messageOf, type TroupeError } from "../../kernel/index.js";
import type { Inspected } from "../../session/index.js";
import { checkCallOptions } from "../options/index.js";
import type { Runtime } from "../places/index.js";
import type { SessionWorker } from "../threads/index.js";

/** Told of every event in the lives of sessions. */
export type Inspector = (inspected: Inspected) => void;

export interface InspectOptions {
  /** Which sessions, by id, open or not. Default: all. */
  readonly sessions?: readonly string[];
}

interface Inspection {
  readonly listener: Inspector;
  readonly sessions: ReadonlySet<string> | undefined;
}

/** Who inspects which sessions. Kept here, so that a new thread can be told. */
export class Inspections {
  readonly #runtime: Runtime;
  readonly #inspections = new Set<Inspection>();

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  async inspect(listener: Inspector, options: InspectOptions = {}): Promise<() => void> {
    this.#runtime.checkOpen();
    checkCallOptions(options, { sessions: true }, "inspect");
    const { sessions } = options;
    check(listener, sessions);
    const inspection: Inspection = { listener, sessions: sessions && new Set(sessions) };
    this.#inspections.add(inspection);
    await this.#tellAll();
    return () => {
      if (!this.#inspections.delete(inspection) || this.#runtime.isClosing) return;
      // Whoever stops does not wait for the workers to hear of it, and is told nothing more.
      this.#tellAll().catch(ignore);
    };
  }

  receive(inspected: Inspected): void {
    for (const { listener, sessions } of [...this.#inspections]) {
      if (sessions !== undefined && !sessions.has(inspected.sessionId)) continue;
      try {
        listener(inspected);
      } catch (error) {
        process.emitWarning(`A listener of inspect threw: ${messageOf(error)}`);
      }
    }
  }

  /** A new thread knows of nobody. */
  async retell(worker: SessionWorker): Promise<void> {
    if (this.#inspections.size > 0) await worker.configured?.caller.to.inspect({ sessions: this.#wanted() });
  }

  async #tellAll(): Promise<void> {
    const { sessionWorkers, retiring } = this.#runtime.crew;
    const workers = retiring === undefined ? sessionWorkers : [...sessionWorkers, retiring];
    const there = workers.filter(({ givenUp }) => !givenUp);
    await Promise.all(there.map(async (worker) => (await worker.service()).inspect({ sessions: this.#wanted() })));
  }

  #wanted(): readonly string[] | "all" {
    const wanted = new Set<string>();
    for (const { sessions } of this.#inspections) {
      if (sessions === undefined) return "all";
      for (const id of sessions) wanted.add(id);
    }
    return [...wanted];
  }
}

function check(listener: unknown, sessions: unknown): void {
  if (typeof listener !== "function") throw invalid("the listener must be a function");
  if (sessions === undefined) return;
  if (!Array.isArray(sessions) || sessions.some((id) => typeof id !== "string" || id === ""))
    throw invalid("sessions must be a list of session ids");
}

function invalid(why: string): TroupeError {
  return invalidOptions(`inspect cannot be done so: ${why}`);
}
