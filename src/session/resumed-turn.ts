import type { Activity, TroupeError, TurnResult } from "../kernel/index.js";
import type { ActiveTurn } from "./active-turns.js";
import { suspension } from "./suspension.js";

/** A turn that is taken up again. Whoever asked for it may still be there, and comes back for it. */
export class ResumedTurn {
  readonly call: string | undefined;
  readonly result: Promise<TurnResult>;
  readonly #controller = new AbortController();
  readonly #resolve: (result: TurnResult) => void;
  readonly reject: (error: TroupeError) => void;
  #attached: ActiveTurn | undefined;

  constructor(call: string | undefined) {
    this.call = call;
    let resolve: (result: TurnResult) => void = ignore;
    let reject: (error: TroupeError) => void = ignore;
    this.result = new Promise<TurnResult>((ok, failed) => {
      resolve = ok;
      reject = failed;
    });
    // Nobody may come back for it.
    this.result.catch(ignore);
    this.#resolve = resolve;
    this.reject = reject;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  emit(activity: Activity): void {
    this.#attached?.emit(activity);
  }

  /** From here on its activities go there, and it is cancelled from there. */
  attach(turn: ActiveTurn): void {
    this.#attached = turn;
    const { signal } = turn;
    const onAbort = () => this.#controller.abort(signal.reason);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  }

  suspend(reason = suspension()): void {
    this.#controller.abort(reason);
  }

  async settle(run: () => Promise<TurnResult>): Promise<void> {
    try {
      this.#resolve(await run());
    } catch (error) {
      this.reject(error as TroupeError);
    }
  }
}

function ignore(): void {}
