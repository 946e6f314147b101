import { randomUUID } from "node:crypto";
import {
  admitInput,
  asTroupeError,
  checkNodes,
  checkSessionId,
  checkTurnInput,
  type Json,
  messageOf,
  narrowingProblem,
  sessionOfCompletion,
  type ToolOutput,
  TroupeError,
  type TurnInput,
  toolFailure,
} from "../kernel/index.js";
import type { OperationKind, OperationSpec, SessionHandle } from "../plugin/index.js";
import {
  type HostRelay,
  type OperationReceipt,
  type PluginSetup,
  type RelayCall,
  type Remnant,
  type SessionInfo,
  type SessionMaking,
  type SessionPluginOptions,
  type TurnExtras,
  unpackResult,
} from "../session/index.js";
import type { StoreStats } from "../store/index.js";
import { PhaseProbe, type PhaseStats } from "../trace/index.js";
import { ChildTurns } from "./child-turns.js";
import { begin, end, type Residence, SessionDirectory } from "./directory.js";
import { Observer } from "./observer.js";
import { type ResolvedOptions, resolveOptions, type TroupeOptions } from "./options.js";
import { leastLoaded } from "./placement.js";
import { PluginWorker } from "./plugin-worker.js";
import { type ForkOptions, type OperationOptions, Session, type SessionDriver } from "./session-handle.js";
import { SessionWorker } from "./session-worker.js";
import { StoreWorker } from "./store-worker.js";
import { Turn } from "./turn.js";

export interface TroupeStats {
  /** Microseconds per `plugin_hook.<kind>.<plugin>`. */
  readonly hooks: Readonly<Record<string, PhaseStats>>;
  readonly workers: readonly {
    readonly index: number;
    readonly threadId: number;
    /** Sessions in its memory. */
    readonly sessions: number;
    readonly parked: number;
    readonly restarts: number;
  }[];
  /** Sessions of this runtime that are in memory, and those that left it and come back with the next message. */
  readonly sessions: { readonly resident: number; readonly parked: number };
  readonly plugins: readonly {
    readonly id: string;
    readonly tier: "worker" | "inline";
    readonly threadId: number;
    readonly restarts: number;
  }[];
  /** Every turn asked for is finished, refused or still running; none is lost. */
  readonly turns: { readonly asked: number; readonly finished: number; readonly refused: number };
  readonly forks: number;
  readonly store: StoreStats;
  /** Messages this thread received: on the lanes, and by Comlink (`stats()` itself causes some of those). */
  readonly mainMessages: { readonly lane: number; readonly control: number };
  /** Messages between session workers and plugin workers. */
  readonly hookMessages: { readonly sent: number; readonly received: number };
}

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
  readonly #options: ResolvedOptions;
  readonly #sessionWorkers: SessionWorker[] = [];
  readonly #pluginWorkers = new Map<number, PluginWorker>();
  readonly #directory: SessionDirectory;
  readonly #turns = new Map<number, Turn>();
  /** Of turns that wait for their session to move. */
  readonly #wishes = new Map<number, TurnWishes>();
  readonly #counts = { asked: 0, finished: 0, refused: 0, forks: 0 };
  readonly #driver: SessionDriver;
  readonly #childTurns = new ChildTurns();
  readonly #observers = new Map<number, { readonly sessionId: string; readonly observer: Observer }>();
  #nextReader = 1;
  /** The options sessions were opened with, for a worker that has to open them again. */
  readonly #openedWith = new Map<string, SessionPluginOptions>();
  /** Under which name a session's usage stands in its creator's ledger. */
  readonly #usageSources = new Map<string, string>();
  #store: StoreWorker | undefined;
  /** Why nothing can be asked any more, when its store died. */
  #storeLost: TroupeError | undefined;
  #nextTurn = 1;
  #closing: Promise<void> | undefined;
  #resuming: Promise<void> | undefined;

  /** Use {@link createTroupe}. */
  constructor(options: ResolvedOptions) {
    this.#options = options;
    this.#driver = {
      turn: (id, input, extras) => this.#turn(id, input, extras),
      view: (id) => this.#use(id, (worker) => worker.view(id)),
      messages: (id, range) => this.#use(id, (worker) => worker.conversation(id, range)),
      tree: (id) => this.#use(id, (worker) => worker.tree(id)),
      spending: (id) => this.#use(id, (worker) => worker.spending(id)),
      setBudget: (id, budget) => this.#use(id, (worker) => worker.setBudget(id, budget)),
      surface: (id) => this.#use(id, (worker) => worker.surface(id)),
      configure: (id, change) => this.#use(id, (worker) => worker.inOrder("setConfig", { sessionId: id, change })),
      refreshTools: (id) => this.#use(id, (worker) => worker.inOrder("refreshTools", { sessionId: id })),
      compact: (id, instructions) =>
        this.#use(id, (worker) => worker.inOrder("compact", { sessionId: id, instructions })),
      append: async (id, request) => {
        checkNodes(request?.nodes);
        return this.#use(id, (worker) => worker.inOrder("append", { sessionId: id, request }));
      },
      addInput: async (id, input, options) => {
        const { text, items } = admitInput(input, this.#options.attachments);
        return this.#use(id, (worker) => worker.inOrder("addInput", { sessionId: id, text, items, ...options }));
      },
      inputs: (id) => this.#use(id, (worker) => worker.inOrder("inputs", { sessionId: id })),
      cancelInput: (id, named) => this.#use(id, (worker) => worker.inOrder("cancelInput", { sessionId: id, named })),
      observe: (id, cursor) => this.#observe(id, cursor),
      extend: (id, extension) => this.#use(id, (worker) => worker.inOrder("extend", { sessionId: id, extension })),
      operate: (id, call, options) => this.#operate(id, call, options),
      fork: (id, fork) => this.#fork(id, fork),
      info: (id) => this.#info(id),
      park: (id) => this.#use(id, (worker) => worker.park(id)),
      release: (id) => this.#release(id),
    };
    this.#directory = new SessionDirectory(options.sessionWorkers, (id) => new Session(id, this.#driver));
  }

  /** Starts every thread. */
  async start(): Promise<void> {
    this.#store = await StoreWorker.start(this.#options.store, (error) => {
      this.#storeLost = error;
      process.emitWarning(error.message, { code: error.code });
    });
    this.#options.plugins.forEach((plugin, index) => {
      if (plugin.tier === "worker")
        this.#pluginWorkers.set(index, new PluginWorker(index, plugin, () => this.#sessionWorkers));
    });
    await all([...this.#pluginWorkers.values()].map((worker) => worker.start()));
    for (let index = 0; index < this.#options.sessionWorkers; index++) {
      this.#sessionWorkers.push(this.#newSessionWorker(index));
    }
    await all(this.#sessionWorkers.map((worker) => worker.start()));
    if (this.#options.journal) this.#resuming = this.#resumeUnfinished().catch(ignore);
  }

  /** Opens the sessions whose last turn was not finished, so that it is; a session that cannot be opened waits for its host. */
  async #resumeUnfinished(): Promise<void> {
    for (const id of await this.#openStore().unfinished()) {
      if (this.#closing !== undefined) return;
      await this.session(id).catch(ignore);
    }
  }

  /** Opens a session, or resumes it when the store knows it. Options are for plugins, and for this opening. */
  async session(id: string, { pluginOptions = {} }: SessionOptions = {}): Promise<Session> {
    this.#checkOpen();
    return this.#directory.use(checkSessionId(id), async ({ handle, worker, opened }) => {
      this.#checkOpen();
      if (!opened) this.#rememberOptions(id, pluginOptions);
      await this.#worker(worker).open(id, pluginOptions);
      return handle;
    });
  }

  #rememberOptions(id: string, pluginOptions: SessionPluginOptions): void {
    if (Object.keys(pluginOptions).length > 0) this.#openedWith.set(id, pluginOptions);
    else this.#openedWith.delete(id);
  }

  /** A call about a session, made where it is. */
  #use<T>(sessionId: string, call: (worker: SessionWorker) => Promise<T>): Promise<T> {
    this.#checkNotClosed();
    if (this.#storeLost !== undefined) return Promise.reject(this.#storeLost);
    return this.#directory.use(sessionId, ({ worker }) => {
      this.#checkOpen();
      return call(this.#worker(worker));
    });
  }

  /** The queries, commands and tasks the plugins offer, by name. */
  async operations(): Promise<readonly OperationSpec[]> {
    this.#checkOpen();
    return this.#worker(0).operations();
  }

  /**
   * Gives the answer of a tool call that waits for it: one whose tool returned `pendingTool()`. The first answer counts;
   * `completion_unknown` when no call waits under the key.
   *
   * @example
   * await troupe.completeTool(key, { value: "approved" });
   */
  async completeTool(key: string, answer: ToolAnswer): Promise<void> {
    this.#checkOpen();
    const sessionId = sessionOfCompletion(key);
    const output: ToolOutput =
      "value" in answer
        ? { status: "success", value: answer.value }
        : toolFailure("external", answer.failure.code, answer.failure.message);
    // Not waited for when the session is closing: it closes behind the turn, which waits for this.
    await this.#worker(this.#directory.of(sessionId).worker).completeTool({ sessionId, key, output });
  }

  /** What has been measured so far. */
  async stats(): Promise<TroupeStats> {
    this.#checkOpen();
    const workers = await Promise.all(this.#sessionWorkers.map((worker) => worker.stats()));
    const probe = new PhaseProbe();
    for (const { histograms } of workers) probe.merge(histograms);
    const { asked, finished, refused, forks } = this.#counts;
    return {
      hooks: probe.stats(),
      sessions: workers.reduce(
        (sum, { sessions, parked }) => ({ resident: sum.resident + sessions, parked: sum.parked + parked }),
        { resident: 0, parked: 0 },
      ),
      workers: workers.map(({ sessions, parked, threadId }, index) => ({
        index,
        threadId,
        sessions,
        parked,
        restarts: this.#worker(index).restarts,
      })),
      plugins: this.#pluginStats(),
      turns: { asked, finished, refused },
      forks,
      store: await this.#openStore().stats(),
      mainMessages: this.#messages(),
      hookMessages: workers.reduce(
        (sum, { hookMessages }) => ({
          sent: sum.sent + hookMessages.sent,
          received: sum.received + hookMessages.received,
        }),
        { sent: 0, received: 0 },
      ),
    };
  }

  /**
   * Moves a session to another session worker, behind what was asked of it; what is asked meanwhile follows it there.
   * Refused with `session_busy` while a turn runs that waiting inputs began, with `session_unknown` when this runtime
   * has not opened the session. Who watches the session goes on behind a gap.
   *
   * @example
   * await troupe.move("chat-42", 1);
   */
  async move(sessionId: string, worker: number): Promise<void> {
    this.#checkOpen();
    const to = this.#worker(worker);
    const moved = await this.#directory.moveOver(sessionId, async (residence) => {
      if (residence.worker === worker) return;
      const from = this.#worker(residence.worker);
      const remnant = await from.handOver(sessionId);
      await to.takeOver(sessionId, remnant);
      residence.worker = worker;
      this.#moveObservers(sessionId, from);
    });
    if (moved) return;
    throw new TroupeError("session_unknown", `This runtime has no session ${sessionId}.`, { details: { sessionId } });
  }

  /** Moves idle sessions from workers that have more to those that have fewer; says how many it moved. */
  async rebalance(): Promise<number> {
    this.#checkOpen();
    const fair = Math.ceil(this.#directory.loads().reduce((sum, load) => sum + load, 0) / this.#sessionWorkers.length);
    let moved = 0;
    for (const { index } of this.#sessionWorkers) {
      const own = this.#directory.on(index);
      const idle = own.filter(({ handle }) => !this.#directory.isBusy(handle.id));
      for (const { handle } of idle.slice(0, Math.max(0, own.length - fair))) {
        const done = await this.move(handle.id, leastLoaded(this.#directory.loads(), index)).then(() => true, isBusy);
        if (done) moved++;
      }
    }
    return moved;
  }

  /**
   * Replaces a session worker's thread by a new one, and so frees whatever it held. Its sessions finish what they are
   * at; what is asked of them meanwhile waits for the new thread.
   */
  async recycle(worker: number): Promise<void> {
    this.#checkOpen();
    const own = this.#worker(worker);
    const { drainMs } = this.#options;
    const remnants = new Map<string, Remnant>();
    let replaced: () => void = ignore;
    const replacing = new Promise<void>((resolve) => {
      replaced = resolve;
    });
    const stays: Promise<unknown>[] = [];
    const gone = this.#directory.on(worker).map(
      ({ handle: { id } }) =>
        new Promise<void>((left) => {
          const stay = this.#directory.moveOver(id, async () => {
            // A session that is busy by itself is stored when the thread ends.
            const remnant = await own.handOver(id).catch(ignore);
            if (remnant !== undefined) remnants.set(id, remnant);
            left();
            await replacing;
          });
          stays.push(stay.finally(left));
        }),
    );
    await Promise.all(gone);
    try {
      await own.recycle({ drainMs });
      await Promise.all([...remnants].map(([id, remnant]) => own.takeOver(id, remnant)));
    } finally {
      replaced();
      await Promise.allSettled(stays);
    }
  }

  /** For tests and operators: ends a thread as a crash would. */
  async kill(
    target: { readonly sessionWorker: number } | { readonly plugin: string } | { readonly store: true },
  ): Promise<void> {
    this.#checkOpen();
    if ("store" in target) return this.#openStore().crash();
    if ("sessionWorker" in target) return this.#worker(target.sessionWorker).kill();
    for (const worker of this.#pluginWorkers.values()) if (worker.manifest.id === target.plugin) return worker.kill();
    throw new TroupeError("plugin_unknown", `There is no isolated plugin ${target.plugin}.`);
  }

  /**
   * Stops intake, lets running turns finish (`drainMs`, then they are cancelled), stores the sessions and stops every
   * thread. May be called twice; the second call waits for the first.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    await this.#resuming;
    const drainMs = await this.#drain();
    for (const { observer } of [...this.#observers.values()]) observer.end();
    await Promise.all(this.#sessionWorkers.map((worker) => worker.close({ drainMs })));
    await Promise.all([...this.#pluginWorkers.values()].map((worker) => worker.close()));
    await this.#store?.close();
    this.#directory.clear();
  }

  /**
   * Lets the turns that were asked for finish, and the sessions that are closing close. Waited for here and not on the
   * workers: the word to stop travels past the lanes and would overtake turns that are still on their way. What is left
   * of the time is for turns that only the workers know of: those that waiting inputs began.
   */
  async #drain(): Promise<number> {
    const { drainMs } = this.#options;
    const underWay = [...this.#turns.values(), ...this.#directory.moves()];
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

  #newSessionWorker(index: number): SessionWorker {
    return new SessionWorker({
      index,
      options: this.#options,
      plugins: () => this.#pluginSetups(),
      storePort: () => this.#openStore().connect(),
      connectPlugins: async (worker) => {
        await Promise.all([...this.#pluginWorkers.values()].map((plugin) => plugin.connect(worker)));
        await this.#retellOptions(worker);
        this.#resumeObservers(worker.index);
      },
      onObserved: ([reader, observed]) => this.#observers.get(reader)?.observer.receive(observed),
      onActivity: ([key, activity]) => this.#turns.get(key)?.receive(activity),
      relay: async ([method, argument]: RelayCall) => this.#relay[method](argument as never),
    });
  }

  /** A new thread opens its sessions with what they were opened with. */
  async #retellOptions(worker: SessionWorker): Promise<void> {
    for (const [sessionId, pluginOptions] of this.#openedWith)
      if (this.#directory.find(sessionId)?.worker === worker.index)
        await worker.configured?.caller.to.takeOver({ sessionId, remnant: { pluginOptions } });
  }

  #observe(sessionId: string, cursor: string | undefined): Observer {
    this.#checkNotClosed();
    if (cursor !== undefined && typeof cursor !== "string")
      throw new TroupeError("cursor_invalid", "A cursor is the string that came with an event.");
    const reader = this.#nextReader++;
    let at: SessionWorker | undefined;
    const observer: Observer = new Observer(
      {
        start: (from) =>
          this.#use(sessionId, (worker) => {
            at = worker;
            return worker.observe({ sessionId, reader, cursor: from });
          }),
        stop: () => {
          this.#observers.delete(reader);
          // Whoever left does not wait for the worker to hear of it.
          if (this.#closing === undefined) at?.unobserve({ sessionId, reader }).catch(ignore);
        },
      },
      cursor,
    );
    this.#observers.set(reader, { sessionId, observer });
    return observer;
  }

  /** A worker is back: who watched its sessions goes on, and is told what was lost. */
  #resumeObservers(worker: number): void {
    for (const { sessionId, observer } of this.#observers.values()) {
      if (this.#directory.has(sessionId) && this.#directory.of(sessionId).worker === worker) void observer.resume();
    }
  }

  #moveObservers(sessionId: string, from: SessionWorker): void {
    for (const [reader, watching] of this.#observers) {
      if (watching.sessionId !== sessionId) continue;
      from.unobserve({ sessionId, reader }).catch(ignore);
      void watching.observer.resume();
    }
  }

  #pluginSetups(): PluginSetup[] {
    return this.#options.plugins.map(({ tier, module, options, deadlineMs, optionalInChildren }, index) =>
      tier === "inline"
        ? { tier, module, options, deadlineMs, optionalInChildren }
        : {
            tier,
            manifest: (this.#pluginWorkers.get(index) as PluginWorker).manifest,
            deadlineMs,
            optionalInChildren,
          },
    );
  }

  #turn(sessionId: string, input: TurnInput, given: TurnExtras = {}): Turn {
    this.#checkNotClosed();
    const { text, extras } = this.#admitted(input, given);
    let residence = this.#directory.of(sessionId);
    const { moving, closing } = residence;
    const key = this.#nextTurn++;
    this.#counts.asked++;
    let moved: Promise<Residence> | undefined;
    const turn: Turn = new Turn({
      start: async (listen) => {
        try {
          if (this.#storeLost !== undefined) throw this.#storeLost;
          if (closing) throw beingClosed(sessionId);
          if (moved !== undefined) residence = await moved;
          const worker = this.#worker(residence.worker);
          const sent = worker.turn(
            extras === undefined ? [key, sessionId, text, listen] : [key, sessionId, text, listen, extras],
          );
          if (moved !== undefined) this.#tellWishes(key, worker);
          const result = await sent;
          this.#counts.finished++;
          return unpackResult(result);
        } catch (error) {
          this.#counts.refused++;
          throw error;
        } finally {
          this.#turns.delete(key);
          this.#wishes.delete(key);
          end(residence, turn);
        }
      },
      listen: () => this.#tell(key, residence, { listen: true }),
      cancel: (reason) => this.#tell(key, residence, { cancel: reason }),
    });
    this.#turns.set(key, turn);
    if (moving === undefined) {
      begin(residence, turn);
      residence.opened = true;
    } else if (!closing) {
      // Now and not when the turn starts: what is asked behind it must stay behind it.
      this.#wishes.set(key, {});
      moved = this.#directory.take(sessionId, turn);
    }
    return turn;
  }

  /** Tells a turn's worker what its caller wants; a turn that waits for its session to move is told later. */
  #tell(key: number, { worker }: Residence, wish: TurnWishes): void {
    const waiting = this.#wishes.get(key);
    if (waiting !== undefined) Object.assign(waiting, wish);
    else if (wish.cancel !== undefined) this.#worker(worker).cancel(key, wish.cancel);
    else this.#worker(worker).listen(key);
  }

  #tellWishes(key: number, worker: SessionWorker): void {
    const { listen, cancel } = this.#wishes.get(key) ?? {};
    this.#wishes.delete(key);
    if (listen === true) worker.listen(key);
    if (cancel !== undefined) worker.cancel(key, cancel);
  }

  /** The input as a session takes it; one that is of no use is still its session's to record. */
  #admitted(input: TurnInput, given: TurnExtras): { readonly text: string; readonly extras: TurnExtras | undefined } {
    try {
      const { text, items } = admitInput(input, this.#options.attachments);
      if (items !== undefined) return { text, extras: { ...given, items } };
      return { text, extras: Object.keys(given).length === 0 ? undefined : given };
    } catch (error) {
      return { text: "", extras: { ...given, invalid: messageOf(error) } };
    }
  }

  async #fork(parentId: string, options: ForkOptions): Promise<Session> {
    this.#checkOpen();
    const { at = "leaf", pluginState = "current", authority, catalog, id = childId(parentId) } = options;
    if (typeof at !== "string") throw new TroupeError("invalid_fork", 'A fork starts at "leaf" or at a node.');
    if (pluginState !== "current" && pluginState !== "fresh")
      throw new TroupeError("invalid_fork", 'pluginState is "current" or "fresh".');
    const problem = narrowingProblem(options);
    if (problem !== undefined) throw new TroupeError("invalid_fork", `${problem}.`);
    checkSessionId(id);
    const making: SessionMaking = {
      start: { kind: "current_session" },
      ...(pluginState === "fresh" && { pluginSource: "fresh" }),
      ...(authority && { authority }),
      ...(catalog && { catalog }),
    };
    const { residence } = await this.#directory.use(parentId, (parent) =>
      this.#make(id, making, parent, at === "leaf" ? undefined : at),
    );
    this.#counts.forks++;
    return residence.handle;
  }

  /** Makes a session of another one, on the worker with the least to do. */
  async #make(
    id: string,
    making: SessionMaking,
    from: Residence,
    at?: string,
  ): Promise<{ readonly residence: Residence; readonly made: SessionHandle }> {
    this.#checkOpen();
    const worker = leastLoaded(this.#directory.loads(), from.worker);
    let made: SessionHandle | undefined;
    const residence = await this.#directory.moveIn(id, worker, async () => {
      const snapshot = await this.#worker(from.worker).capture(from.handle.id, at);
      made = await this.#worker(worker).adopt(id, snapshot, making);
    });
    return { residence, made: made as unknown as SessionHandle };
  }

  /** What sessions ask of other sessions; whether they may was checked where they are. */
  readonly #relay: HostRelay = {
    create: async ({ from, request }) => {
      this.#checkOpen();
      const { sessionId: id = childId(from), usageSource, start, ...making } = request;
      checkSessionId(id);
      // The session that asks is in the middle of a call and so cannot be closed: it is not waited for.
      const { made } =
        start?.kind === "existing_session"
          ? await this.#directory.use(start.sessionId, (source) =>
              this.#make(id, { ...making, start, createdBy: from }, source),
            )
          : await this.#make(id, { ...making, ...(start && { start }) }, this.#directory.of(from));
      if (usageSource !== undefined) this.#usageSources.set(id, usageSource);
      return made;
    },
    close: async ({ sessionId }) => {
      if (this.#directory.isBusy(sessionId)) {
        throw new TroupeError("session_busy", `Session ${sessionId} has something under way.`, { retryable: true });
      }
      await this.#directory.moveOut(sessionId, (worker) => this.#worker(worker).releaseIdle(sessionId));
      this.#usageSources.delete(sessionId);
    },
    startTurn: async ({ from, sessionId, text, turnId, streams }) => {
      this.#checkOpen();
      // What a program asks for is refused at the call; only a host's turn is recorded.
      const input = checkTurnInput(text);
      admitInput(input, this.#options.attachments);
      const source = this.#usageSources.get(sessionId) ?? "child";
      const started = this.#childTurns.start({
        from,
        sessionId,
        turnId,
        streams,
        start: () => this.#turn(sessionId, input),
        onUsage: (model, usage) => {
          const bill = async ({ worker }: Residence) => this.#worker(worker).usage([from, { source, model, usage }]);
          const payer = this.#directory.find(from);
          if (payer?.moving !== undefined && !payer.closing) this.#directory.use(from, bill).catch(ignore);
          else if (payer !== undefined) void bill(payer);
        },
      });
      return { turnId: started, sessionId };
    },
    awaitTurn: (turn) => this.#childTurns.result(turn),
    cancelTurn: async (turn) => this.#childTurns.cancel(turn),
    turnEvents: (turn) => this.#childTurns.events(turn),
    ask: ({ sessionId, ...call }) =>
      this.#directory.use(sessionId, ({ worker }) => this.#worker(worker).inOrder("hostCall", { sessionId, ...call })),
  };

  async #operate(
    sessionId: string,
    call: { kind: OperationKind; name: string; args: unknown },
    { sessionId: about, key, signal }: OperationOptions,
  ): Promise<OperationReceipt> {
    this.#checkOpen();
    if (about !== undefined) checkSessionId(about);
    return this.#directory.use(sessionId, ({ worker }) =>
      this.#worker(worker).operate({ ...call, sessionId, about, key }, signal),
    );
  }

  async #info(sessionId: string): Promise<SessionInfo> {
    this.#checkOpen();
    return this.#directory.use(sessionId, async ({ worker }) => {
      this.#checkOpen();
      return this.#worker(worker).info(sessionId);
    });
  }

  async #release(sessionId: string): Promise<void> {
    this.#checkOpen();
    await this.#directory.moveOut(sessionId, (worker) => this.#worker(worker).release(sessionId));
    if (!this.#directory.has(sessionId)) this.#openedWith.delete(sessionId);
  }

  #pluginStats(): TroupeStats["plugins"] {
    const inline = [...this.#worker(0).inlinePlugins];
    return this.#options.plugins.map(({ tier }, index) => {
      const worker = this.#pluginWorkers.get(index);
      if (worker === undefined) return { id: inline.shift() ?? `plugins[${index}]`, tier, threadId: -1, restarts: 0 };
      return { id: worker.manifest.id, tier, threadId: worker.threadId, restarts: worker.restarts };
    });
  }

  #messages(): { lane: number; control: number } {
    let lane = 0;
    let control = this.#store?.messages ?? 0;
    for (const worker of this.#sessionWorkers) {
      lane += worker.messages.lane;
      control += worker.messages.control;
    }
    for (const worker of this.#pluginWorkers.values()) control += worker.messages;
    return { lane, control };
  }

  #worker(index: number): SessionWorker {
    const worker = this.#sessionWorkers[index];
    if (worker === undefined) throw new TroupeError("worker_unknown", `There is no session worker ${index}.`);
    return worker;
  }

  #openStore(): StoreWorker {
    if (this.#store === undefined) throw new TroupeError("closed", "The store is not open.");
    return this.#store;
  }

  /** Who uses a closed runtime made a mistake: told at once, also where others are told later. */
  #checkNotClosed(): void {
    if (this.#closing !== undefined) throw new TroupeError("closed", "This runtime is closed. Create another one.");
  }

  #checkOpen(): void {
    this.#checkNotClosed();
    if (this.#storeLost !== undefined) throw this.#storeLost;
  }
}

function childId(parentId: string): string {
  return `${parentId.slice(0, 200)}/${randomUUID().slice(0, 8)}`;
}

/** What a turn's caller wants while it has not been sent. */
interface TurnWishes {
  listen?: true;
  cancel?: string;
}

function beingClosed(sessionId: string): TroupeError {
  return new TroupeError("session_closed", `Session ${sessionId} is closing. Ask again when it is closed.`, {
    retryable: true,
    details: { sessionId },
  });
}

/** False for a session that is busy; any other error is one. */
function isBusy(error: TroupeError): boolean {
  if (error.code === "session_busy") return false;
  throw error;
}

/** Waits for all of them also when one fails, so that nothing is still starting when the others are stopped. */
async function all(starting: readonly Promise<void>[]): Promise<void> {
  const settled = await Promise.allSettled(starting);
  for (const result of settled) if (result.status === "rejected") throw result.reason;
}

function ignore(): void {}
