import { type Clock, sleep } from "../../async/index.js";
import { asTroupeError, isToBeTold, recordOf, tellingOf, told } from "../../kernel/index.js";
import { eventError } from "../../trace/index.js";
import type { Runtime } from "../places/index.js";
import { changeOf, isConflict, nameOf, type TaskBook } from "./task-book.js";

/** What telling sessions needs of a runtime. */
export type TellingRuntime = Pick<Runtime, "ask" | "events"> & { readonly options: { readonly clock: Clock } };

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 300_000;
/** The session will never have it, or a hook of its plugins does not let it in. */
const FINAL: readonly string[] = ["session_deleted", "tenant_mismatch", "task_unknown", "input_refused"];
/** The runtime ends: what is untold is told at the next start. */
const ENDING: readonly string[] = ["closed", "store_lost", "store_closed"];

/**
 * Tells sessions of the ends of their tasks. The session takes the input in one write with the task's row, so that after
 * a crash an end was told, or is still to be told: never both.
 */
export class TaskTelling {
  readonly #runtime: TellingRuntime;
  readonly #book: TaskBook;
  readonly #closed = new AbortController();
  readonly #underWay = new Map<string, Promise<void>>();

  constructor(runtime: TellingRuntime, book: TaskBook) {
    this.#runtime = runtime;
    this.#book = book;
  }

  /** Tells of an end, when it is to be told; again and again until the session has it. */
  tell(sessionId: string, id: string): void {
    const name = nameOf({ sessionId, id });
    if (this.#closed.signal.aborted || this.#underWay.has(name)) return;
    const telling = this.#tell(sessionId, id).finally(() => this.#underWay.delete(name));
    this.#underWay.set(name, telling);
  }

  /** Nothing new is told; resolves when what is on its way has stopped where it is. */
  async close(): Promise<void> {
    this.#closed.abort();
    await Promise.allSettled([...this.#underWay.values()]);
  }

  async #tell(sessionId: string, id: string): Promise<void> {
    const { signal } = this.#closed;
    for (let pauseMs = FIRST_PAUSE_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      try {
        await this.#deliver(sessionId, id);
        return;
      } catch (thrown) {
        // Somebody else changed the row: what it says now is looked at.
        if (isConflict(thrown)) continue;
        const error = asTroupeError(thrown, "turn_failed");
        if (ENDING.includes(error.code)) return;
        if (error.code !== "task_unknown")
          this.#runtime.events?.emit({ type: "task_failed", session: sessionId, task: id, error: eventError(error) });
        if (FINAL.includes(error.code)) return;
        await sleep(this.#runtime.options.clock, pauseMs, { signal }).catch(() => undefined);
      }
    }
  }

  async #deliver(sessionId: string, id: string): Promise<void> {
    const known = await this.#book.get(sessionId, id);
    const { stored } = known;
    if (!isToBeTold(stored)) return;
    await this.#runtime.ask("deliverInput", {
      sessionId,
      source: `task:${id}`,
      nth: stored.endedAt ?? stored.since,
      text: tellingOf(recordOf(id, sessionId, stored)),
      items: undefined,
      replaces: false,
      steers: stored.deliver === "steer",
      rows: { taken: changeOf({ ...known, stored: told(stored) }) },
    });
  }
}
