import { ignore } from "../../async/index.js";
import {
  type Activity,
  type AppendRequest,
  type AppendResult,
  type Json,
  type PendingInput,
  partsOfInput,
  type SessionConfig,
  TroupeError,
  type TurnResult,
} from "../../kernel/index.js";
import { needsItsTurn } from "../../plugin/index.js";
import type { ConfigReceipt, OperationReceipt, SessionInfo, TurnExtras } from "../calls/index.js";
import type { UnfinishedTurn } from "../journal/index.js";
import { isSuspended, notTakenUp } from "../journal/index.js";
import type { InputRequest, Session, SessionInputs } from "../state/index.js";
import { addInput, isUnsaved, settleSession } from "../state/index.js";
import { NO_EXTRAS, resumeTurn, runTurn, type TurnRequest } from "../turn/index.js";
import type { ActiveTurn } from "./active-turns.js";
import { compactSession } from "./compact.js";
import { configureSession, extendSession } from "./configure.js";
import { type Call, callOf, closing, LifeActor, type LifeOptions } from "./life-actor.js";
import type { Mail } from "./mailbox.js";
import { refreshTools } from "./open-session.js";
import { type OperationRequest, runOperation } from "./operations.js";
import { ResumedTurn } from "./resumed-turn.js";

export interface SessionActorOptions extends LifeOptions {
  /** Told of everything that happens in the session's turns, whoever asked for them. */
  readonly onActivity: (activity: Activity) => void;
  /** Runs what no caller can cancel, with a signal that aborts when the runtime closes. */
  readonly stoppable: <T>(run: (signal: AbortSignal) => Promise<T>) => Promise<T>;
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
    options: { readonly emit: (activity: Activity) => void; readonly signal: AbortSignal },
    extras: TurnExtras = NO_EXTRAS,
    asked: Pick<TurnRequest, "call" | "again"> = {},
  ): Promise<TurnResult> {
    const { signal } = options;
    const emit = (activity: Activity) => {
      options.emit(activity);
      this.#onActivity(activity);
    };
    return this.#post("turn", (session) => runTurn(session, { input, emit, signal, extras, ...asked }));
  }

  /**
   * A turn whose worker was lost under it: the one that is taken up again from the journal, or the turn anew when it had
   * not begun. One that was stored, and whose answer alone was lost, is not run again.
   */
  async turnAgain(input: string, turn: ActiveTurn, extras: TurnExtras, call: string): Promise<TurnResult> {
    const session = await this.opened();
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
  #resume(session: Session, unfinished: UnfinishedTurn): Call {
    const turn = new ResumedTurn(unfinished.start.call);
    this.#resumed = turn;
    const emit = (activity: Activity) => {
      turn.emit(activity);
      this.#onActivity(activity);
    };
    const run = async () => {
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
    };
    return callOf(run, turn.settled);
  }

  /** Leaves the turn that was taken up again as its journal has it. */
  suspend(reason?: TroupeError): void {
    this.#resumed?.suspend(reason);
  }

  /** Changes the configuration, in its place between turns. */
  setConfig(change: Partial<SessionConfig>): Promise<ConfigReceipt> {
    return this.#post("config", (session) => configureSession(session, change));
  }

  /** Composes the tools anew and forgets what was made of them. */
  refreshTools(): Promise<void> {
    return this.#post("tools", refreshTools);
  }

  compact(instructions: string | null): Promise<boolean> {
    return this.#post("compact", (session) => compactSession(session, instructions));
  }

  append(request: AppendRequest): Promise<AppendResult> {
    return this.#post("append", (session) => session.graph.append(request, { kind: "host" }));
  }

  extend(extension: Json): Promise<void> {
    return this.#post("extend", (session) => extendSession(session, extension));
  }

  /** Runs an operation: a query at once, also while a turn runs; a command or task in its place. */
  async operate(request: OperationRequest): Promise<OperationReceipt> {
    const isPlaced = (session: Session) => needsItsTurn(session.hooks.operation(request).spec);
    if (this.session !== undefined && !isPlaced(this.session)) return this.#answer(this.session, request);
    if ("kind" in request && request.kind === "query") return this.#answer(await this.opened(), request);
    // Only the open session knows what an action is, or what a plugin has under a name. Until then a place is kept, so
    // that what is asked for next stays behind it; nothing is done there when it turns out not to be needed.
    const place = this.#post(
      "operation",
      async (session) => (isPlaced(session) ? runOperation(session, request) : undefined),
      // Storing at an empty place would capture what the operation beside it has half done.
      (session, perform) => (isPlaced(session) ? settled(session, perform) : perform(session)),
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
  async addInput(request: InputRequest): Promise<PendingInput> {
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
    this.#stoppable((signal) => this.#post("inputs", (session) => perform(session, signal))).catch(ignore);
  }

  #post<T>(
    kind: Mail["kind"],
    perform: (session: Session) => Promise<T>,
    run: typeof settled<T> = settled,
  ): Promise<T> {
    return this.post(kind, async (session) => {
      // A turn was left in the middle: what is behind it cannot come before it.
      if (session.life.isSuspended) throw closing(this.id);
      const { inputs } = session;
      try {
        const answer = await run(session, perform);
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

  async info(threadId: number): Promise<SessionInfo> {
    const session = await this.opened();
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
