import type { Inspected } from "../calls/index.js";
import type { Inspector, SessionActor } from "../life/index.js";

/** Which sessions of a worker somebody inspects. A session nobody inspects has no inspector and sends nothing. */
export class Inspections {
  readonly #tell: (inspected: Omit<Inspected, "at">) => void;
  #wanted: ReadonlySet<string> | "all" = new Set<string>();

  constructor(tell: (inspected: Omit<Inspected, "at">) => void) {
    this.#tell = tell;
  }

  /** From now on these, in memory or still to be opened. */
  want(sessions: readonly string[] | "all", actors: readonly SessionActor[]): void {
    this.#wanted = sessions === "all" ? sessions : new Set(sessions);
    for (const actor of actors) actor.inspect(this.of(actor.id));
  }

  of(sessionId: string): Inspector | undefined {
    if (this.#wanted !== "all" && !this.#wanted.has(sessionId)) return undefined;
    return (event, state) => this.#tell({ sessionId, event, state });
  }
}
