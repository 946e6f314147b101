import type { Clock } from "../../async/index.js";
import { ActivityBuffer, TroupeError } from "../../kernel/index.js";
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

  get readers(): number {
    return this.#readers.size;
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
