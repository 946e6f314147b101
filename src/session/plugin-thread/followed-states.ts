import type { Clock } from "../../async/index.js";
import type { StateNote } from "./plugin-calls.js";
import type { PluginInstance } from "./plugin-instance.js";
import type { BoardedSession, StateBoard } from "./state-board.js";

/** A session's instance of a plugin, as far as its state is told. */
export interface FollowedSession extends BoardedSession {
  /** Its state may have changed since it was last told. */
  isBehind: boolean;
  /** Its place on the board may be another's by now: what it still answers is not told. */
  isClosed: boolean;
  readonly instance: PluginInstance | Error | undefined;
}

/**
 * Of a thread's time, what may go into telling states that the board does not take. Carrying a state to the other thread
 * and reading it there costs several times what is counted here, so that hooks become some 4 % dearer at most.
 */
const SHARE = 0.008;
const MS_PER_STATE = 0.002;
const MS_PER_BYTE = 0.000_01;
/** Milliseconds that can be saved up for a burst; some four hundred small states. */
const MOST_SAVED_MS = 1;
const LATER_MS = 5;

/**
 * Tells a session worker the states of its sessions as they were when their last calls were answered, so that another host
 * can go on from there when this thread dies. A declared state is written to the board, before the answer that changed it
 * leaves. Others (large ones, a plugin's own snapshots) leave in the same message as the answer, as long as telling takes no
 * more than a small share of the thread's time; beyond that they follow when the share allows.
 */
export class FollowedStates {
  readonly #clock: Clock;
  readonly #board: StateBoard;
  readonly #say: (note: StateNote) => void;
  /** Answered since the last message: so many, from the front. It is filled and emptied all the time, and stays as long. */
  readonly #answered: (FollowedSession | undefined)[] = [];
  #count = 0;
  /** Not on the board. */
  #behind: FollowedSession[] = [];
  #savedMs = MOST_SAVED_MS;
  #lastAt: number;
  #laterSet = false;

  constructor(clock: Clock, board: StateBoard, say: (note: StateNote) => void) {
    this.#clock = clock;
    this.#board = board;
    this.#say = say;
    this.#lastAt = clock.now();
  }

  add(session: FollowedSession): void {
    if (session.isBehind || session.isClosed) return;
    session.isBehind = true;
    this.#answered[this.#count++] = session;
  }

  /** Before a message leaves: the states of all that it answers. */
  write(): void {
    const answered = this.#answered;
    const count = this.#count;
    if (count === 0) return;
    this.#count = 0;
    for (let n = 0; n < count; n++) {
      const session = answered[n] as FollowedSession;
      answered[n] = undefined;
      if (!session.isBehind) continue;
      if (this.#isWritten(session)) session.isBehind = false;
      else this.#behind.push(session);
    }
    this.tell();
  }

  #isWritten(session: FollowedSession): boolean {
    const { declaredState } = session.instance as PluginInstance;
    try {
      return declaredState !== undefined && this.#board.write(session, declaredState);
    } catch {
      // Reading the state runs the plugin's own code; what that throws is told by the commit.
      return false;
    }
  }

  /** Tells what is behind, as far as the saved time goes. */
  tell(savedMs?: number): void {
    if (this.#behind.length === 0) return;
    const started = this.#clock.now();
    this.#savedMs = savedMs ?? Math.min(MOST_SAVED_MS, this.#savedMs + (started - this.#lastAt) * SHARE);
    this.#lastAt = started;
    let told = 0;
    while (told < this.#behind.length && this.#savedMs > 0) this.#tellOne(this.#behind[told++] as FollowedSession);
    this.#behind.splice(0, told);
    if (this.#behind.length === 0 || this.#laterSet) return;
    this.#laterSet = true;
    const later = () => {
      this.#laterSet = false;
      this.tell();
    };
    this.#clock.timeout(LATER_MS, later).unref();
  }

  #tellOne(session: FollowedSession): void {
    if (!session.isBehind) return;
    session.isBehind = false;
    try {
      const state = (session.instance as PluginInstance).follow();
      // By size and not by the clock: a thread that waits for a processor has not spent the time.
      this.#savedMs -= MS_PER_STATE + (state?.length ?? 0) * MS_PER_BYTE;
      if (state !== undefined) this.#say([session.number, session.life, state]);
    } catch {
      // The commit asks for the state again, and reports what is wrong with it.
    }
  }
}
