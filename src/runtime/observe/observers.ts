import { ignore } from "../../async/index.js";
import { TroupeError } from "../../kernel/index.js";
import type { ObservedNote } from "../../session/index.js";
import type { Runtime } from "../places/index.js";
import type { SessionWorker } from "../threads/index.js";
import { Observer } from "./observer.js";

/** Who watches which session, wherever it is. */
export class Observers {
  readonly #runtime: Runtime;
  readonly #watching = new Map<number, { readonly sessionId: string; readonly observer: Observer }>();
  #nextReader = 1;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  observe(sessionId: string, cursor: string | undefined): Observer {
    this.#runtime.checkNotClosed();
    if (cursor !== undefined && typeof cursor !== "string")
      throw new TroupeError("cursor_invalid", "A cursor is the string that came with an event.");
    const reader = this.#nextReader++;
    let at: SessionWorker | undefined;
    const observer: Observer = new Observer(
      {
        start: (from) =>
          this.#runtime.use(sessionId, (worker) => {
            at = worker;
            return worker.ask("observe", { sessionId, reader, cursor: from });
          }),
        stop: () => {
          this.#watching.delete(reader);
          // Whoever left does not wait for the worker to hear of it.
          if (!this.#runtime.isClosing) at?.ask("unobserve", { sessionId, reader }).catch(ignore);
        },
      },
      cursor,
    );
    this.#watching.set(reader, { sessionId, observer });
    return observer;
  }

  receive([reader, observed]: ObservedNote): void {
    this.#watching.get(reader)?.observer.receive(observed);
  }

  /** A worker is back: who watched its sessions goes on, and is told what was lost. */
  resume(worker: number): void {
    const { directory } = this.#runtime;
    for (const { sessionId, observer } of this.#watching.values()) {
      if (directory.find(sessionId)?.worker === worker) void observer.resume();
    }
  }

  moved(sessionId: string, from: SessionWorker): void {
    for (const [reader, watching] of this.#watching) {
      if (watching.sessionId !== sessionId) continue;
      from.ask("unobserve", { sessionId, reader }).catch(ignore);
      void watching.observer.resume();
    }
  }

  /** A session is gone: there is nothing to watch any more. */
  ended(sessionId: string): void {
    for (const watching of [...this.#watching.values()]) if (watching.sessionId === sessionId) watching.observer.end();
  }

  close(): void {
    for (const { observer } of [...this.#watching.values()]) observer.end();
  }
}
