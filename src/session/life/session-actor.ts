import {
  abortWith,
  type Deferred,
  deferred,
  ignore,
  Serial,
  type Stoppable,
  type Together,
} from "../../async/index.js";
import {
  type Activity,
  asTroupeError,
  type Cancellation,
  indexOfTurn,
  type PendingInput,
  partsOfInput,
  sessionClosed,
  TroupeError,
  type TurnResult,
} from "../../kernel/index.js";
import { needsItsTurn } from "../../plugin/index.js";
import { eventError } from "../../trace/index.js";
import type { CancelledTurn, LoneAnswer, OperationReceipt, Rewound, ToldBy, TurnExtras } from "../calls/index.js";
import { isSuspended, notTakenUp, suspension, type UnfinishedTurn } from "../journal/index.js";
import {
  addInput,
  isTakenUp,
  isUnsaved,
  type Session,
  type SessionInputs,
  settleSession,
  takeDelivered,
} from "../state/index.js";
import { isNamesake, type TurnKey } from "../stored/index.js";
import {
  type CancelAnswer,
  NO_EXTRAS,
  nameOfAsked,
  resumeTurn,
  runToolAlone,
  runTurn,
  type TurnRequest,
  TurnStop,
} from "../turn/index.js";
import { type Call, callOf, LifeActor, type LifeOptions } from "./life-actor.js";
import { addReplaced, withReplacedText } from "./replaced-inputs.js";
import { type OperationRequest, runOperation } from "./requests.js";
import { rewindSession, turnAhead } from "./rewind.js";
import { bringUpToDate } from "./session-agent.js";
import type { Mail } from "./session-machine.js";

export interface SessionActorOptions extends LifeOptions {
  /** Told of everything that happens in the session's turns, whoever asked for them. */
  readonly onActivity: (activity: Activity) => void;
  /** A turn is over and not stored: it was refused, or goes on later. */
  readonly onLeft?: (refusal: unknown) => void;
  /** Does anybody watch the session? */
  readonly isWatched?: () => boolean;
  /** A turn begins that no call waits for. */
  readonly onUnasked?: () => void;
  /** Has turns that inputs begin begin together with those of other sessions, so that what they write is synced together. */
  readonly together?: Pick<Together, "soon">;
  /** Runs what no caller can cancel, with a signal that aborts when the runtime closes; with `stop` it is that one's. */
  readonly stoppable: <T>(run: (signal: AbortSignal) => Promise<T>, stop?: Stoppable) => Promise<T>;
}

/** Where the activities of a turn go, whether anybody takes them, and what stops it. */
type Listener = Pick<TurnRequest, "emit" | "signal" | "stop"> & { readonly isHeard?: boolean };

type Watching = Required<Pick<TurnRequest, "retell" | "onLeft" | "isShown">>;

/** Something that was asked for, until nothing more comes of it. */
interface Asked {
  readonly stop: TurnStop;
  /** Its caller's name for it; undefined: it has none. */
  readonly name?: (session: Session) => TurnKey | Promise<TurnKey>;
}

/** A turn that is taken up again. Whoever asked for it may still be there, and comes back for it. */
interface ResumedTurn {
  readonly call: string | undefined;
  readonly answer: Deferred<TurnResult>;
  readonly stop: TurnStop;
  /** Who came back: its activities go there. */
  attached?: Listener;
}

/** What a session can be asked for, each thing in its place. */
export class SessionActor extends LifeActor {
  /** When it last had something to do, by the worker's clock. */
  restedAt: number;
  readonly #onActivity: (activity: Activity) => void;
  readonly #onLeft: (refusal: unknown) => void;
  readonly #isWatched: () => boolean;
  readonly #stoppable: SessionActorOptions["stoppable"];
  readonly #together: Pick<Together, "soon">;
  readonly #onUnasked: () => void;
  #resumed: ResumedTurn | undefined;
  /** The turn that waiting inputs began, while it runs. */
  #begun: TurnStop | undefined;
  /** Turns that were asked for, in the order they are run in. */
  readonly #asked: Asked[] = [];
  /** Inputs on their way to those that wait, while hooks may replace them. */
  readonly #intake = new Serial();

  constructor(id: string, options: SessionActorOptions) {
    super(id, options);
    this.restedAt = options.clock.now();
    this.#onActivity = options.onActivity;
    this.#onLeft = options.onLeft ?? ignore;
    this.#isWatched = options.isWatched ?? nobody;
    this.#together = options.together ?? options.clock;
    this.#stoppable = options.stoppable;
    this.#onUnasked = options.onUnasked ?? ignore;
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

  /** Moves the head between turns: refused while one runs or waits, also one that a crash left behind. */
  async rewind(node: string | null): Promise<Rewound> {
    const opens = this.session === undefined;
    if (this.hasTurns) throw turnAhead(this.id);
    return this.perform("rewind", async (session) => {
      if (opens && this.#resumed !== undefined) throw turnAhead(this.id);
      return rewindSession(session, node);
    });
  }

  /** Queues a turn behind what was already asked for. Refuses with `mailbox_full`, never drops. */
  turn(
    input: string,
    options: Listener,
    extras: TurnExtras = NO_EXTRAS,
    asked: Pick<TurnRequest, "call" | "again"> = {},
  ): Promise<TurnResult> {
    const { signal, stop } = options;
    const emit = (activity: Activity) => {
      options.emit(activity);
      this.#onActivity(activity);
    };
    const told = { emit, ...this.#watching(() => options) };
    const turn = this.perform("turn", (session) =>
      runTurnNow(session, { input, ...told, signal, ...(stop && { stop }), extras, ...asked }),
    );
    if (stop === undefined) return turn;
    const { key } = extras;
    return this.#until(turn, {
      stop,
      ...(key !== undefined && { name: ({ blobs }) => nameOfAsked(blobs, { key, input, extras }) }),
    });
  }

  /** Whoever asks meanwhile finds what may be stopped. */
  async #until<T>(turn: Promise<T>, asked: Asked, isFirst = false): Promise<T> {
    if (isFirst) this.#asked.unshift(asked);
    else this.#asked.push(asked);
    try {
      return await turn;
    } finally {
      asked.stop.ended();
      this.#asked.splice(this.#asked.indexOf(asked), 1);
    }
  }

  /** Stops what runs, whoever asked for it; when nothing has begun, what begins next. */
  async cancel(cancellation: Cancellation): Promise<CancelAnswer> {
    await this.opened();
    // Inputs that begin a turn by themselves are as good as a turn that was asked for.
    if (this.#asked.length === 0) this.#takeInputs();
    return this.#asked[0]?.stop.cancel(cancellation) ?? "idle";
  }

  /** Stops the turn with this id, and no other. */
  async cancelTurn(turnId: string, cancellation: Cancellation): Promise<CancelledTurn> {
    const { stored, life } = await this.opened();
    const resumes = life.unfinished?.turnId === turnId;
    const turn = this.#asked.find(({ stop }, first) => stop.turnId === turnId || (resumes && first === 0));
    if (turn !== undefined && (await turn.stop.cancel(cancellation)) === "cancelled") return "cancelled";
    const index = indexOfTurn(turnId);
    return turn !== undefined || (index ?? Number.POSITIVE_INFINITY) <= stored.turnIndex ? "ended" : "unknown";
  }

  /** Who was asked for by the same key and with the same input is the same turn: a handle of one is a handle of all. */
  async cancelNamesakes(stop: TurnStop, cancellation: Cancellation): Promise<void> {
    const own = this.#asked.find((asked) => asked.stop === stop);
    if (own?.name === undefined) return;
    const session = await this.opened();
    const known = await own.name(session);
    for (const asked of [...this.#asked]) {
      const name = asked === own ? undefined : await asked.name?.(session);
      if (name !== undefined && isNamesake(name, known)) asked.stop.cancel(cancellation).catch(ignore);
    }
  }

  /** What a turn asks of whoever watches the session, beside the one who asked for the turn. */
  #watching(listener: () => Listener | undefined): Watching {
    return {
      // Who asked for it, and comes back for it, was there when it was told.
      retell: this.#onActivity,
      onLeft: this.#onLeft,
      isShown: () => listener()?.isHeard === true || this.#isWatched(),
    };
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
      turn.stop?.handTo(resumed.stop);
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
    const { call, name } = unfinished.start;
    const turn: ResumedTurn = { call, answer: deferred(), stop: new TurnStop() };
    this.#resumed = turn;
    // Nobody may come back for it.
    this.#until(turn.answer.promise, { stop: turn.stop, ...(name && { name: () => name }) }, true).catch(ignore);
    const { signal } = turn.stop;
    const emit = (activity: Activity) => {
      turn.attached?.emit(activity);
      this.#onActivity(activity);
    };
    const run = async () => {
      this.#onUnasked();
      try {
        const told = { emit, ...this.#watching(() => turn.attached) };
        return await resumeTurn(session, unfinished, { ...told, signal, stop: turn.stop });
      } catch (error) {
        if (turn.attached === undefined) this.#tellRefused(error);
        if (session.life.unfinished === undefined) throw error;
        // It was not even begun. Its journal is as it was: whoever opens the session next takes it up.
        if (isSuspended(signal)) session.life.suspend();
        else session.life.giveUp();
        this.#onLeft(undefined);
        throw notTakenUp(error);
      } finally {
        await settle(session);
        if (session.inputs.waitForTurn) this.#takeInputsSoon();
      }
    };
    return callOf(run, turn.answer);
  }

  /** Leaves a turn that nobody holds as its journal has it. */
  suspend(reason = suspension()): void {
    this.#resumed?.stop.abort(reason);
    // Without a journal it is refused, and its inputs wait.
    if (this.session?.services.journals === true) this.#begun?.abort(reason);
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
    this.checkTaking();
    if (!session.hooks.replacesInput) return addInput(session, request);
    return this.#intakeOf(session, (signal) => addReplaced(session, request, signal, () => this.checkTaking()));
  }

  /** Does something behind the inputs that were said before it, of which a hook may still have one. */
  async behindInputs<T>(perform: (session: Session) => T | Promise<T>): Promise<T> {
    const session = await this.opened();
    if (this.#intake.size > 0) await this.#intake.ended();
    return perform(session);
  }

  /** The same for an input that the runtime brings, which has a turn of its own. */
  async deliverInput(delivery: ToldBy<"deliverInput">): Promise<"taken" | "skipped"> {
    const session = await this.opened();
    this.checkTaking();
    const take = async (told: ToldBy<"deliverInput">) => {
      // Whether it came in time or not, this input takes that one's place.
      if (told.replaces && isTakenUp(session, told.source))
        await this.cancel({ reason: `The next input of ${told.source} is due.` });
      return takeDelivered(session, told);
    };
    if (!session.hooks.replacesInput) return take(delivery);
    return this.#intakeOf(session, async (signal) => {
      const arrival = delivery.steers === true ? "steer" : "enqueue";
      const replaced = await withReplacedText(session, delivery, { arrival, signal });
      this.checkTaking();
      return take(replaced);
    });
  }

  /** An input that hooks are asked about, in the order in which inputs were said. */
  #intakeOf<T>(session: Session, take: (signal: AbortSignal) => Promise<T>): Promise<T> {
    return this.#intake.run(() => this.#stoppable(take).finally(() => settle(session, () => this.state === "running")));
  }

  /** A tool of the session, beside what is in the mailbox: what it changes is stored in one write of its own. */
  async runTool(call: Parameters<typeof runToolAlone>[1]): Promise<LoneAnswer> {
    const session = await this.opened();
    this.checkTaking();
    try {
      return await runToolAlone(session, call);
    } finally {
      await settle(session, () => this.state === "running");
    }
  }

  /** Behind what is being done now, and what others ask for meanwhile. */
  #takeInputsSoon(): void {
    this.#together.soon(() => this.#takeInputs());
  }

  /** Begins a turn with what waits, unless something else comes first. A turn that fails leaves it waiting. */
  #takeInputs(): void {
    if (this.state === "idle" && this.session?.inputs.waitForTurn === true)
      this.#begin((inputs) => inputs.takeForTurn());
  }

  /** A turn of inputs that wait, as far as they still do. */
  #begin(take: (inputs: SessionInputs) => readonly PendingInput[]): void {
    const stop = new TurnStop();
    const { signal } = stop;
    const perform = async (session: Session) => {
      const taken = take(session.inputs);
      if (taken.length === 0) return;
      this.#onUnasked();
      const input = taken.map(({ text }) => text).join("\n\n");
      const whole = taken.some(({ parts }) => parts !== undefined);
      const extras = whole ? { parts: taken.flatMap(partsOfInput) } : NO_EXTRAS;
      const inputIds = taken.map(({ id }) => id);
      const told = { emit: this.#onActivity, ...this.#watching(() => undefined) };
      const how = { ...told, signal, stop, inputIds, keepsInputs: true };
      this.#begun = stop;
      try {
        await runTurnNow(session, { input, extras, ...how });
      } finally {
        this.#begun = undefined;
      }
    };
    this.#until(
      this.#stoppable(() => this.perform("inputs", perform), stop),
      { stop },
    ).catch((error) => this.#tellRefused(error));
  }

  /** Nobody waits for the turn. One for which there was no room, or that the runtime's closing left as it is, still comes. */
  #tellRefused(error: unknown): void {
    const refused = asTroupeError(error, "turn_failed");
    if (STILL_COME.includes(refused.code)) return;
    const { code } = refused;
    const { events } = this.session?.services ?? {};
    events?.emit({ type: "turn_refused", session: this.id, code, background: true, error: eventError(refused) });
  }

  /** Does something in its place behind what was asked for before, and has what it left unstored stored. */
  perform<T>(
    kind: Mail["kind"],
    perform: (session: Session) => Promise<T>,
    settles: (session: Session) => boolean = () => true,
  ): Promise<T> {
    return this.post(kind, async (session) => {
      // A turn was left in the middle: what is behind it cannot come before it.
      if (session.life.isSuspended) throw sessionClosed(this.id);
      const { inputs } = session;
      try {
        let answer: T;
        try {
          answer = await perform(session);
        } finally {
          // What it left unstored is stored before it is answered, however it ended.
          if (settles(session) && isUnsaved(session)) await settle(session);
        }
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

const nobody = () => false;

const STILL_COME: readonly string[] = ["mailbox_full", "turn_suspended", "closed"];

/** A turn is run with the session's agent as it is registered now; a session without one costs a look. */
function runTurnNow(session: Session, request: TurnRequest): Promise<TurnResult> {
  if (session.stored.identity.agent === undefined) return runTurn(session, request);
  return bringUpToDate(session).then(() => runTurn(session, request));
}

/** What cannot be captured is tried again with the next write, and a store that cannot be written to says so then. */
function settle(session: Session, unless?: () => boolean): Promise<void> {
  return settleSession(session, unless).catch(ignore);
}
