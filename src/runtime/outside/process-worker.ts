import { type Clock, ignore, within } from "../../async/index.js";
import { runtimeClosed } from "../../kernel/index.js";
import type { ProcessThread } from "../../processes/index.js";
import { type CallOptions, workerLost } from "../../wire/index.js";
import { Thread, wayOf } from "../threads/index.js";

/** It ends every process first, each with its grace. */
const CLOSE_MS = 15_000;

type ProcessMethod = keyof ProcessThread;
type RequestOf<M extends ProcessMethod> = Parameters<ProcessThread[M]>[0];
type AnswerOf<M extends ProcessMethod> = Awaited<ReturnType<ProcessThread[M]>>;

/** The thread of all child processes. It starts with the first of them: a runtime that has none has no such thread. */
export class ProcessWorker {
  readonly #clock: Clock;
  #thread: Thread<ProcessThread> | undefined;
  #closed = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Of its thread; -1 while there is none. */
  get threadId(): number {
    return this.#thread?.threadId ?? -1;
  }

  get messages(): number {
    return this.#thread?.messages ?? 0;
  }

  async ask<M extends ProcessMethod>(method: M, request: RequestOf<M>, options?: CallOptions): Promise<AnswerOf<M>> {
    if (this.#closed) throw runtimeClosed();
    this.#thread ??= this.#start();
    return this.#thread.caller.call<AnswerOf<M>>(method, request, options);
  }

  /** For what has nothing to do where there is no thread. */
  async askIfThere<M extends ProcessMethod>(method: M, request: RequestOf<M>): Promise<AnswerOf<M> | undefined> {
    return this.#thread === undefined || this.#closed ? undefined : this.ask(method, request);
  }

  /** Ends the thread as a crash would: its processes end with it. */
  async kill(): Promise<void> {
    await this.#thread?.terminate();
  }

  async close(): Promise<void> {
    this.#closed = true;
    const thread = this.#thread;
    if (thread === undefined) return;
    const ended = thread.caller.to.close(undefined, { deadlineMs: CLOSE_MS }).then(() => thread.exited);
    await within(this.#clock, CLOSE_MS, ended.catch(ignore));
    await thread.terminate();
  }

  #start(): Thread<ProcessThread> {
    const thread: Thread<ProcessThread> = new Thread({ kind: "processes", name: "Process thread", clock: this.#clock });
    void thread.exited.then((exit) => {
      if (this.#thread === thread) this.#thread = undefined;
      if (this.#closed) return;
      const how = `ended (${wayOf(exit)}), and the processes of sessions with it`;
      process.emitWarning(workerLost(thread.name, how, { cause: exit.error }));
    });
    return thread;
  }
}
