import { ReaderQueue } from "../../async/index.js";
import {
  type Activity,
  ActivityBuffer,
  admitInput,
  joinDeltas,
  messageOf,
  TroupeError,
  type TurnInput,
  type TurnResult,
} from "../../kernel/index.js";
import {
  type ActivityNote,
  type CancelNote,
  type TurnCall,
  type TurnExtras,
  type TurnReply,
  unpackResult,
} from "../../session/index.js";
import type { Lane } from "../../wire/index.js";
import { begin, end, type Residence, type Runtime } from "../places/index.js";

/** The turns hosts and sessions asked for, until they end. */
export class Turns {
  readonly #runtime: Runtime;
  readonly #turns = new Map<number, Turn>();
  readonly counts = { asked: 0, finished: 0, refused: 0 };
  #nextTurn = 1;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  underWay(): Turn[] {
    return [...this.#turns.values()];
  }

  receive([key, activity]: ActivityNote): void {
    this.#turns.get(key)?.receive(activity);
  }

  ask(sessionId: string, input: TurnInput, given: TurnExtras = {}): Turn {
    this.#runtime.checkNotClosed();
    const asked = new AskedTurn(this.#nextTurn++, sessionId, this.#admitted(input, given));
    let residence = this.#runtime.directory.of(sessionId);
    const { moving, closing } = residence;
    this.counts.asked++;
    let moved: Promise<Residence> | undefined;
    const turn: Turn = new Turn({
      start: async () => {
        try {
          if (this.#runtime.storeLost !== undefined) throw this.#runtime.storeLost;
          if (closing) throw beingClosed(sessionId);
          if (moved !== undefined) residence = await moved;
          const result = await asked.run(this.#runtime.worker(residence.worker));
          this.counts.finished++;
          return unpackResult(result);
        } catch (error) {
          this.counts.refused++;
          throw error;
        } finally {
          this.#turns.delete(asked.key);
          end(residence, turn);
        }
      },
      listen: () => asked.listen(),
      cancel: (reason) => asked.cancel(reason),
    });
    this.#turns.set(asked.key, turn);
    if (moving === undefined) {
      begin(residence, turn);
      residence.opened = true;
    } else if (!closing) {
      // Now and not when the turn starts: what is asked behind it must stay behind it.
      moved = this.#runtime.directory.take(sessionId, turn);
    }
    return turn;
  }

  /** The input as a session takes it; one that is of no use is still its session's to record. */
  #admitted(input: TurnInput, given: TurnExtras): AskedInput {
    try {
      const { text, items } = admitInput(input, this.#runtime.options.attachments);
      if (items !== undefined) return { text, extras: { ...given, items } };
      return { text, extras: Object.keys(given).length === 0 ? undefined : given };
    } catch (error) {
      return { text: "", extras: { ...given, invalid: messageOf(error) } };
    }
  }
}

function beingClosed(sessionId: string): TroupeError {
  return new TroupeError("session_closed", `Session ${sessionId} is closing. Ask again when it is closed.`, {
    retryable: true,
    details: { sessionId },
  });
}

/** What a turn needs of the runtime: start it once, and talk to it while it runs. */
interface TurnDriver {
  /** Called once, a microtask after the turn was asked for: by then it is known whether somebody listens. */
  start(): Promise<TurnResult>;
  listen(): void;
  cancel(reason: string): void;
}

/**
 * A turn on its way: await it for the result, or iterate it for what happens meanwhile. Doing neither lets it run all
 * the same. Leaving the loop does not cancel the turn; `cancel()` does.
 *
 * @example
 * const turn = session.turn("What is the weather in Oslo?");
 * for await (const activity of turn) {
 *   if (activity.type === "text_delta") process.stdout.write(activity.text);
 * }
 * const { outcome } = await turn;
 */
export class Turn implements PromiseLike<TurnResult>, AsyncIterable<Activity> {
  readonly #driver: TurnDriver;
  readonly #result: Promise<TurnResult>;
  #listeners: Listener[] = [];
  #settled: { readonly error: TroupeError | undefined; readonly result: TurnResult | undefined } | undefined;

  constructor(driver: TurnDriver) {
    this.#driver = driver;
    this.#result = Promise.resolve().then(() => driver.start());
    this.#result.then(
      (result) => this.#settle(undefined, result),
      (error: TroupeError) => this.#settle(error, undefined),
    );
  }

  // biome-ignore lint/suspicious/noThenProperty: a turn is awaited for its result
  then<A = TurnResult, B = never>(
    onResult?: ((result: TurnResult) => A | PromiseLike<A>) | null,
    onError?: ((error: TroupeError) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#result.then(onResult, onError);
  }

  catch<B = never>(onError: (error: TroupeError) => B | PromiseLike<B>): Promise<TurnResult | B> {
    return this.#result.catch(onError);
  }

  finally(onEnd: () => void): Promise<TurnResult> {
    return this.#result.finally(onEnd);
  }

  /** Asks the turn to stop: it ends with outcome `cancelled`, unless it has already finished. */
  cancel(reason = "The host cancelled the turn."): void {
    this.#driver.cancel(reason);
  }

  /**
   * The activities from the start of the turn, as far as they were kept. Each iteration has its own place. Whoever comes
   * after the end gets the last one.
   */
  [Symbol.asyncIterator](): AsyncIterator<Activity> {
    const listener = new Listener((gone) => {
      this.#listeners = this.#listeners.filter((other) => other !== gone);
    });
    if (this.#settled !== undefined) {
      const { error, result } = this.#settled;
      if (result !== undefined) listener.push({ type: "turn_finished", result });
      listener.end(error);
      return listener;
    }
    this.#listeners.push(listener);
    this.#driver.listen();
    return listener;
  }

  /** The runtime delivers here. */
  receive(activity: Activity): void {
    for (const listener of this.#listeners) listener.push(activity);
  }

  #settle(error: TroupeError | undefined, result: TurnResult | undefined): void {
    this.#settled = { error, result };
    for (const listener of this.#listeners) {
      // Who began to listen when the turn was just over hears of its end here.
      if (result !== undefined && !listener.finished) listener.push({ type: "turn_finished", result });
      listener.end(error);
    }
    this.#listeners = [];
  }
}

/** One reader's place. A slow reader finds neighbouring deltas joined; it never slows the turn and loses nothing. */
class Listener extends ReaderQueue<Activity> {
  /** The last activity of a turn has come. */
  finished = false;

  constructor(onReturn: (self: Listener) => void) {
    super({ unread: new ActivityBuffer({ join: joinDeltas }), onReturn: () => onReturn(this) });
  }

  override push(activity: Activity): void {
    this.finished ||= activity.type === "turn_finished";
    super.push(activity);
  }
}

/** More often than a worker takes up a turn that kills it: by then it has ended that turn. */
const MAX_AGAIN = 8;

/** What a turn needs of its session's worker. */
export interface TurnWorker {
  /** Undefined while the worker restarts. */
  readonly lane: TurnLane | undefined;
  /** The lane as soon as there is one; rejects when there will be none. */
  ready(): Promise<TurnLane>;
  readonly closed: boolean;
  /** Turns are written down as they go: the successor of a worker that was lost can take them up again. */
  readonly journals: boolean;
}
type TurnLane = Pick<Lane, "call" | "note">;

/** How far an asked turn is. Only the worker it was sent to can be told what its caller wants. */
type Progress =
  /** Its microtask has not come, or its session is moving. */
  | { readonly at: "asked" }
  /** Its worker restarts. */
  | { readonly at: "waiting" }
  | { readonly at: "sent"; readonly lane: TurnLane }
  /** It was sent to a worker that is lost: the successor is asked for the same turn. */
  | { readonly at: "again" };

interface AskedInput {
  readonly text: string;
  readonly extras: TurnExtras | undefined;
}

/** A turn that was asked for, and what its caller wants: to listen, to have it cancelled. Told where the turn is, once. */
export class AskedTurn {
  readonly key: number;
  readonly #sessionId: string;
  readonly #input: AskedInput;
  #progress: Progress = { at: "asked" };
  #listening = false;
  #cancelled: string | undefined;

  constructor(key: number, sessionId: string, input: AskedInput) {
    this.key = key;
    this.#sessionId = sessionId;
    this.#input = input;
  }

  listen(): void {
    if (this.#listening) return;
    this.#listening = true;
    this.#tell("listen", this.key);
  }

  /** The first reason counts. */
  cancel(reason: string): void {
    if (this.#cancelled !== undefined) return;
    this.#cancelled = reason;
    this.#tell("cancel", [this.key, reason] satisfies CancelNote);
  }

  /** Sends the turn, at once when the worker has a lane; and again to a successor, when turns survive their worker. */
  async run(worker: TurnWorker): Promise<TurnReply> {
    for (let again = 0; ; again++) {
      try {
        return await this.#send(worker);
      } catch (error) {
        const lost = error instanceof TroupeError && error.code === "worker_lost";
        if (!lost || !worker.journals || worker.closed || again >= MAX_AGAIN) throw error;
        if (this.#progress.at === "sent") this.#progress = { at: "again" };
      }
    }
  }

  async #send(worker: TurnWorker): Promise<TurnReply> {
    const again = this.#progress.at === "again";
    let { lane } = worker;
    if (lane === undefined) {
      if (!again) this.#progress = { at: "waiting" };
      lane = await worker.ready();
    }
    this.#progress = { at: "sent", lane };
    const reply = lane.call<TurnReply>("turn", this.#call(again));
    if (this.#cancelled !== undefined) this.#tell("cancel", [this.key, this.#cancelled] satisfies CancelNote);
    return reply;
  }

  /** What is undefined at the end of a call does not cross. */
  #call(again: boolean): TurnCall {
    const { text, extras } = this.#input;
    if (again) return [this.key, this.#sessionId, text, this.#listening, extras, true];
    if (extras !== undefined) return [this.key, this.#sessionId, text, this.#listening, extras];
    return [this.key, this.#sessionId, text, this.#listening];
  }

  #tell(topic: "listen" | "cancel", payload: unknown): void {
    // Otherwise it is told with the turn itself, when that is sent.
    if (this.#progress.at === "sent") this.#progress.lane.note(topic, payload);
  }
}
