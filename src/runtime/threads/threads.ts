import type { EventLoopUtilization } from "node:perf_hooks";
import { MessageChannel, type MessagePort, Worker, type WorkerOptions } from "node:worker_threads";
import { type Clock, sleep, within } from "../../async/index.js";
import { messageOf, wireCorrupt } from "../../kernel/index.js";
import { Caller, isInside, type Service, shutGate } from "../../wire/index.js";
import { workerEntry } from "./worker-entry.js";

const CONTROL_DEADLINE_MS = 30_000;
const TERMINATE_MS = 5_000;
/** How often it is looked whether a thread that is to be ended has left the native code it is in. */
const LOOK_MS = 1;
/** For calls that take as long as what they are about. */
export const NO_DEADLINE_MS = 2 ** 31 - 1;

export interface ThreadOptions {
  readonly kind: Exclude<Parameters<typeof workerEntry>[0], "tool">;
  /** Names the thread in errors: "Session worker 1". */
  readonly name: string;
  readonly clock: Clock;
  readonly env?: WorkerOptions["env"] | undefined;
  readonly execArgv?: readonly string[];
  readonly resourceLimits?: WorkerOptions["resourceLimits"];
  /** What the thread runs behind it is never ended in the middle of. */
  readonly gate?: Int32Array | undefined;
}

/** How a thread ended. `error` is what it died of, when it did not end by itself. */
export interface ThreadExit {
  readonly code: number;
  readonly error: unknown;
}

/** How a thread ended that nobody outside ended. */
export function wayOf({ error }: ThreadExit): "exit" | "error" | "heap" {
  if (error === undefined) return "exit";
  return (error as NodeJS.ErrnoException).code === "ERR_WORKER_OUT_OF_MEMORY" ? "heap" : "error";
}

/**
 * The one place that creates threads (the pool's are Piscina's own). A thread's `error`, `messageerror` and `exit` are
 * always handled here, and its death settles every call that waits for it.
 */
export class Thread<S extends Service> {
  readonly name: string;
  readonly caller: Caller<S>;
  /** Resolves when the thread has ended, whatever the cause. Never rejects. */
  readonly exited: Promise<ThreadExit>;
  readonly #clock: Clock;
  readonly #worker: Worker;
  readonly #gate: Int32Array | undefined;
  /** Where control calls cross. A thread that runs plugins has a port for them that its plugins do not know. */
  readonly #control: Worker | MessagePort;
  #error: unknown;
  #utilization: EventLoopUtilization | undefined;
  #messages = 0;

  constructor(options: ThreadOptions) {
    this.name = options.name;
    this.#clock = options.clock;
    this.#gate = options.gate;
    // A program given by --eval says what it is written in: a thread that inherits this flag cannot start from a file.
    const ofEval = process.execArgv.some((flag) => flag.startsWith("--input-type"));
    const execArgv = options.execArgv ?? (ofEval ? [] : undefined);
    const own = options.kind === "plugin" ? new MessageChannel() : undefined;
    this.#worker = new Worker(workerEntry(options.kind), {
      name: `troupe:${options.name}`,
      ...(options.env !== undefined && { env: options.env }),
      ...(execArgv !== undefined && { execArgv: [...execArgv] }),
      ...(options.resourceLimits !== undefined && { resourceLimits: options.resourceLimits }),
      ...(own !== undefined && { workerData: own.port2, transferList: [own.port2] }),
    });
    this.#control = own?.port1 ?? this.#worker;
    this.caller = new Caller<S>(this.#control, {
      name: this.name,
      deadlineMs: CONTROL_DEADLINE_MS,
      clock: options.clock,
    });
    this.#control.on("message", () => {
      this.#messages++;
    });
    // The thread keeps the process alive, and not the port beside it.
    own?.port1.unref();
    this.#worker.on("error", (error) => {
      this.#error = error;
    });
    this.#control.on("messageerror", (error) => {
      this.#error = wireCorrupt(this.name, messageOf(error), error);
      void this.terminate();
    });
    this.exited = new Promise((resolve) => {
      this.#worker.once("exit", (code) => {
        this.caller.lose(this.#error);
        resolve({ code, error: this.#error });
      });
    });
  }

  get threadId(): number {
    return this.#worker.threadId;
  }

  /** Messages this thread sent to the main thread by Comlink, without what the runtime asked of it only to watch it. */
  get messages(): number {
    return this.#messages;
  }

  /** Takes the answer of a call out of the count: when it is asked for is a matter of the machine's load, not of the work. */
  async uncounted<T>(call: Promise<T>): Promise<T> {
    const answer = await call;
    this.#messages--;
    return answer;
  }

  /** Which share of the time since it was last asked the thread did not wait for events, of 1. Costs the thread nothing. */
  busyShare(): number {
    const { performance } = this.#worker;
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, this.#utilization);
    this.#utilization = now;
    return utilization;
  }

  /**
   * Stops the thread. A thread inside a native call cannot be stopped before that call returns: after a while it is
   * left behind, unable to keep the process alive.
   */
  async terminate(): Promise<void> {
    if (this.#gate !== undefined && shutGate(this.#gate)) await this.#outside(this.#gate);
    await within(this.#clock, TERMINATE_MS, this.#worker.terminate());
    this.abandon();
  }

  /** Resolves when the thread is out of its native code, or is not coming out of it. */
  async #outside(gate: Int32Array): Promise<void> {
    for (let ms = 0; ms < TERMINATE_MS && isInside(gate); ms += LOOK_MS) await sleep(this.#clock, LOOK_MS);
  }

  /** Gives up on a thread that must not be stopped (the store's): its calls settle, the process may end. */
  abandon(): void {
    this.caller.lose(this.#error);
    this.#worker.unref();
  }
}
