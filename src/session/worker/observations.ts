import { type Clock, type Deferred, deferred, ignore, type Timer } from "../../async/index.js";
import { type Activity, asTroupeError, type TurnResult } from "../../kernel/index.js";
import type { Observed, TurnInProgress } from "../calls/index.js";
import { suspension } from "../journal/index.js";
import { type ObserveFrom, SessionLog } from "./session-log.js";

/** How long a session nobody watches keeps what happened, for a reader that comes back. */
const KEPT_MS = 120_000;
/** Sessions that nobody watches and of which the end of the last turn is kept, for a reader that comes late. */
const KEPT_ENDS = 64;

interface LoggedSession {
  readonly log: SessionLog;
  readonly leave: Map<number, () => void>;
  /** Set while nobody watches, but somebody may come back. */
  forget: Timer | undefined;
  /** Who waits for the end of a turn. */
  readonly waiting: Set<{ readonly turnId: string; readonly end: Deferred<TurnResult> }>;
}

/**
 * What happens in the sessions of a worker. Of a session that nobody watches its running turn is kept, and the end of the
 * last one for a while: whoever begins to watch in the middle of a turn can have it from its beginning.
 */
export class Observations {
  readonly #sessions = new Map<string, LoggedSession>();
  /** Those of which only the end of a turn is kept, the oldest first. */
  readonly #ended = new Set<string>();
  readonly #clock: Clock;
  readonly #send: (reader: number, observed: Observed) => void;

  constructor(send: (reader: number, observed: Observed) => void, clock: Clock) {
    this.#send = send;
    this.#clock = clock;
  }

  /** Lets a reader in where it wants to begin, and says where it is then; one that was there goes on from the new place. */
  observe(sessionId: string, reader: number, from: ObserveFrom): string {
    const known = this.#sessions.get(sessionId);
    const session = known ?? this.#newSession(sessionId);
    session.leave.get(reader)?.();
    session.leave.set(
      reader,
      session.log.subscribe(from, (observed) => this.#send(reader, observed)),
    );
    this.#sessions.set(sessionId, session);
    this.#ended.delete(sessionId);
    session.forget?.cancel();
    session.forget = undefined;
    return session.log.cursor;
  }

  unobserve(sessionId: string, reader: number): void {
    const session = this.#sessions.get(sessionId);
    session?.leave.get(reader)?.();
    session?.leave.delete(reader);
    if (session === undefined || session.leave.size > 0) return;
    session.forget?.cancel();
    session.forget = this.#clock
      .timeout(KEPT_MS, () => {
        session.forget = undefined;
        this.#rest(sessionId, session);
      })
      .unref();
  }

  /** Does somebody watch the session, or may come back? */
  isWatched(sessionId: string): boolean {
    const session = this.#sessions.get(sessionId);
    return session !== undefined && (session.leave.size > 0 || session.forget !== undefined);
  }

  /** Something happened in a session's turn. */
  tell(sessionId: string, activity: Activity): void {
    let session = this.#sessions.get(sessionId);
    if (session === undefined) {
      session = this.#newSession(sessionId);
      this.#sessions.set(sessionId, session);
    }
    const { log, waiting } = session;
    log.tell(activity);
    if (activity.type === "turn_started") {
      this.#ended.delete(sessionId);
      if (!this.isWatched(sessionId)) log.trim();
    } else if (activity.type === "turn_finished") {
      const { result } = activity;
      for (const each of waiting) {
        if (each.turnId !== result.turnId) continue;
        waiting.delete(each);
        each.end.resolve(result);
      }
      this.#rest(sessionId, session);
    }
  }

  /** A session's turn is over and not stored: it was refused, or goes on when the session is opened the next time. */
  left(sessionId: string, refusal: unknown): void {
    const session = this.#sessions.get(sessionId);
    if (session === undefined) return;
    const { turnId } = session.log.running ?? {};
    const error = refusal === undefined ? suspension() : asTroupeError(refusal, "turn_failed");
    session.log.left(refusal === undefined ? undefined : { code: error.code, message: error.message });
    // One that could not even be taken up again was not told of.
    for (const each of [...session.waiting]) {
      if (turnId !== undefined && each.turnId !== turnId) continue;
      session.waiting.delete(each);
      each.end.reject(error);
    }
    this.#rest(sessionId, session);
  }

  /** The turn that runs in a session, as far as it was told of; undefined between turns. */
  running(sessionId: string): Pick<TurnInProgress, "turnId" | "since" | "text"> | undefined {
    const log = this.#sessions.get(sessionId)?.log;
    const { turnId, since } = log?.running ?? {};
    if (log === undefined || turnId === undefined || since === undefined) return undefined;
    return { turnId, since, text: log.shownText };
  }

  /** What a turn came to that ended lately. */
  resultOf(sessionId: string, turnId: string): TurnResult | undefined {
    return this.#sessions.get(sessionId)?.log.resultOf(turnId);
  }

  /** Resolves when the session's turn is stored; rejects when it is refused, or left as its journal has it. */
  untilOver(sessionId: string, turnId: string): Promise<TurnResult> {
    const session = this.#sessions.get(sessionId) ?? this.#newSession(sessionId);
    this.#sessions.set(sessionId, session);
    const end = deferred<TurnResult>();
    session.waiting.add({ turnId, end });
    return end.promise;
  }

  close(): void {
    for (const { forget, waiting } of this.#sessions.values()) {
      forget?.cancel();
      for (const { end } of waiting) {
        end.promise.catch(ignore);
        end.reject(suspension());
      }
    }
    this.#sessions.clear();
  }

  #newSession(sessionId: string): LoggedSession {
    const log = new SessionLog(sessionId, this.#clock);
    return { log, leave: new Map(), forget: undefined, waiting: new Set() };
  }

  /** Between turns, with nobody who watches: the end of the last turn is kept, for so many sessions. */
  #rest(sessionId: string, { log }: LoggedSession): void {
    if (this.isWatched(sessionId) || log.running !== undefined) return;
    log.trim();
    this.#ended.delete(sessionId);
    this.#ended.add(sessionId);
    if (this.#ended.size <= KEPT_ENDS) return;
    const [oldest] = this.#ended;
    this.#ended.delete(oldest as string);
    this.#sessions.delete(oldest as string);
  }
}
