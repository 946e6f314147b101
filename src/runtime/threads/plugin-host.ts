import { MessageChannel } from "node:worker_threads";
import { type Clock, ignore, sleep, within } from "../../async/index.js";
import { asTroupeError, type TroupeError } from "../../kernel/index.js";
import { QUARANTINE } from "../../session/index.js";
import { type EndedBy, setEndedBy } from "../../wire/index.js";
import type { Watchdog } from "../watch/index.js";
import type { LoadedThread } from "./loaded-threads.js";
import type { SessionWorker } from "./session-worker.js";
import { NO_DEADLINE_MS, type ThreadExit, wayOf } from "./threads.js";

/** How long a thread that is told to end may take: a native call cannot be interrupted. */
const GIVE_UP_MS = 250;
/**
 * A thread busier than this is asked now and then to look at what it holds, as it does by itself when calls come: one that
 * is alone with a call which hoards behind an `await` gets no others.
 */
const BUSY_SHARE = 0.3;

/** What a host needs of its group. */
export interface HostParts {
  readonly group: number;
  readonly key: string;
  readonly clock: Clock;
  readonly watchdog: Watchdog;
  readonly blockedMs: number;
  readonly sessionWorkers: () => readonly SessionWorker[];
  /** Its next thread starts when a session worker waits for one, and not with the death of the last. */
  readonly onDemand: boolean;
  /** A loaded thread: a spare one, or a new one. */
  readonly takeThread: () => Promise<LoadedThread>;
  /** The thread is gone. Answers how long to wait before the next, or that there is none. */
  readonly onDeath: (death: Death) => number | "given up";
  /** Its thread could not be started. */
  readonly onFailedStart: (error: unknown) => number | "given up";
  readonly onShare: (share: number) => void;
  /** A call holds its thread for long: the next one may be needed soon. */
  readonly onHeld: () => void;
  /** Another thread has taken the place of one that died. */
  readonly onRestarted: (thread: string) => void;
  /** A session worker has a lane to its thread. */
  readonly onLane: (to: string, lane: number, thread: string) => void;
}

export interface Death {
  readonly key: string;
  /** The thread's name. */
  readonly thread: string;
  readonly stage: Int32Array;
  readonly lanes: readonly number[];
  /** Undefined while the thread has not ended. */
  readonly exit: ThreadExit | undefined;
  /** The thread does not end: something native holds it. Resolves when it has ended after all. */
  readonly lingering: Promise<unknown> | undefined;
}

interface Lane {
  readonly to: LoadedThread;
  readonly number: number;
}

/** Lanes are numbered over all runtimes of a process. */
let lanes = 0;

/**
 * One plugin host: a thread for some sessions of a group, kept alive. When the thread dies it is replaced, and every
 * session worker that has called it gets a lane to the new one. Sessions open their instances anew with their next call.
 */
export class PluginHost {
  readonly #parts: HostParts;
  readonly #closed = new AbortController();
  #current: LoadedThread | undefined;
  #unwatch: (() => void) | undefined;
  /** The session workers' threads that have called it, each with the lane it was given. */
  #callers = new Map<object, Lane | undefined>();
  #bringingUp: Promise<void> | undefined;
  /** Its thread died, and there was no other since. */
  #bereft = false;
  #isGivenUp = false;

  constructor(parts: HostParts) {
    this.#parts = parts;
  }

  get key(): string {
    return this.#parts.key;
  }

  get current(): LoadedThread | undefined {
    return this.#current;
  }

  /** Has any session worker called it? */
  get isCalled(): boolean {
    return this.#callers.size > 0;
  }

  /** Is this the lane of its thread of now? */
  hasLane(number: number): boolean {
    return [...this.#callers.values()].some((lane) => lane?.number === number && lane.to === this.#current);
  }

  /**
   * A session of this worker waits for a lane. Only the first call of each session worker's thread comes here, and the
   * first behind a lane that was lost: `lost` is that one's number.
   */
  call(worker: SessionWorker, lost: number): void {
    const session = worker.configured;
    if (session === undefined || this.#closed.signal.aborted) return;
    const known = this.#callers.get(session);
    if (known === undefined || known.number === lost) this.#callers.set(session, undefined);
    // Another lane was opened meanwhile: one more would only take that one away, with the calls on it.
    else if (known.to === this.#current) return;
    if (this.#current === undefined) this.#bringUp(0);
    else void this.#connect(worker);
  }

  /** Takes over a thread that is loaded. */
  adopt(loaded: LoadedThread): void {
    this.#current = loaded;
    const { watchdog, blockedMs, onShare, onHeld } = this.#parts;
    const ping = () => loaded.thread.uncounted(loaded.thread.caller.to.ping(undefined, { deadlineMs: NO_DEADLINE_MS }));
    let isAsked = false;
    const answered = () => {
      isAsked = false;
    };
    void loaded.thread.exited.then((exit) => {
      setEndedBy(loaded.stage, wayOf(exit));
      this.#gone(loaded, { exit, lingering: undefined });
    });
    this.#unwatch = watchdog.watch({
      ...loaded,
      blockedMs,
      onShare(share) {
        onShare(share);
        if (share < BUSY_SHARE || isAsked) return;
        isAsked = true;
        ping().then(answered, answered);
      },
      onHeld,
      busyShare: () => loaded.thread.busyShare(),
      ping,
      onBlocked: () => void this.end("blocked"),
    });
  }

  /** Ends the thread of now; it is replaced when somebody has called it. */
  async end(by: EndedBy): Promise<void> {
    const loaded = this.#current;
    if (loaded === undefined) return;
    setEndedBy(loaded.stage, by);
    const ended = loaded.thread.terminate();
    await within(this.#parts.clock, GIVE_UP_MS, loaded.thread.exited);
    // A thread inside a native call goes on until that returns: nobody waits for it, and its successor starts now.
    this.#gone(loaded, { exit: undefined, lingering: loaded.thread.exited });
    if (this.#closed.signal.aborted) await ended;
  }

  /** Nobody uses it any more: its thread ends without a successor. A later call starts one. */
  async retire(): Promise<void> {
    this.#callers.clear();
    await this.end("asked");
    this.#bereft = false;
  }

  async close(): Promise<void> {
    this.#closed.abort();
    await Promise.all([this.end("asked"), this.#bringingUp?.catch(ignore)]);
  }

  /** The group is given up, or this host alone cannot be had: whoever waits for it is told. */
  async refuse({ code, message }: TroupeError): Promise<void> {
    const { group, key } = this.#parts;
    for (const worker of this.#parts.sessionWorkers()) {
      const session = worker.configured;
      if (session === undefined || !this.#callers.delete(session)) continue;
      await session.caller.to.refuseHost({ group, key, code, message }).catch(ignore);
    }
  }

  #gone(loaded: LoadedThread, { exit, lingering }: Pick<Death, "exit" | "lingering">): void {
    if (this.#current !== loaded) return;
    this.#current = undefined;
    this.#unwatch?.();
    this.#unwatch = undefined;
    const { group, key, sessionWorkers, onDeath } = this.#parts;
    const numbers = [...this.#callers.values()].flatMap((lane) => (lane?.to === loaded ? lane.number : []));
    if (lingering !== undefined) {
      for (const { configured } of sessionWorkers()) {
        const lane = configured && this.#callers.get(configured);
        if (lane !== undefined) void configured?.caller.to.loseHost({ group, key, lane: lane.number }).catch(ignore);
      }
    }
    if (this.#closed.signal.aborted) return;
    const { stage, thread } = loaded;
    const pause = onDeath({ key, thread: thread.name, stage, lanes: numbers, exit, lingering });
    this.#bereft = true;
    this.#isGivenUp = pause === "given up";
    if (pause !== "given up" && this.#isWaitedFor) this.#bringUp(pause);
  }

  /** Is there a session worker that needs its next thread? One with a lane to the last says so when it does. */
  get #isWaitedFor(): boolean {
    return this.#parts.onDemand ? [...this.#callers.values()].includes(undefined) : this.isCalled;
  }

  #bringUp(pauseMs: number): void {
    this.#bringingUp ??= this.#start(pauseMs).finally(() => {
      this.#bringingUp = undefined;
    });
    this.#bringingUp.catch(ignore);
  }

  async #start(firstPauseMs: number): Promise<void> {
    const { clock, takeThread, onFailedStart } = this.#parts;
    const { signal } = this.#closed;
    for (let pauseMs = firstPauseMs; ; ) {
      if (pauseMs > 0) await sleep(clock, pauseMs, { signal });
      signal.throwIfAborted();
      try {
        const loaded = await takeThread();
        if (signal.aborted) return void (await loaded.thread.terminate());
        this.adopt(loaded);
        if (this.#bereft) this.#parts.onRestarted(loaded.thread.name);
        this.#bereft = false;
        break;
      } catch (error) {
        const next = signal.aborted ? "given up" : onFailedStart(error);
        if (next === "given up") return;
        pauseMs = next;
      }
    }
    // Not awaited: the thread may end before a session worker has said that it has its lane, and is replaced all the same.
    for (const worker of this.#parts.sessionWorkers()) void this.#connect(worker);
  }

  /**
   * Opens the hook lane to a session worker: a port of their own, past the main thread. The host's end first: a hook's
   * deadline runs from when its session worker has the lane, and so not while the host still loads what it serves calls
   * with. When one of the two dies meanwhile, its successor gets a lane of its own; that is the only end of waiting,
   * because a side that is merely late still answers.
   */
  async #connect(worker: SessionWorker): Promise<void> {
    const to = this.#current;
    const session = worker.configured;
    if (to === undefined || session === undefined || !this.#callers.has(session)) return;
    if (this.#callers.get(session)?.to === to) return;
    const number = ++lanes;
    this.#callers.set(session, { to, number });
    this.#forgetDead();
    const { port1, port2 } = new MessageChannel();
    const { port1: host1, port2: host2 } = new MessageChannel();
    const started = new Int32Array(new SharedArrayBuffer(4));
    const { group, key } = this.#parts;
    try {
      await to.thread.caller.to.attach(
        { port: port1, hostPort: host1, name: session.name, lane: number, started, alone: key === QUARANTINE },
        { transfer: [port1, host1], deadlineMs: NO_DEADLINE_MS },
      );
      await session.caller.to.attachHost(
        { group, key, port: port2, hostPort: host2, lane: number, stage: to.stage, started },
        { transfer: [port2, host2], deadlineMs: NO_DEADLINE_MS },
      );
      this.#parts.onLane(session.name, number, to.thread.name);
    } catch (error) {
      // Whichever side has its end of a port already learns by the other end's closing.
      port2.close();
      host2.close();
      if (this.#callers.get(session)?.number === number) this.#callers.set(session, undefined);
      const { code, message } = asTroupeError(error, "plugin_failed");
      if (code === "worker_lost") {
        if (this.#current === undefined && !this.#isGivenUp && this.#isWaitedFor) this.#bringUp(0);
        return;
      }
      // A port that does not cross was closed at its other end: that thread ends, or its plugin closes what is not its own.
      // The next thread opens the lane.
      if (code === "unserialisable") {
        if (this.#current === to) await this.end("itself");
        return;
      }
      await session.caller.to.refuseHost({ group, key, code: "plugin_unavailable", message }).catch(ignore);
    }
  }

  /** Session workers' threads that are no more need no lane. */
  #forgetDead(): void {
    const alive = new Set<object>(this.#parts.sessionWorkers().flatMap(({ configured }) => configured ?? []));
    for (const session of this.#callers.keys()) if (!alive.has(session)) this.#callers.delete(session);
  }
}
