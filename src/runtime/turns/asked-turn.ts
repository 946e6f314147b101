import { TroupeError } from "../../kernel/index.js";
import type { CancelNote, TurnCall, TurnExtras, TurnReply } from "../../session/index.js";
import type { Lane } from "../../wire/index.js";

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
export type TurnLane = Pick<Lane, "call" | "note">;

/** How far an asked turn is. Only the worker it was sent to can be told what its caller wants. */
type Progress =
  /** Its microtask has not come, or its session is moving. */
  | { readonly at: "asked" }
  /** Its worker restarts. */
  | { readonly at: "waiting" }
  | { readonly at: "sent"; readonly lane: TurnLane }
  /** It was sent to a worker that is lost: the successor is asked for the same turn. */
  | { readonly at: "again" };

/** A turn that was asked for, and what its caller wants: to listen, to have it cancelled. Told where the turn is, once. */
export class AskedTurn {
  readonly key: number;
  readonly #sessionId: string;
  readonly #input: { readonly text: string; readonly extras: TurnExtras | undefined };
  #progress: Progress = { at: "asked" };
  #listening = false;
  #cancelled: string | undefined;

  constructor(
    key: number,
    sessionId: string,
    input: { readonly text: string; readonly extras: TurnExtras | undefined },
  ) {
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
    switch (this.#progress.at) {
      case "asked":
      case "waiting":
      case "again":
        // Told with the turn itself, when it is sent.
        return;
      case "sent":
        this.#progress.lane.note(topic, payload);
        return;
      default:
        this.#progress satisfies never;
    }
  }
}
