import type { Clock, Timer } from "../../async/index.js";
import { type Activity, ActivityBuffer, TroupeError } from "../../kernel/index.js";
import { joinEvents, type ObservationGap, type Observed, type ObservedEvent } from "../calls/index.js";

/** Events kept for readers that come back. */
const KEPT = 2_048;

/**
 * A session's events for whoever watches it: bounded, replayable by cursor, never waiting for a reader. A cursor is
 * opaque; it binds the session, this life of the observation, and a place in it.
 */
export class Observation {
  readonly #sessionId: string;
  /** Another one for every life: places of different lives cannot be mixed up. */
  readonly #incarnation: string;
  /** Neighbouring deltas that nobody has seen are kept as one: how text was cut means nothing. */
  readonly #events = new ActivityBuffer<{ readonly position: number; readonly event: ObservedEvent }>({
    join: (last, { position, event }) => {
      const joined = last.position > this.#told ? joinEvents(last.event, event) : undefined;
      return joined && { position, event: joined };
    },
    limit: KEPT,
  });
  #next = 1;
  /** The last place somebody has been told of: from there on a reader may come back. */
  #told = 0;
  readonly #readers = new Set<(observed: Observed) => void>();

  constructor(sessionId: string, clock: Clock) {
    this.#sessionId = sessionId;
    this.#incarnation = clock.randomBytes(6).toString("base64url");
  }

  /** The place behind everything that has happened. */
  get cursor(): string {
    this.#told = this.#next - 1;
    return this.#cursorAt(this.#next - 1);
  }

  push(event: ObservedEvent): void {
    const position = this.#next++;
    this.#events.push({ position, event });
    if (this.#readers.size === 0) return;
    const observed: Observed = { cursor: this.#cursorAt(position), event };
    this.#told = position;
    for (const reader of this.#readers) reader(observed);
  }

  /**
   * Gives a reader what came after its cursor, then everything that happens, until it is taken off. Without a cursor it
   * begins now. A cursor of another session, or none at all, is refused with `cursor_invalid`.
   */
  subscribe(cursor: string | undefined, reader: (observed: Observed) => void): () => void {
    const from = cursor === undefined ? this.#next - 1 : this.#positionOf(cursor);
    const oldest = this.#events.entries[0]?.position ?? this.#next;
    if (from === undefined) reader(this.#gap("unavailable", oldest - 1));
    else if (from + 1 < oldest) reader(this.#gap("trimmed", oldest - 1));
    const start = from ?? oldest - 1;
    for (const { position, event } of this.#events.entries) {
      if (position > start) reader({ cursor: this.#cursorAt(position), event });
    }
    this.#told = this.#next - 1;
    this.#readers.add(reader);
    return () => this.#readers.delete(reader);
  }

  #gap(reason: ObservationGap["reason"], position: number): Observed {
    return { cursor: this.#cursorAt(position), event: { type: "gap", reason } };
  }

  #cursorAt(position: number): string {
    return Buffer.from(JSON.stringify([this.#sessionId, this.#incarnation, position])).toString("base64url");
  }

  /** Undefined when the place is of another life, or has not been yet. */
  #positionOf(cursor: string): number | undefined {
    let parsed: unknown;
    try {
      parsed = JSON.parse(Buffer.from(cursor, "base64url").toString());
    } catch {
      parsed = undefined;
    }
    const [sessionId, incarnation, position] = Array.isArray(parsed) ? parsed : [];
    if (
      sessionId !== this.#sessionId ||
      typeof incarnation !== "string" ||
      !Number.isSafeInteger(position) ||
      position < 0
    ) {
      throw new TroupeError("cursor_invalid", `This is no cursor of session ${this.#sessionId}.`, {
        details: { sessionId: this.#sessionId },
      });
    }
    return incarnation === this.#incarnation && position < this.#next ? position : undefined;
  }
}

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
