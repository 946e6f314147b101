import { createActor } from "xstate";
import { type Clock, type Deferred, deferred, ignore } from "../../async/index.js";
import { asTroupeError, sessionClosed, TroupeError } from "../../kernel/index.js";
import type { SessionEvent, SessionState } from "../calls/index.js";
import { type LifeChart, type Session, saveSession } from "../state/index.js";
import { type Asked, type ChartEvent, type LifeContext, type Mail, sessionLogic } from "./session-machine.js";

export interface LifeOptions {
  /** Makes the session: from the store, or from a fork's snapshot. */
  readonly open: (chart: LifeChart) => Promise<Session>;
  readonly mailboxLimit: number;
  readonly clock: Clock;
  /** Somebody inspects the session from its beginning. */
  readonly inspector?: Inspector | undefined;
  /** Something was done, and nothing else is to be. */
  readonly onRest: () => void;
  /** Somebody else has the session now: what it is at is to end at once. */
  readonly onMoved: (error: TroupeError) => void;
  /** Parked, stale or failed: the next message needs another actor. Told before anything else can happen. */
  readonly onEnded: () => void;
}

/** Told of an event of the chart when it is through. */
export type Inspector = (event: SessionEvent, state: SessionState) => void;

/** What is done when a piece of mail has its turn. */
export interface Call {
  /** Gives what settles the caller, once the session knows that the work is done; never rejects. */
  readonly run: (session: Session) => Promise<() => void>;
  readonly reject: (error: TroupeError) => void;
}

/** A call whose caller waits for `answer`. */
export function callOf<T>(run: (session: Session) => Promise<T>, { resolve, reject }: Deferred<T>): Call {
  return {
    run: (session) =>
      run(session).then(
        (value) => () => resolve(value),
        (error: unknown) => () => reject(asTroupeError(error, "turn_failed")),
      ),
    reject,
  };
}

/**
 * A session's XState actor with everything its chart cannot hold: the session itself, and who waits for what. Nothing
 * outside this file and the machine's knows XState.
 */
export abstract class LifeActor {
  readonly id: string;
  protected readonly clock: Clock;
  readonly #options: LifeOptions;
  readonly #actor = createActor(sessionLogic);
  readonly #opened = deferred<Session>();
  readonly #ended = deferred();
  /** With the id of their mail. A list, because a map that is filled and emptied keeps alive what was in it. */
  #calls: (Call & { readonly id: number; readonly isTurn: boolean })[] = [];
  /** Turns in the mailbox, and one that is being done. */
  #turns = 0;
  /** Who asked for the session to be parked, and waits. */
  #parkers: Deferred<void>[] = [];
  #lastId = 0;
  #session: Session | undefined;
  #inspection: { unsubscribe(): void } | undefined;

  constructor(id: string, options: LifeOptions) {
    this.id = id;
    this.clock = options.clock;
    this.#options = options;
    this.#opened.promise.catch(ignore);
    // Not within the transition: what is done sends events, and sees what they have changed.
    this.#actor.on("*", (asked) => void Promise.resolve(asked).then((each) => this.#do(each)));
    this.#actor.subscribe({ complete: () => this.#end() });
    if (options.inspector !== undefined) this.inspect(options.inspector);
    this.#actor.start();
  }

  get state(): SessionState {
    return this.#actor.getSnapshot().value;
  }

  /** The session, once it is open. */
  get session(): Session | undefined {
    return this.#session;
  }

  /** Resolves when the session is open; rejects with the reason when it cannot be. */
  opened(): Promise<Session> {
    return this.#opened.promise;
  }

  /** Resolves when the session has parked or failed, or is stale. */
  ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** Why the session failed, when it did. */
  get failure(): TroupeError | undefined {
    const { failure, life } = this.#context;
    return failure ?? (this.state === "stale" && life.kind === "stale" ? life.error : undefined);
  }

  /** It finishes what is queued, and nothing more. */
  get isLeaving(): boolean {
    return this.#context.leaving;
  }

  /** The session is about to be open. Gives what is to be done before anything else, when a crash left something. */
  protected abstract prepare(session: Session): Promise<Call | undefined>;

  /** The session was about to be parked, and stays in memory. */
  protected abstract onStays(): void;

  /** What everything that is asked for from now on is refused with, when it is. */
  protected refusal(): TroupeError | undefined {
    return this.#isActive && !this.isLeaving ? undefined : (this.failure ?? sessionClosed(this.id));
  }

  /** Throws what everything is refused with from now on, when it is. */
  protected checkTaking(): void {
    const refusal = this.refusal();
    if (refusal !== undefined) throw refusal;
  }

  /** Does something in its place behind what was asked for before. Refuses with `mailbox_full`, never drops. */
  protected post<T>(kind: Mail["kind"], perform: (session: Session) => Promise<T>): Promise<T> {
    const refusal = this.refusal() ?? this.#noRoom();
    if (refusal !== undefined) return Promise.reject(refusal);
    const answer = deferred<T>();
    this.#send({ type: "posted", mail: this.#mail(kind, callOf(perform, answer)) });
    return answer.promise;
  }

  /** The session must not be parked before `letGo`: somebody is about to use it, or does. */
  hold(): void {
    this.#send({ type: "held" });
  }

  letGo(): void {
    this.#send({ type: "released", inputsWait: this.#inputsWait });
    this.#rest();
  }

  /** Has the session leave memory, stored, as soon as nobody needs it; whoever comes before that keeps it there. */
  park(): void {
    this.#send({ type: "park", wanted: "policy", inputsWait: this.#inputsWait });
  }

  /** The same for somebody who waits for it; rejects when the session cannot be stored. */
  async parked(): Promise<void> {
    if (!this.#isActive) return;
    const parker = deferred();
    this.#parkers.push(parker);
    this.#parkForHost();
    return parker.promise;
  }

  /** Stops intake, finishes what is queued, stores the session and forgets it. */
  leave(): void {
    this.#send({ type: "leave" });
  }

  /** Tells of every event from now on, or of none any more. */
  inspect(inspector: Inspector | undefined): void {
    this.#inspection?.unsubscribe();
    this.#inspection =
      inspector &&
      this.#actor.system.inspect((each) => {
        if (each.type === "@xstate.snapshot") inspector(nameOf(each.event), this.state);
      });
  }

  /** A turn is being done, or waits for its place. */
  protected get hasTurns(): boolean {
    return this.#turns > 0;
  }

  get #isActive(): boolean {
    return this.#actor.getSnapshot().status === "active";
  }

  get #context(): LifeContext {
    return this.#actor.getSnapshot().context;
  }

  get #inputsWait(): boolean {
    return this.#session?.inputs.waitForTurn === true;
  }

  /** What comes after the end changes nothing. */
  #send(event: ChartEvent): void {
    if (this.#isActive) this.#actor.send(event);
  }

  #mail(kind: Mail["kind"], call: Call): Mail {
    const mail = { id: ++this.#lastId, kind };
    const isTurn = TURNS.includes(kind);
    if (isTurn) this.#turns++;
    this.#calls.push({ id: mail.id, run: call.run, reject: call.reject, isTurn });
    return mail;
  }

  #noRoom(): TroupeError | undefined {
    const { mailboxLimit: limit } = this.#options;
    const { length } = this.#context.mailbox;
    // While opening or parking, the first queued item does not count.
    const room = this.state === "opening" || this.state === "parking" ? limit + 1 : limit;
    if (length < room) return undefined;
    return new TroupeError(
      "mailbox_full",
      `Session ${this.id} has ${limit} turns waiting. Ask again when some have finished.`,
      { retryable: true, details: { sessionId: this.id, limit } },
    );
  }

  async #do(asked: Asked): Promise<void> {
    switch (asked.type) {
      case "open":
        return this.#open();
      case "work":
        return this.#work(asked.id);
      case "save":
        return this.#save(asked.always);
      case "stays":
        return this.#stays(asked.error);
    }
  }

  async #open(): Promise<void> {
    try {
      const session = await this.#options.open({
        life: () => this.#context.life,
        send: (event) => {
          this.#send(event);
          if (event.type === "session.stale" && event.error.code === "session_moved")
            this.#options.onMoved(event.error);
        },
      });
      const first = await this.prepare(session);
      this.#session = session;
      const resume = first && this.#mail("resume", first);
      this.#opened.resolve(session);
      this.#send({ type: "opened", inputsWait: this.#inputsWait, ...(resume && { resume }) });
    } catch (error) {
      this.#send({ type: "open.failed", error });
    }
  }

  async #work(id: number | undefined): Promise<void> {
    const at = this.#calls.findIndex((each) => each.id === id);
    const [call] = at < 0 ? [] : this.#calls.splice(at, 1);
    // An open session: the chart asks for no work before.
    const settle = await call?.run(this.#session as Session);
    if (call?.isTurn === true) this.#turns--;
    this.#send({ type: "work.done", inputsWait: this.#inputsWait });
    settle?.();
    this.#rest();
  }

  #rest(): void {
    if (this.state === "idle" && this.#context.held === 0) this.#options.onRest();
  }

  /** What comes meanwhile finds the session as it was, and it stays. */
  async #save(always: boolean): Promise<void> {
    const session = this.#session as Session;
    try {
      // A turn that was left in the middle begins again from what the last one stored.
      if (!session.life.isSuspended) await saveSession(session, { always });
      this.#send({ type: "saved", complete: session.stored.isSaved, inputsWait: this.#inputsWait });
    } catch (error) {
      this.#send({ type: "save.failed", error });
    }
  }

  #stays(error: unknown): void {
    if (error !== undefined)
      for (const parker of this.#parkers.splice(0)) parker.reject(asTroupeError(error, "session_park_failed"));
    this.onStays();
    if (this.#parkers.length > 0) this.clock.soon(() => this.#parkForHost());
  }

  #parkForHost(): void {
    this.#send({ type: "park", wanted: "host", inputsWait: this.#inputsWait });
  }

  #end(): void {
    const { failure } = this;
    this.#session?.hooks.close();
    const error = failure ?? sessionClosed(this.id, "was closed");
    this.#opened.reject(error);
    for (const { reject } of this.#calls.splice(0)) reject(error);
    for (const { resolve, reject } of this.#parkers.splice(0)) failure === undefined ? resolve() : reject(failure);
    this.#options.onEnded();
    this.#ended.resolve();
  }
}

/** Mail of which a turn comes. */
const TURNS: readonly Mail["kind"][] = ["turn", "inputs", "resume"];

function nameOf({ type }: { readonly type: string }): SessionEvent {
  // The chart is sent no other event than its own and XState's first.
  return type === "xstate.init" ? "open" : (type as ChartEvent["type"]);
}
