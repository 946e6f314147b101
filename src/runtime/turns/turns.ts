import { ReaderQueue } from "../../async/index.js";
import {
  type Activity,
  ActivityBuffer,
  admitInput,
  asTroupeError,
  type Cancellation,
  joinDeltas,
  messageOf,
  sessionClosed,
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
import { type EventSink, eventError } from "../../trace/index.js";
import { CallTable, type Lane } from "../../wire/index.js";
import { begin, end, type Residence, type Runtime } from "../places/index.js";
import { type CancelOptions, cancellationOf, HOST_CANCELLED } from "./cancelling.js";

/** The turns hosts and sessions asked for, until they end. */
export class Turns {
  readonly #runtime: Runtime;
  readonly #turns = new CallTable<{ readonly id: number; readonly turn: Turn }>();
  readonly counts = { asked: 0, finished: 0, refused: 0 };
  #nextTurn = 1;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  underWay(): Turn[] {
    return this.#turns.values().map(({ turn }) => turn);
  }

  receive([key, activity]: ActivityNote): void {
    this.#turns.get(key)?.turn.receive(activity);
  }

  ask(sessionId: string, input: TurnInput, given?: TurnExtras): Turn;
  /** `deliver`: makes of a result what its caller gets. */
  ask<R extends TurnResult>(
    sessionId: string,
    input: TurnInput,
    given: TurnExtras,
    deliver: (result: TurnResult) => Promise<R>,
  ): Turn<R>;
  ask(
    sessionId: string,
    input: TurnInput,
    given: TurnExtras = {},
    deliver?: (result: TurnResult) => Promise<TurnResult>,
  ): Turn {
    this.#runtime.checkNotClosed();
    const asked = new AskedTurn(this.#nextTurn++, sessionId, this.#admitted(input, given));
    let residence = this.#runtime.directory.of(sessionId);
    const { moving, closing } = residence;
    this.counts.asked++;
    let moved: Promise<Residence> | undefined;
    const run = async (): Promise<TurnResult> => {
      try {
        if (this.#runtime.storeLost !== undefined) throw this.#runtime.storeLost;
        if (closing) throw sessionClosed(sessionId);
        if (moved !== undefined) residence = await moved;
        const result = await asked.run(this.#runtime.worker(residence.worker));
        this.counts.finished++;
        return unpackResult(result);
      } catch (error) {
        this.counts.refused++;
        if (this.#runtime.events !== undefined)
          this.#tellRefused(this.#runtime.events, residence, { turn, asked, error });
        throw error;
      } finally {
        this.#turns.delete(asked.key);
        end(residence, turn);
      }
    };
    const turn: Turn = new Turn({
      start: () => (deliver === undefined ? run() : run().then(deliver)),
      now: () => this.#runtime.options.clock.wallNow(),
      listen: () => asked.listen(),
      cancel: (cancellation) => asked.cancel(cancellation),
    });
    this.#turns.add({ id: asked.key, turn });
    if (moving === undefined) {
      begin(residence, turn);
      residence.opened = true;
    } else if (!closing) {
      // Now and not when the turn starts: what is asked behind it must stay behind it.
      moved = this.#runtime.directory.take(sessionId, turn);
    }
    return turn;
  }

  /** A turn that the runtime's closing leaves as it is goes on later. */
  #tellRefused(
    events: EventSink,
    { id: session, opening }: Residence,
    { turn, asked, error }: { readonly turn: Turn; readonly asked: AskedTurn; readonly error: unknown },
  ): void {
    const refused = asTroupeError(error, "turn_failed");
    const { code } = refused;
    if (code === "turn_suspended") return;
    const { tenant } = opening ?? {};
    events.emit({
      type: "turn_refused",
      session,
      ...(tenant !== undefined && { tenant }),
      code,
      background: !turn.isAwaited,
      error: eventError(refused),
      ...(events.content && { content: { input: asked.text } }),
    });
  }

  /** The input as a session takes it; one that is of no use is still its session's to record. */
  #admitted(input: TurnInput, given: TurnExtras): AskedInput {
    try {
      const { text, items } = admitInput(input, this.#runtime.options.worker.attachments);
      if (items !== undefined) return { text, extras: { ...given, items } };
      return { text, extras: Object.keys(given).length === 0 ? undefined : given };
    } catch (error) {
      return { text: "", extras: { ...given, invalid: messageOf(error) } };
    }
  }
}

/** What a turn needs of the runtime: start it once, and talk to it while it runs. */
interface TurnDriver<R> {
  /** Called once, a microtask after the turn was asked for: by then it is known whether somebody listens. */
  start(): Promise<R>;
  /** What an end that is told here is stamped with. */
  now(): number;
  listen(): void;
  cancel(cancellation: Cancellation): void;
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
export class Turn<R extends TurnResult = TurnResult> implements PromiseLike<R>, AsyncIterable<Activity> {
  readonly #driver: TurnDriver<R>;
  readonly #result: Promise<R>;
  #listeners: Listener[] = [];
  #isAwaited = false;
  #settled:
    | { readonly error: TroupeError | undefined; readonly result: TurnResult | undefined; readonly at: number }
    | undefined;

  constructor(driver: TurnDriver<R>) {
    this.#driver = driver;
    this.#result = Promise.resolve().then(() => driver.start());
    this.#result.then(
      (result) => this.#settle(undefined, result),
      (error: TroupeError) => this.#settle(error, undefined),
    );
  }

  // biome-ignore lint/suspicious/noThenProperty: a turn is awaited for its result
  then<A = R, B = never>(
    onResult?: ((result: R) => A | PromiseLike<A>) | null,
    onError?: ((error: TroupeError) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.#isAwaited = true;
    return this.#result.then(onResult, onError);
  }

  catch<B = never>(onError: (error: TroupeError) => B | PromiseLike<B>): Promise<R | B> {
    this.#isAwaited = true;
    return this.#result.catch(onError);
  }

  finally(onEnd: () => void): Promise<R> {
    this.#isAwaited = true;
    return this.#result.finally(onEnd);
  }

  /** Has anybody asked how it ends? */
  get isAwaited(): boolean {
    return this.#isAwaited;
  }

  /**
   * Asks the turn to stop: it ends with outcome `cancelled`, unless it has already finished. Every handle of a turn can:
   * also one that another `session.turn` with the same `key` gave, and of a turn that an earlier process began.
   */
  cancel(reason = HOST_CANCELLED, options?: CancelOptions): void {
    this.#driver.cancel(cancellationOf(reason, options, false));
  }

  /**
   * The activities from the start of the turn, as far as they were kept. Each iteration has its own place. Whoever comes
   * after the end gets the last one.
   */
  [Symbol.asyncIterator](): AsyncIterator<Activity> {
    this.#isAwaited = true;
    const listener = new Listener((gone) => {
      this.#listeners = this.#listeners.filter((other) => other !== gone);
    });
    if (this.#settled !== undefined) {
      const { error, result, at } = this.#settled;
      if (result !== undefined) listener.push({ type: "turn_finished", result, at });
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
    const at = this.#driver.now();
    this.#settled = { error, result, at };
    for (const listener of this.#listeners) {
      // Who began to listen when the turn was just over hears of its end here.
      if (result !== undefined && !listener.finished) listener.push({ type: "turn_finished", result, at });
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
  #cancelled: Cancellation | undefined;

  constructor(key: number, sessionId: string, input: AskedInput) {
    this.key = key;
    this.#sessionId = sessionId;
    this.#input = input;
  }

  get text(): string {
    return this.#input.text;
  }

  listen(): void {
    if (this.#listening) return;
    this.#listening = true;
    this.#tell("listen", this.key);
  }

  /** The first reason counts. */
  cancel(cancellation: Cancellation): void {
    if (this.#cancelled !== undefined) return;
    this.#cancelled = cancellation;
    this.#tell("cancel", [this.key, cancellation] satisfies CancelNote);
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
