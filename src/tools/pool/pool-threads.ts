import {
  MessageChannel,
  type MessagePort,
  type ResourceLimits,
  receiveMessageOnPort,
  type TransferListItem,
  type Worker,
} from "node:worker_threads";
import type { Piscina } from "piscina";
import { type Clock, within } from "../../async/index.js";
import { aborted, invalidToolArgs, messageOf, TroupeError } from "../../kernel/index.js";
import type { ThreadRights } from "../../wire/index.js";
import { type NoteTaker, readNote } from "../tool-code/index.js";
import { type PoolAnswer, type PoolTask, type PoolThreadData, toolOutOfMemory } from "./pool-calls.js";

export interface PoolThreadsOptions {
  readonly entry: URL;
  readonly maxThreads: number;
  readonly clock: Clock;
  readonly rights?: ThreadRights;
  readonly idleMs: number;
  readonly resourceLimits: ResourceLimits;
  readonly noted?: NoteTaker;
}

/** What {@link PoolThreads} looks at of Piscina's record of a thread, which its public record leads to. */
interface ThreadRecord {
  readonly worker: Worker;
  readonly taskInfos: Map<number, TaskRecord>;
  postTask(task: TaskRecord): void;
  /** Reads what the thread answers. */
  onMessage(response: unknown): void;
}

interface TaskRecord {
  task: PoolTask;
  transferList?: readonly TransferListItem[] | undefined;
  done(error: Error): void;
}

/** A thread inside a native call ends only when that call does; stopping does not wait for it for ever. */
const STOP_MS = 5_000;

/**
 * Piscina with its edges rounded off. Never give it more tasks than threads: Piscina strands what is in its queue when
 * an abort stops the last thread. A task rejects only when it was aborted or its thread is gone.
 */
export class PoolThreads {
  readonly #piscina: Piscina<PoolTask, PoolAnswer>;
  readonly #clock: Clock;
  /** Every thread that has not exited yet; Piscina forgets those it is still stopping. */
  readonly #alive = new Set<Worker>();
  #inFlight = 0;
  /** Why a thread died that had no task. */
  #fault: unknown;
  #broken = false;

  private constructor(piscina: Piscina<PoolTask, PoolAnswer>, clock: Clock, noted: NoteTaker | undefined) {
    this.#piscina = piscina;
    this.#clock = clock;
    // Without a listener, a thread that dies with no task to blame would end this thread too.
    piscina.on("error", (fault) => {
      this.#fault = fault;
    });
    piscina.on("workerCreate", (created) => guard(created, noted));
  }

  static async start({
    entry,
    maxThreads,
    idleMs,
    resourceLimits,
    rights,
    clock,
    noted,
  }: PoolThreadsOptions): Promise<PoolThreads> {
    // Loaded here, because every thread that runs tools imports this room and few have a pool.
    const { Piscina } = await import("piscina");
    const piscina = new Piscina<PoolTask, PoolAnswer>({
      filename: entry.href,
      minThreads: 0,
      maxThreads,
      idleTimeout: idleMs,
      // The default parks an idle thread in Atomics.wait, where neither timers nor sockets of a tool move.
      atomics: "disabled",
      env: { ...rights?.env },
      ...(rights !== undefined && { execArgv: [...rights.execArgv] }),
      workerData: {
        denials: rights?.denials,
        externalMb: resourceLimits.maxOldGenerationSizeMb,
      } satisfies PoolThreadData,
      resourceLimits,
      recordTiming: false,
    });
    return new PoolThreads(piscina, clock, noted);
  }

  /** Threads that exist, also those being stopped. */
  get alive(): number {
    return this.#alive.size;
  }

  /** Is there a thread without a task? */
  get hasIdle(): boolean {
    return this.#inFlight < this.#alive.size;
  }

  /** No thread could start: this object is of no further use. */
  get broken(): boolean {
    return this.#broken;
  }

  async run(task: PoolTask, signal: AbortSignal): Promise<PoolAnswer> {
    this.#inFlight++;
    try {
      const answer = this.#piscina.run(task, { signal, ...(task.kind === "job" && { transferList: [task.port] }) });
      for (const thread of this.#piscina.threads) this.#watch(thread);
      return await answer;
    } catch (cause) {
      throw signal.aborted ? aborted(signal) : this.#lossOf(cause);
    } finally {
      this.#inFlight--;
    }
  }

  /** Ends every thread, also busy ones. */
  async stop(): Promise<void> {
    const exits = [...this.#alive].map((thread) => new Promise((resolve) => thread.once("exit", resolve)));
    const destroyed = this.#piscina.destroy();
    await within(this.#clock, STOP_MS, Promise.all([destroyed, ...exits]));
    // Whatever is left must not keep the host from ending.
    for (const thread of this.#alive) thread.unref();
  }

  #watch(thread: Worker): void {
    if (this.#alive.has(thread)) return;
    this.#alive.add(thread);
    thread.once("exit", () => {
      this.#alive.delete(thread);
      // After Piscina told the task it knew to be on the thread.
      this.#clock.soon(() => this.#failStranded());
    });
  }

  /** A thread that dies while starting leaves its task in Piscina's queue with nothing to wake it. */
  #failStranded(): void {
    if (this.#inFlight === 0 || this.#piscina.threads.length > 0) return;
    this.#broken = true;
    void this.#piscina.destroy();
  }

  #lossOf(cause: unknown): TroupeError {
    if (this.#broken) {
      return lost(`The thread of the tool could not start: ${messageOf(this.#fault ?? "it ended")}`, this.#fault);
    }
    if (!(cause instanceof Error)) return lost(ENDED, cause);
    if (cause instanceof TroupeError) return cause;
    // A DOMException, whose code is a number.
    if (cause.name === "DataCloneError") {
      return invalidToolArgs(`The arguments cannot cross a thread: ${cause.message}`, { cause });
    }
    if ((cause as NodeJS.ErrnoException).code === "ERR_WORKER_OUT_OF_MEMORY") {
      return toolOutOfMemory("its heap is full", { cause });
    }
    return lost(ENDED, cause);
  }
}

const ENDED = "The thread of the tool ended before the tool answered.";

function lost(message: string, cause: unknown): TroupeError {
  return new TroupeError("tool_worker_lost", message, { retryable: true, cause });
}

/**
 * Piscina trusts what its threads answer: a message that is no answer would end the thread that reads it. Such a message
 * ends the thread that sent it, and so does an answer that says no other task may have its thread.
 */
function guard(created: object, noted: NoteTaker | undefined): void {
  const record = Object.getOwnPropertySymbols(created)
    .map((symbol) => Reflect.get(created, symbol) as Partial<ThreadRecord> | undefined)
    .find((found): found is ThreadRecord => typeof found?.onMessage === "function");
  if (record === undefined) throw new TypeError("This release of Piscina keeps its threads in another way.");
  const read = record.onMessage;
  const end = () => {
    const tasks = [...record.taskInfos.values()];
    record.taskInfos.clear();
    for (const task of tasks) task.done(malformed());
    void record.worker.terminate();
  };
  const notes = noted && new ThreadNotes(record, noted, end);
  record.onMessage = (response) => {
    // What its task said comes by another port, and counts before the answer.
    notes?.read();
    if (!isAnswer(response, record)) {
      end();
      return;
    }
    read.call(record, response);
    if (response.result?.isSpent === true) void record.worker.terminate();
  };
}

/** What the tools of a thread say before they answer. The thread gets its port with its first task. */
class ThreadNotes {
  readonly #record: ThreadRecord;
  readonly #noted: NoteTaker;
  readonly #end: () => void;
  readonly #port: MessagePort;
  /** The task the thread has. */
  #task: PoolTask | undefined;

  constructor(record: ThreadRecord, noted: NoteTaker, end: () => void) {
    this.#record = record;
    this.#noted = noted;
    this.#end = end;
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    port1.on("message", (packed) => this.#take(packed));
    port1.on("messageerror", end);
    port1.unref();
    record.worker.once("exit", () => port1.close());
    const post = record.postTask;
    let given: MessagePort | undefined = port2;
    record.postTask = (info) => {
      this.#task = info.task;
      if (given !== undefined && info.task.kind !== "check") {
        info.task = { ...info.task, notes: given };
        info.transferList = [given];
        given = undefined;
      }
      post.call(record, info);
    };
  }

  /** What has come by now. */
  read(): void {
    for (let next = receiveMessageOnPort(this.#port); next !== undefined; next = receiveMessageOnPort(this.#port))
      this.#take(next.message);
  }

  #take(packed: unknown): void {
    try {
      const note = readNote(packed);
      // Of a call that is over nobody is told any more.
      if (this.#record.taskInfos.size > 0 && this.#task?.kind === "run") this.#noted(this.#task, note);
    } catch {
      this.#end();
    }
  }
}

function isAnswer(
  response: unknown,
  { taskInfos }: ThreadRecord,
): response is { readonly result: Partial<PoolAnswer> | null } {
  if (typeof response !== "object" || response === null) return false;
  const { taskId, result } = response as { readonly taskId?: unknown; readonly result?: unknown };
  return taskInfos.has(taskId as number) && typeof result === "object";
}

function malformed(): TroupeError {
  return new TroupeError(
    "tool_malformed_message",
    "The tool sent messages on its thread's port that are none of Troupe's, so its thread was ended. Let it answer by what it returns.",
  );
}
