import type { Clock } from "../../async/index.js";
import { type EventSink, JoinedEvents, type ToldEvent, type TroupeEvent } from "../../trace/index.js";
import type { Session } from "../state/index.js";

interface WorkerEventsParts extends Pick<EventSink, "content"> {
  readonly clock: Clock;
  /** A session that is open on this worker. */
  readonly sessionOf: (sessionId: string) => Session | undefined;
  readonly tell: (event: TroupeEvent) => void;
}

/** The events of a session worker: completed with what is known of their session, and joined before they cross. */
export class WorkerEvents implements EventSink {
  readonly content: boolean;
  readonly #parts: WorkerEventsParts;
  readonly #joined: JoinedEvents;

  constructor(parts: WorkerEventsParts) {
    this.content = parts.content;
    this.#parts = parts;
    this.#joined = new JoinedEvents(parts.clock, parts.tell);
  }

  emit(event: ToldEvent): void {
    const { clock, sessionOf } = this.#parts;
    const session = event.session === undefined ? undefined : sessionOf(event.session);
    this.#joined.add({ ...contextOf(session), ...event, at: clock.wallNow(), count: 1 });
  }

  /** Tells what waits to be joined. */
  flush(): void {
    this.#joined.flush();
  }
}

function contextOf(session: Session | undefined): Pick<TroupeEvent, "turn" | "tenant" | "replaying"> {
  const { tenant } = session?.stored.identity ?? {};
  const turn = session?.life.turn;
  return {
    ...(tenant !== undefined && { tenant }),
    ...(turn !== undefined && { turn: turn.turnId }),
    ...(turn?.journal.replaying === true && { replaying: true }),
  };
}
