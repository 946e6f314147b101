import type { Clock, Timer } from "../../async/index.js";
import type { Activity } from "../../kernel/index.js";
import type { Observed } from "../calls/index.js";
import { Observation } from "./observation.js";

/** How long a session nobody watches keeps what happened, for a reader that comes back. */
const KEPT_MS = 120_000;

interface Watched {
  readonly observation: Observation;
  readonly leave: Map<number, () => void>;
  /** The turn that is running, as its activities say. */
  turnId: string;
  forget: Timer | undefined;
}

/** The sessions of a worker that somebody watches. A session nobody has watched costs one look-up per activity. */
export class Observations {
  readonly #watched = new Map<string, Watched>();
  readonly #clock: Clock;
  readonly #send: (reader: number, observed: Observed) => void;

  constructor(send: (reader: number, observed: Observed) => void, clock: Clock) {
    this.#send = send;
    this.#clock = clock;
  }

  /** Lets a reader in behind its cursor, and says where it is then; a reader that was there goes on from the new one. */
  observe(sessionId: string, reader: number, cursor: string | undefined): string {
    const known = this.#watched.get(sessionId);
    const watched = known ?? {
      observation: new Observation(sessionId, this.#clock),
      leave: new Map(),
      turnId: "",
      forget: undefined,
    };
    watched.leave.get(reader)?.();
    watched.leave.set(
      reader,
      watched.observation.subscribe(cursor, (observed) => this.#send(reader, observed)),
    );
    this.#watched.set(sessionId, watched);
    watched.forget?.cancel();
    return watched.observation.cursor;
  }

  unobserve(sessionId: string, reader: number): void {
    const watched = this.#watched.get(sessionId);
    watched?.leave.get(reader)?.();
    watched?.leave.delete(reader);
    if (watched === undefined || watched.leave.size > 0) return;
    watched.forget = this.#clock.timeout(KEPT_MS, () => this.#watched.delete(sessionId)).unref();
  }

  /** Something happened in a session's turn. */
  tell(sessionId: string, activity: Activity): void {
    if (this.#watched.size === 0) return;
    const watched = this.#watched.get(sessionId);
    if (watched === undefined) return;
    if (activity.type === "turn_started") watched.turnId = activity.turnId;
    watched.observation.push({ type: "activity", turnId: watched.turnId, activity });
    if (activity.type !== "turn_finished") return;
    const { revision, turnIndex } = activity.result;
    watched.observation.push({ type: "committed", revision, turnIndex });
  }

  close(): void {
    for (const { forget } of this.#watched.values()) forget?.cancel();
    this.#watched.clear();
  }
}
