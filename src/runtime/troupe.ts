import {
  asTroupeError,
  checkSessionId,
  type Json,
  sessionOfCompletion,
  type ToolOutput,
  toolFailure,
} from "../kernel/index.js";
import type { OperationSpec } from "../plugin/index.js";
import type { SessionPluginOptions } from "../session/index.js";
import { sessionDriver } from "./driver.js";
import { Moving } from "./moving.js";
import { Observers } from "./observers.js";
import { type ResolvedOptions, resolveOptions, type TroupeOptions } from "./options.js";
import { Relay } from "./relay.js";
import { Runtime } from "./runtime.js";
import { Session, type SessionDriver } from "./session-handle.js";
import { statsOf, type TroupeStats } from "./stats.js";
import { Turns } from "./turns.js";

/**
 * Starts a runtime: session workers, plugin workers and the store worker. When something is wrong with the options, a
 * module or the store, every thread already started is stopped and the error says what to do.
 *
 * @example
 * await using troupe = await createTroupe({ store: { path: "./data" } });
 * const session = await troupe.session("chat-42");
 * console.log((await session.turn("Hello")).text);
 */
export async function createTroupe(options: TroupeOptions = {}): Promise<Troupe> {
  const troupe = new Troupe(resolveOptions(options));
  try {
    await troupe.start();
    return troupe;
  } catch (error) {
    await troupe.close();
    throw asTroupeError(error, "start_failed");
  }
}

/** The answer of a tool call from outside. */
export type ToolAnswer =
  | { readonly value: Json }
  | { readonly failure: { readonly code: string; readonly message: string } };

export interface SessionOptions {
  /** Options for single plugins, by plugin id. */
  readonly pluginOptions?: SessionPluginOptions;
}

export class Troupe implements AsyncDisposable {
  readonly #runtime: Runtime;
  readonly #turns: Turns;
  readonly #observers: Observers;
  readonly #relay: Relay;
  readonly #moving: Moving;
  readonly #driver: SessionDriver;
  #forks = 0;
  #closing: Promise<void> | undefined;
  #resuming: Promise<void> | undefined;

  /** Use {@link createTroupe}. */
  constructor(options: ResolvedOptions) {
    const runtime = new Runtime(options, {
      handleOf: (id) => new Session(id, this.#driver),
      events: {
        onActivity: (note) => this.#turns.receive(note),
        onObserved: (note) => this.#observers.receive(note),
        relay: (call) => this.#relay.answer(call),
        onStarted: ({ index }) => this.#observers.resume(index),
      },
    });
    this.#runtime = runtime;
    this.#turns = new Turns(runtime);
    this.#observers = new Observers(runtime);
    this.#relay = new Relay(runtime, this.#turns);
    this.#moving = new Moving(runtime, this.#observers);
    this.#driver = sessionDriver({
      runtime,
      turns: this.#turns,
      observers: this.#observers,
      onForked: () => this.#forks++,
    });
  }

  /** Starts every thread. */
  async start(): Promise<void> {
    await this.#runtime.crew.start();
    if (this.#runtime.options.journal) this.#resuming = this.#resumeUnfinished().catch(ignore);
  }

  /** Opens the sessions whose last turn was not finished, so that it is; a session that cannot be opened waits for its host. */
  async #resumeUnfinished(): Promise<void> {
    for (const id of await this.#runtime.crew.store.unfinished()) {
      if (this.#closing !== undefined) return;
      await this.session(id).catch(ignore);
    }
  }

  /** Opens a session, or resumes it when the store knows it. Options are for plugins, and for this opening. */
  async session(id: string, { pluginOptions = {} }: SessionOptions = {}): Promise<Session> {
    this.#runtime.checkOpen();
    return this.#runtime.directory.use(checkSessionId(id), async ({ handle, worker }) => {
      this.#runtime.checkOpen();
      await this.#runtime.worker(worker).open(id, pluginOptions);
      return handle;
    });
  }

  /** The queries, commands and tasks the plugins offer, by name. */
  async operations(): Promise<readonly OperationSpec[]> {
    this.#runtime.checkOpen();
    return this.#runtime.worker(0).operations();
  }

  /**
   * Gives the answer of a tool call that waits for it: one whose tool returned `pendingTool()`. The first answer counts;
   * `completion_unknown` when no call waits under the key.
   *
   * @example
   * await troupe.completeTool(key, { value: "approved" });
   */
  async completeTool(key: string, answer: ToolAnswer): Promise<void> {
    this.#runtime.checkOpen();
    const sessionId = sessionOfCompletion(key);
    const output: ToolOutput =
      "value" in answer
        ? { status: "success", value: answer.value }
        : toolFailure("external", answer.failure.code, answer.failure.message);
    // Not waited for when the session is closing: it closes behind the turn, which waits for this.
    await this.#runtime.worker(this.#runtime.directory.of(sessionId).worker).completeTool({ sessionId, key, output });
  }

  /** What has been measured so far. */
  async stats(): Promise<TroupeStats> {
    this.#runtime.checkOpen();
    return statsOf(this.#runtime.crew, { turns: { ...this.#turns.counts }, forks: this.#forks });
  }

  /**
   * Moves a session to another session worker, behind what was asked of it; what is asked meanwhile follows it there.
   * Refused with `session_busy` while a turn runs that waiting inputs began, with `session_unknown` when this runtime
   * has not opened the session. Who watches the session goes on behind a gap.
   *
   * @example
   * await troupe.move("chat-42", 1);
   */
  move(sessionId: string, worker: number): Promise<void> {
    return this.#moving.move(sessionId, worker);
  }

  /** Moves idle sessions from workers that have more to those that have fewer; says how many it moved. */
  rebalance(): Promise<number> {
    return this.#moving.rebalance();
  }

  /**
   * Replaces a session worker's thread by a new one, and so frees whatever it held. Its sessions finish what they are
   * at; what is asked of them meanwhile waits for the new thread.
   */
  recycle(worker: number): Promise<void> {
    return this.#moving.recycle(worker);
  }

  /** For tests and operators: ends a thread as a crash would. */
  async kill(target: { readonly sessionWorker: number } | { readonly plugin: string }): Promise<void> {
    this.#runtime.checkOpen();
    if ("sessionWorker" in target) return this.#runtime.worker(target.sessionWorker).kill();
    return this.#runtime.crew.isolated(target.plugin).kill();
  }

  /**
   * Stops intake, lets running turns finish (`drainMs`, then they are cancelled), stores the sessions and stops every
   * thread. May be called twice; the second call waits for the first.
   */
  close(): Promise<void> {
    this.#runtime.stopIntake();
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    await this.#resuming;
    const drainMs = await this.#drain();
    this.#observers.close();
    await this.#runtime.crew.close({ drainMs });
    this.#runtime.directory.clear();
  }

  /**
   * Lets the turns that were asked for finish, and the sessions that are closing close. Waited for here and not on the
   * workers: the word to stop travels past the lanes and would overtake turns that are still on their way. What is left
   * of the time is for turns that only the workers know of: those that waiting inputs began.
   */
  async #drain(): Promise<number> {
    const { drainMs } = this.#runtime.options;
    const underWay = [...this.#turns.underWay(), ...this.#runtime.directory.moves()];
    if (underWay.length === 0) return drainMs;
    const started = performance.now();
    let timer: NodeJS.Timeout | undefined;
    const enough = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, drainMs);
    });
    await Promise.race([Promise.allSettled(underWay), enough]);
    clearTimeout(timer);
    return Math.max(0, drainMs - (performance.now() - started));
  }
}

function ignore(): void {}
