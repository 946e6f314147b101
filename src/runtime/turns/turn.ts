import { ReaderQueue } from "../../async/index.js";
import { type Activity, ActivityBuffer, joinDeltas, type TroupeError, type TurnResult } from "../../kernel/index.js";

/** What a turn needs of the runtime: start it once, and talk to it while it runs. */
export interface TurnDriver {
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
