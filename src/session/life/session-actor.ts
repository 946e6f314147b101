import { abortWith, type Deferred, deferred, ignore } from "../../async/index.js";
import { type Activity, type PendingInput, partsOfInput, TroupeError, type TurnResult } from "../../kernel/index.js";
import { needsItsTurn } from "../../plugin/index.js";
import type { OperationReceipt, ToldBy, TurnExtras } from "../calls/index.js";
import { isSuspended, notTakenUp, suspension, type UnfinishedTurn } from "../journal/index.js";
import { addInput, isUnsaved, type Session, type SessionInputs, settleSession } from "../state/index.js";
import { NO_EXTRAS, resumeTurn, runTurn, type TurnRequest } from "../turn/index.js";
import { type Call, callOf, closing, LifeActor, type LifeOptions } from "./life-actor.js";
import { type OperationRequest, runOperation } from "./requests.js";
import type { Mail } from "./session-machine.js";

export interface SessionActorOptions extends LifeOptions {
  /** Told of everything that happens in the session's turns, whoever asked for them. */
  readonly onActivity: (activity: Activity) => void;
  /** Runs what no caller can cancel, with a signal that aborts when the runtime closes. */
  readonly stoppable: <T>(run: (signal: AbortSignal) => Promise<T>) => Promise<T>;
}

/** Where the activities of a turn go, and what stops it. */
type Listener = Pick<TurnRequest, "emit" | "signal">;

/** A turn that is taken up again. Whoever asked for it may still be there, and comes back for it. */
interface ResumedTurn {
  readonly call: string | undefined;
  readonly answer: Deferred<TurnResult>;
  readonly stop: AbortController;
  /** Who came back: its activities go there. */
  attached?: Listener;
}

/** What a session can be asked for, each thing in its place. */
export class SessionActor extends LifeActor {
  /** When it last had something to do, by the worker's clock. */
  restedAt: number;
  readonly #onActivity: (activity: Activity) => void;
  readonly #stoppable: SessionActorOptions["stoppable"];
  #resumed: ResumedTurn | undefined;

  constructor(id: string, options: SessionActorOptions) {
    super(id, options);
    this.restedAt = options.clock.now();
    this.#onActivity = options.onActivity;
    this.#stoppable = options.stoppable;
  }

  protected async prepare(session: Session): Promise<Call | undefined> {
    await settle(session);
    session.inputs.onAdded = () => this.#takeInputsSoon();
    // What waited when the session was last closed begins as soon as it is open.
    if (session.inputs.waitForTurn) this.#takeInputsSoon();
    const { unfinished } = session.life;
    return unfinished && this.#resume(session, unfinished);
  }

  /** What was added while the session was being stored found nobody idle. */
  protected onStays(): void {
    this.#takeInputsSoon();
  }

  /** Queues a turn behind what was already asked for. Refuses with `mailbox_full`, never drops. */
  turn(
    input: string,
    options: Listener,
    extras: TurnExtras = NO_EXTRAS,
    asked: Pick<TurnRequest, "call" | "again"> = {},
  ): Promise<TurnResult> {
    const { signal } = options;
    const emit = (activity: Activity) => {
      options.emit(activity);
      this.#onActivity(activity);
    };
    return this.perform("turn", (session) => runTurn(session, { input, emit, signal, extras, ...asked }));
  }

  /**
   * A turn whose worker was lost under it: the one that is taken up again from the journal, or the turn anew when it had
   * not begun. One that was stored, and whose answer alone was lost, is not run again.
   */
  async turnAgain(input: string, turn: Listener, extras: TurnExtras, call: string): Promise<TurnResult> {
    const session = await this.opened();
    const resumed = this.#resumed;
    if (resumed?.call === call) {
      resumed.attached = turn;
      abortWith(resumed.stop, turn.signal);
      return resumed.answer.promise;
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
  #resume(session: Session, unfinished: UnfinishedTurn): Call {
    const turn: ResumedTurn = { call: unfinished.start.call, answer: deferred(), stop: new AbortController() };
    this.#resumed = turn;
    // Nobody may come back for it.
    turn.answer.promise.catch(ignore);
    const { signal } = turn.stop;
    const emit = (activity: Activity) => {
      turn.attached?.emit(activity);
      this.#onActivity(activity);
    };
    const run = async () => {
      try {
        return await resumeTurn(session, unfinished, { emit, signal });
      } catch (error) {
        if (session.life.unfinished === undefined) throw error;
        // It was not even begun. Its journal is as it was: whoever opens the session next takes it up.
        if (isSuspended(signal)) session.life.suspend();
        else session.life.giveUp();
        throw notTakenUp(error);
      } finally {
        await settle(session);
        if (session.inputs.waitForTurn) this.#takeInputsSoon();
      }
    };
    return callOf(run, turn.answer);
  }

  /** Leaves the turn that was taken up again as its journal has it. */
  suspend(reason = suspension()): void {
    this.#resumed?.stop.abort(reason);
  }

  /** Runs an operation: a query at once, also while a turn runs; a command or task in its place. */
  async operate(request: OperationRequest): Promise<OperationReceipt> {
    const isPlaced = (session: Session) => needsItsTurn(session.hooks.operation(request).spec);
    if (this.session !== undefined && !isPlaced(this.session)) return this.#answer(this.session, request);
    if ("kind" in request && request.kind === "query") return this.#answer(await this.opened(), request);
    // Only the open session knows what an action is, or what a plugin has under a name. Until then a place is kept, so
    // that what is asked for next stays behind it; nothing is done there when it turns out not to be needed.
    const place = this.perform(
      "operation",
      async (session) => (isPlaced(session) ? runOperation(session, request) : undefined),
      // Storing at an empty place would capture what the operation beside it has half done.
      isPlaced,
    );
    place.catch(ignore);
    const opened = await this.opened();
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
  async addInput(request: ToldBy<"addInput">): Promise<PendingInput> {
    const session = await this.opened();
    const refusal = this.refusal();
    if (refusal !== undefined) throw refusal;
    return addInput(session, request);
  }

  /** Behind what is being done now, and what others ask for meanwhile. */
  #takeInputsSoon(): void {
    this.clock.soon(() => this.#takeInputs());
  }

  /** Begins a turn with what waits, unless something else comes first. A turn that fails leaves it waiting. */
  #takeInputs(): void {
    if (this.state === "idle" && this.session?.inputs.waitForTurn === true)
      this.#begin((inputs) => inputs.takeForTurn());
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
    this.#stoppable((signal) => this.perform("inputs", (session) => perform(session, signal))).catch(ignore);
  }

  /** Does something in its place behind what was asked for before, and has what it left unstored stored. */
  perform<T>(
    kind: Mail["kind"],
    perform: (session: Session) => Promise<T>,
    settles: (session: Session) => boolean = () => true,
  ): Promise<T> {
    return this.post(kind, async (session) => {
      // A turn was left in the middle: what is behind it cannot come before it.
      if (session.life.isSuspended) throw closing(this.id);
      const { inputs } = session;
      try {
        // What it left unstored is stored before it is answered, however it ended.
        const answer = await perform(session).finally(() =>
          settles(session) && isUnsaved(session) ? settle(session) : undefined,
        );
        // Behind this one, when the session is idle again and nobody else asked for something.
        if (inputs.waitForTurn) this.#takeInputsSoon();
        return answer;
      } catch (error) {
        // A turn that was asked for does not wait for the next message because of somebody else's failure. What began
        // with something that waited, and fails, is not tried again at once.
        if (kind !== "inputs" && inputs.turnsWait) this.#takeInputsSoon();
        throw error;
      }
    });
  }
}

/** What cannot be captured is tried again with the next write, and a store that cannot be written to says so then. */
function settle(session: Session, unless?: () => boolean): Promise<void> {
  return settleSession(session, unless).catch(ignore);
}
