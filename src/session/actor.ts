import { createActor } from "xstate";
import { type Clock, deferred, ignore } from "../async/index.js";
import {
  type Activity,
  type AppendRequest,
  type AppendResult,
  asTroupeError,
  type Json,
  type PendingInput,
  partsOfInput,
  type SessionConfig,
  TroupeError,
  type TurnResult,
} from "../kernel/index.js";
import { needsItsTurn } from "../plugin/index.js";
import type { ActiveTurn } from "./active-turns.js";
import { NO_EXTRAS } from "./admission.js";
import { compactSession } from "./compact.js";
import { configureSession, extendSession } from "./configure.js";
import { resumeTurn, runTurn } from "./logical-turn.js";
import { refreshTools } from "./open-session.js";
import { type OperationRequest, runOperation } from "./operations.js";
import type { ConfigReceipt, OperationReceipt, SessionInfo, SessionState, TurnExtras } from "./protocol.js";
import { ResumedTurn } from "./resumed-turn.js";
import type { Session } from "./session.js";
import type { SessionInputs } from "./session-inputs.js";
import { addInput } from "./session-intake.js";
import type { LifeChart } from "./session-life.js";
import { type Stay, sessionMachine } from "./session-machine.js";
import type { InputRequest } from "./session-parts.js";
import { isUnsaved, settleSession } from "./session-saving.js";
import { isSuspended, notTakenUp } from "./suspension.js";
import type { TurnRequest } from "./turn-context.js";
import type { UnfinishedTurn } from "./unfinished-turn.js";

export interface SessionActorOptions {
  readonly open: (chart: LifeChart) => Promise<Session>;
  readonly mailboxLimit: number;
  /** Told of everything that happens in the session's turns, whoever asked for them. */
  readonly onActivity: (activity: Activity) => void;
  /** Something was done, and nothing else is to be. */
  readonly onRest: () => void;
  readonly clock: Clock;
  /** Parked, closed or failed: the next message needs another actor. Told before anything else can happen. */
  readonly onEnded: () => void;
  /** Runs what no caller can cancel, with a signal that aborts when the runtime closes. */
  readonly stoppable: <T>(run: (signal: AbortSignal) => Promise<T>) => Promise<T>;
}

/** Our own reference to a session's actor; nothing outside this file and the machine's knows XState. */
export class SessionActor {
  readonly id: string;
  /** When it last had something to do, by the worker's clock. */
  restedAt: number;
  readonly #clock: Clock;
  readonly #actor;
  readonly #mailboxLimit: number;
  readonly #onActivity: (activity: Activity) => void;
  readonly #stoppable: SessionActorOptions["stoppable"];
  readonly #opened: Promise<Session>;
  readonly #ended: Promise<void>;
  readonly #onRest: () => void;
  readonly #stay: Stay = { held: 0, park: undefined, onStays: (error) => this.#stays(error) };
  /** Who asked for it to be parked, and waits. */
  #parkers: { resolve: () => void; reject: (error: unknown) => void }[] = [];
  #resumed: ResumedTurn | undefined;

  /** `open` makes the session: from the store, or from a fork's snapshot. */
  constructor(id: string, options: SessionActorOptions) {
    this.id = id;
    this.#clock = options.clock;
    this.restedAt = options.clock.now();
    this.#mailboxLimit = options.mailboxLimit;
    this.#onActivity = options.onActivity;
    this.#stoppable = options.stoppable;
    this.#onRest = options.onRest;
    const { promise, resolve: opened, reject: failed } = deferred<Session>();
    this.#opened = promise;
    this.#opened.catch(ignore);
    const chart: LifeChart = {
      life: () => this.#actor.getSnapshot().context.life,
      send: (event) => this.#actor.send(event),
    };
    this.#actor = createActor(sessionMachine, {
      input: {
        stay: this.#stay,
        open: async () => {
          const session = await options.open(chart);
          await settle(session);
          opened(session);
          // What waited when the session was last closed begins as soon as it is open.
          session.inputs.onAdded = () => this.#takeInputsSoon();
          const { unfinished } = session.life;
          if (unfinished !== undefined) this.#resume(session, unfinished);
          if (session.inputs.waitForTurn) this.#takeInputsSoon();
          return session;
        },
      },
    });
    this.#ended = new Promise<void>((resolve) => {
      this.#actor.subscribe({
        complete: () => {
          const { context } = this.#actor.getSnapshot();
          const error =
            context.failure ?? new TroupeError("session_closed", `Session ${id} was closed.`, { retryable: true });
          failed(error);
          for (const turn of context.mailbox.splice(0)) turn.reject(error);
          for (const parker of this.#parkers.splice(0))
            context.failure === undefined ? parker.resolve() : parker.reject(context.failure);
          options.onEnded();
          resolve();
        },
      });
    });
    this.#actor.start();
  }

  get state(): SessionState {
    return this.#actor.getSnapshot().value as SessionState;
  }

  /** The session, once it is open. */
  get session(): Session | undefined {
    return this.#actor.getSnapshot().context.session;
  }

  /** Resolves when the session is open; rejects with the reason when it cannot be. */
  opened(): Promise<Session> {
    return this.#opened;
  }

  /** Why the session failed, when it did. */
  get failure(): TroupeError | undefined {
    return this.#actor.getSnapshot().context.failure;
  }

  /** Resolves when the session has parked or failed. */
  ended(): Promise<void> {
    return this.#ended;
  }

  /** Queues a turn behind what was already asked for. Refuses with `mailbox_full`, never drops. */
  turn(
    input: string,
    options: { readonly emit: (activity: Activity) => void; readonly signal: AbortSignal },
    extras: TurnExtras = NO_EXTRAS,
    asked: Pick<TurnRequest, "call" | "again"> = {},
  ): Promise<TurnResult> {
    const { signal } = options;
    const emit = (activity: Activity) => {
      options.emit(activity);
      this.#onActivity(activity);
    };
    return this.#post((session) => runTurn(session, { input, emit, signal, extras, ...asked }));
  }

  /**
   * A turn whose worker was lost under it: the one that is taken up again from the journal, or the turn anew when it had
   * not begun. One that was stored, and whose answer alone was lost, is not run again.
   */
  async turnAgain(input: string, turn: ActiveTurn, extras: TurnExtras, call: string): Promise<TurnResult> {
    const session = await this.#opened;
    const resumed = this.#resumed;
    if (resumed?.call === call) {
      resumed.attach(turn);
      return resumed.result;
    }
    // One that was named by a key has its result kept.
    if (extras.key === undefined && session.stored.head?.lastCall === call) {
      throw new TroupeError("turn_result_lost", "The turn is stored, but its result was lost with its worker.", {
        details: { sessionId: this.id, turnIndex: session.stored.turnIndex },
      });
    }
    return this.turn(input, turn, extras, { call, again: true });
  }

  /** Takes up a turn that a crash left behind, before anything else. */
  #resume(session: Session, unfinished: UnfinishedTurn): void {
    const turn = new ResumedTurn(unfinished.start.call);
    this.#resumed = turn;
    const emit = (activity: Activity) => {
      turn.emit(activity);
      this.#onActivity(activity);
    };
    const run = () =>
      turn.settle(async () => {
        try {
          return await resumeTurn(session, unfinished, { emit, signal: turn.signal });
        } catch (error) {
          if (session.life.unfinished === undefined) throw error;
          // It was not even begun. Its journal is as it was: whoever opens the session next takes it up.
          if (isSuspended(turn.signal)) session.life.suspend();
          else session.life.giveUp();
          throw notTakenUp(error);
        } finally {
          await settle(session);
          if (session.inputs.waitForTurn) this.#takeInputsSoon();
        }
      });
    this.#actor.getSnapshot().context.mailbox.unshift({ run, reject: (error) => turn.reject(error) });
  }

  /** Leaves the turn that was taken up again as its journal has it. */
  suspend(reason?: TroupeError): void {
    this.#resumed?.suspend(reason);
  }

  /** Changes the configuration, in its place between turns. */
  setConfig(change: Partial<SessionConfig>): Promise<ConfigReceipt> {
    return this.#post((session) => configureSession(session, change));
  }

  /** Composes the tools anew and forgets what was made of them. */
  refreshTools(): Promise<void> {
    return this.#post(refreshTools);
  }

  compact(instructions: string | null): Promise<boolean> {
    return this.#post((session) => compactSession(session, instructions));
  }

  append(request: AppendRequest): Promise<AppendResult> {
    return this.#post((session) => session.graph.append(request, { kind: "host" }));
  }

  extend(extension: Json): Promise<void> {
    return this.#post((session) => extendSession(session, extension));
  }

  /** Runs an operation: a query at once, also while a turn runs; a command or task in its place. */
  async operate(request: OperationRequest): Promise<OperationReceipt> {
    const isPlaced = (session: Session) => needsItsTurn(session.hooks.operation(request).spec);
    if (this.session !== undefined && !isPlaced(this.session)) return this.#answer(this.session, request);
    if ("kind" in request && request.kind === "query") return this.#answer(await this.#opened, request);
    // Only the open session knows what an action is, or what a plugin has under a name. Until then a place is kept, so
    // that what is asked for next stays behind it; nothing is done there when it turns out not to be needed.
    const place = this.#post(async (session) => (isPlaced(session) ? runOperation(session, request) : undefined));
    place.catch(ignore);
    const opened = await this.#opened;
    const done = isPlaced(opened) ? await place : undefined;
    if (done === undefined) return this.#answer(opened, request);
    const { receipt, queued } = done;
    // In their place behind what was asked for. One for which there is no room begins when nothing else is to be done.
    for (const { id } of queued) this.#begin((inputs) => inputs.takeThese([id]));
    return receipt;
  }

  /** At once, beside what is in the mailbox: that stores what it changes in one write of its own. */
  async #answer(session: Session, request: OperationRequest): Promise<OperationReceipt> {
    try {
      return (await runOperation(session, request)).receipt;
    } finally {
      await settle(session, () => this.state === "running");
    }
  }

  /** Lets an input wait for the running turn or the next; when nothing else is to be done, the next begins with it. */
  async addInput(request: InputRequest): Promise<PendingInput> {
    const session = await this.#opened;
    this.#checkIntake();
    return addInput(session, request);
  }

  /** Behind what is being done now, and what others ask for meanwhile. */
  #takeInputsSoon(): void {
    this.#clock.soon(() => this.#takeInputs());
  }

  /** Begins a turn with what waits, unless something else comes first. A turn that fails leaves it waiting. */
  #takeInputs(): void {
    const { context, status } = this.#actor.getSnapshot();
    const idle = status === "active" && !context.leaving && context.mailbox.length === 0 && this.state === "idle";
    if (idle && context.session?.inputs.waitForTurn === true) this.#begin((inputs) => inputs.takeForTurn());
  }

  /** A turn of inputs that wait, as far as they still do. */
  #begin(take: (inputs: SessionInputs) => readonly PendingInput[]): void {
    const perform = async (session: Session, signal: AbortSignal) => {
      const taken = take(session.inputs);
      if (taken.length === 0) return;
      const input = taken.map(({ text }) => text).join("\n\n");
      const whole = taken.some(({ parts }) => parts !== undefined);
      const extras = whole ? { parts: taken.flatMap(partsOfInput) } : NO_EXTRAS;
      const inputIds = taken.map(({ id }) => id);
      await runTurn(session, { input, emit: this.#onActivity, signal, extras, inputIds, keepsInputs: true });
    };
    this.#stoppable((signal) => this.#post((session) => perform(session, signal), FROM_WAITING)).catch(ignore);
  }

  #checkIntake(): void {
    const { context, status } = this.#actor.getSnapshot();
    if (status === "active" && !context.leaving) return;
    throw context.failure ?? closing(this.id);
  }

  /** While the session comes back, what will run first waits with the others and is not one of them. */
  #hasRoom(): boolean {
    const { mailbox } = this.#actor.getSnapshot().context;
    return (this.state === "opening" || this.state === "parking") && mailbox.length === this.#mailboxLimit;
  }

  #post<T>(perform: (session: Session) => Promise<T>, { waited = false } = {}): Promise<T> {
    const { context, status } = this.#actor.getSnapshot();
    if (status !== "active" || context.leaving) {
      return Promise.reject(context.failure ?? closing(this.id));
    }
    if (context.mailbox.length >= this.#mailboxLimit && !this.#hasRoom()) {
      return Promise.reject(
        new TroupeError(
          "mailbox_full",
          `Session ${this.id} has ${this.#mailboxLimit} turns waiting. Ask again when some have finished.`,
          { retryable: true, details: { sessionId: this.id, limit: this.#mailboxLimit } },
        ),
      );
    }
    return new Promise<T>((resolve, reject) => {
      const run = async (session: Session) => {
        try {
          // A turn was left in the middle: what is behind it cannot come before it.
          if (session.life.isSuspended) throw closing(this.id);
          resolve(await settled(session, perform));
          // Behind this one, when the session is idle again and nobody else asked for something.
          if (session.inputs.waitForTurn) this.#takeInputsSoon();
        } catch (error) {
          reject(asTroupeError(error, "turn_failed"));
          // A turn that was asked for does not wait for the next message because of somebody else's failure.
          if (!waited && session.inputs.turnsWait) this.#takeInputsSoon();
        }
        if (context.mailbox.length === 0 && this.#stay.held === 0) this.#onRest();
      };
      context.mailbox.push({ run, reject });
      this.#actor.send({ type: "posted" });
    });
  }

  /** The session must not be parked before `letGo`: somebody is about to use it, or does. */
  hold(): void {
    this.#stay.held++;
  }

  letGo(): void {
    this.#stay.held--;
    if (this.#stay.held > 0 || this.state !== "idle") return;
    this.#onRest();
    if (this.#stay.park !== undefined) this.#actor.send({ type: "park" });
  }

  /** Has the session leave memory, stored, as soon as nobody needs it; whoever comes before that keeps it there. */
  park(): void {
    if (this.#stay.park !== undefined || this.#stay.held > 0) return;
    this.#stay.park = "policy";
    this.#actor.send({ type: "park" });
  }

  /** The same for somebody who waits for it; rejects when the session cannot be stored. */
  parked(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#actor.getSnapshot().status !== "active") return resolve();
      this.#parkers.push({ resolve, reject });
      this.#stay.park = "host";
      this.#actor.send({ type: "park" });
    });
  }

  #stays(error: unknown): void {
    if (error !== undefined) {
      for (const parker of this.#parkers.splice(0)) parker.reject(asTroupeError(error, "session_park_failed"));
    }
    this.#stay.park = this.#parkers.length > 0 ? "host" : undefined;
    // What was added while it was being stored found nobody idle.
    this.#takeInputsSoon();
    if (this.#stay.park !== undefined) this.#clock.soon(() => this.#actor.send({ type: "park" }));
  }

  /** It finishes what is queued, and nothing more. */
  get isLeaving(): boolean {
    return this.#actor.getSnapshot().context.leaving;
  }

  /** Stops intake, finishes what is queued, stores the session and forgets it. */
  leave(): void {
    this.#actor.send({ type: "leave" });
  }

  async info(threadId: number): Promise<SessionInfo> {
    const session = await this.#opened;
    return {
      id: this.id,
      state: this.state,
      threadId,
      turns: session.stored.turnIndex,
      revision: session.stored.revision,
      ...(session.stored.parentId !== undefined && { parent: session.stored.parentId }),
    };
  }
}

/** What began with something that waited, and fails, is not tried again at once. */
const FROM_WAITING = { waited: true };

function closing(sessionId: string): TroupeError {
  return new TroupeError("session_closed", `Session ${sessionId} is closing.`, { retryable: true });
}

/** Does something, and stores what it left unstored before it is answered, however it ended. */
async function settled<T>(session: Session, perform: (session: Session) => Promise<T>): Promise<T> {
  try {
    return await perform(session);
  } finally {
    if (isUnsaved(session)) await settle(session);
  }
}

/** What cannot be captured is tried again with the next write, and a store that cannot be written to says so then. */
function settle(session: Session, unless?: () => boolean): Promise<void> {
  return settleSession(session, unless).catch(ignore);
}
