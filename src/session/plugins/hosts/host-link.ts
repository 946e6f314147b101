import type { MessagePort } from "node:worker_threads";
import { type Clock, ignore, onAbort, within } from "../../../async/index.js";
import { aborted, type TroupeError } from "../../../kernel/index.js";
import { type NoteTaker, readNote } from "../../../tools/index.js";
import {
  type CallFate,
  type Deadlines,
  decodeError,
  isHeld,
  Lane,
  type LaneCallOptions,
  type OrphanedCall,
  type StageView,
  setEndedBy,
  workerLost,
} from "../../../wire/index.js";
import type { FloatingNote, PluginLane, ToolNoteOf } from "../../calls/index.js";
import {
  floatingRejection,
  HOOK_LANE_METHODS,
  type HookLane,
  type OpenInstance,
  RUN_WIDTH,
  type RunCall,
  StateBoardReader,
  type StateNote,
} from "../../plugin-thread/index.js";
import type { PluginSlot } from "../plugin-link.js";

/** How long a call waits for a host's thread. */
const REPLACEMENT_MS = 10_000;
/**
 * Deadlines missed in a row, without one answer, after which a host's thread must end whatever it says of itself. One more
 * than open a breaker: a hook that merely never settles costs its own calls, and the thread only when nothing else answers.
 */
const MOST_MISSED = 6;
/**
 * How often it is looked whether a call on the quarantine host must still be alone there. One that was begun and does not
 * hold the thread by then waits for something, and blocks nobody. On a busy machine a thread may take long to begin one.
 */
const ALONE_MS = 250;

/** Rejections that a host's threads may report. */
const MOST_REPORTS = 128;

/** A run, by the number of its lane and of its call there. */
export type RunName = readonly [lane: number, call: number];

/** The slots a call is for: one, or one for each hook of a run. */
export function slotsIn(payload: unknown): readonly number[] {
  const [first] = payload as readonly [number | RunCall[0], ...unknown[]];
  return typeof first === "number" ? [first] : first.filter((_, at) => at % RUN_WIDTH === 0);
}

/** A session's slot in one plugin of a group, and the host it is at. */
export interface Placed {
  readonly slot: PluginSlot;
  /** The plugin's place in its group. */
  readonly member: number;
  host: HostLink | undefined;
  /** The assignment's version the host was chosen by. */
  version: number;
  /** It is on its way to another host: its calls wait until its state is there. */
  moving: Promise<void> | undefined;
}

export type OrphanOf = OrphanedCall & { readonly fate: CallFate; readonly placed: Placed | undefined };

interface HostLinkParts {
  readonly key: string;
  /** Names it in errors: "Plugin acme.budget". */
  readonly name: string;
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  /** One call at a time, as far as calls are short. */
  readonly alone: boolean;
  readonly placedOf: (payload: unknown) => Placed | undefined;
  /** By the slot's number. */
  readonly placedAt: (slot: number) => Placed | undefined;
  /** A call waits for a lane; told the last one there was. */
  readonly onWanted: (lane: number) => void;
  /** The lane is gone; its calls are whoever's this tells. */
  readonly onLost: (orphans: readonly OrphanOf[], stage: StageView) => void;
  /** The host misses deadlines and answers nothing. */
  readonly onSilent: (lane: number) => void;
  /** Serves what plugins ask for in the name of calls of this lane. */
  readonly serveHost: (port: MessagePort, lane: Lane, number: number) => void;
  /** A waiting call is made. */
  readonly onMade: (method: string, payload: unknown) => void;
  /** A promise of a plugin was rejected, and nobody handled it. */
  readonly onFloating: (note: FloatingNote) => void;
  /** A tool said something before it answered. */
  readonly noted: NoteTaker;
}

interface WaitingCall {
  go(): void;
  fail(error: TroupeError): void;
}

/** One plugin host as a session worker sees it. Survives the host's threads: calls made while there is none wait. */
export class HostLink {
  readonly #parts: HostLinkParts;
  #lane: Lane | undefined;
  /** Where its thread writes its sessions' states. */
  #board: StateBoardReader | undefined;
  #hostPort: MessagePort | undefined;
  #number = -1;
  readonly #past = { sent: 0, received: 0 };
  /** Rejections that nobody handled, as far as they were told. */
  #reports = 0;
  /** Slots whose instance exists in the current thread. */
  readonly #opened = new Set<number>();
  #waiting: WaitingCall[] = [];
  #alone: Promise<void> = Promise.resolve();
  /** Of the call that is alone, once it is made: its lane, and the last call that was begun there before it. */
  #sent: { readonly lane: Lane; readonly begun: number | undefined } | undefined;
  #stage: StageView | undefined;

  constructor(parts: HostLinkParts) {
    this.#parts = parts;
  }

  get key(): string {
    return this.#parts.key;
  }

  /** The number of its lane; -1 while it has none. */
  get laneNumber(): number {
    return this.#lane === undefined ? -1 : this.#number;
  }

  get messages(): { sent: number; received: number } {
    const { sent, received } = this.#lane?.counts ?? { sent: 0, received: 0 };
    return { sent: this.#past.sent + sent, received: this.#past.received + received };
  }

  isOpen(slot: number): boolean {
    return this.#opened.has(slot);
  }

  /** Has any session an instance there, or a call under way? */
  get isUsed(): boolean {
    return this.#opened.size > 0 || this.#waiting.length > 0 || (this.#lane?.pending ?? 0) > 0;
  }

  /** Does a call of this slot wait for its answer? */
  isBusy(slot: number): boolean {
    for (const payload of this.#lane?.waitingPayloads() ?? []) if (slotsIn(payload).includes(slot)) return true;
    return this.#waiting.length > 0;
  }

  /** Nobody waits any more for a run of this lane. */
  drop([lane, run]: RunName): void {
    if (lane === this.laneNumber) this.#lane?.note("drop", run);
  }

  attach({ port, hostPort, lane: number, stage: cells, started }: PluginLane): void {
    this.lose(workerLost(this.#parts.name));
    this.#hostPort = hostPort;
    const { clock, name, onLost, onSilent, placedOf } = this.#parts;
    const orphans: OrphanOf[] = [];
    const board = new StateBoardReader();
    const stage: StageView = { cells, lane: number, started };
    const lane = new Lane(port, {
      name,
      clock,
      methods: HOOK_LANE_METHODS,
      foreign: true,
      onNote: (topic, payload) => {
        if (topic === "board") board.take(payload);
        else if (topic === "state") followState(payload, placedOf(payload));
        else if (topic === "floating") this.#floated(payload);
        else if (topic === "toolNote") tellNote(payload, lane, this.#parts.noted);
        else throw new TypeError("It has a note that no plugin host sends.");
      },
      orphans: { stage, take: (call, fate) => orphans.push({ ...call, fate, placed: placedOf(call.payload) }) },
      onMissed: (inRow) => {
        if (inRow >= MOST_MISSED) onSilent(number);
      },
      onLost: ({ code }) => {
        if (code === "wire_corrupt") setEndedBy(cells, "malformed");
        this.#past.sent += lane.counts.sent;
        this.#past.received += lane.counts.received;
        hostPort.close();
        if (this.#lane !== lane) return;
        this.#lane = undefined;
        this.#opened.clear();
        for (const { slot: at, life, state } of board.states(lane.counts.received)) {
          const slot = this.#parts.placedAt(at)?.slot;
          if (slot?.lives === life) slot.followDeclared(state);
        }
        onLost(orphans, stage);
      },
    });
    this.#lane = lane;
    this.#stage = stage;
    this.#board = board;
    this.#number = number;
    this.#parts.serveHost(hostPort, lane, number);
    for (const call of this.#waiting.splice(0)) call.go();
  }

  lose(error: TroupeError): void {
    this.#lane?.lose(error);
  }

  /** The thread's own count keeps reports few; one that lies about it is not heard. */
  #floated(report: unknown): void {
    if (++this.#reports <= MOST_REPORTS) this.#parts.onFloating(readReport(report));
  }

  /** No thread will come: every call that waits for one fails. */
  fail(error: TroupeError): void {
    this.lose(error);
    for (const { fail } of this.#waiting.splice(0)) fail(error);
    this.#hostPort?.close();
  }

  call(placed: Placed, method: string, payload: unknown, options: LaneCallOptions): Promise<unknown> {
    if (this.#parts.alone) return this.#callAlone(placed, method, payload, options);
    if (this.#lane !== undefined) return this.#send(this.#lane, placed, method, payload, options);
    return this.#whenThere(placed, { method, payload, options });
  }

  /** Makes a call again that another thread did not answer, within its first deadline; false when that is over. */
  again(placed: Placed, { resolve, reject, method, payload, options, expiresAt }: OrphanedCall): boolean {
    const { clock } = this.#parts;
    const deadlineMs = expiresAt === undefined ? undefined : Math.ceil((expiresAt - clock.now()) / 50) * 50;
    if (deadlineMs !== undefined && deadlineMs <= 0) return false;
    const left: LaneCallOptions =
      deadlineMs === undefined
        ? options
        : { ...options, deadlineMs, statedMs: options.statedMs ?? options.deadlineMs ?? deadlineMs };
    this.call(placed, method, payload, left).then(resolve, reject);
    return true;
  }

  close(slot: number): void {
    if (!this.#opened.delete(slot)) return;
    this.#board?.release(slot);
    this.#lane?.note("close", slot);
  }

  /** Calls of suspects: alone, so that it is certain whose call it was when the thread goes again. */
  #callAlone(placed: Placed, method: string, payload: unknown, options: LaneCallOptions): Promise<unknown> {
    const made = this.#alone.then(() => {
      this.#sent = undefined;
      return this.#lane === undefined
        ? this.#whenThere(placed, { method, payload, options })
        : this.#send(this.#lane, placed, method, payload, options);
    });
    this.#alone = this.#alone.then(() => this.#whileAlone(made));
    return made;
  }

  async #whileAlone(made: Promise<unknown>): Promise<void> {
    let isOver = false;
    const over = () => {
      isOver = true;
    };
    const settled = made.then(over, over);
    do await within(this.#parts.clock, ALONE_MS, settled);
    while (!isOver && this.#mustBeAlone);
  }

  /** Has the call that is alone not begun, or does it hold the thread? One whose thread is lost is made again behind others. */
  get #mustBeAlone(): boolean {
    if (this.#sent === undefined || this.#stage === undefined) return this.#sent === undefined;
    const { cells, started } = this.#stage;
    return this.#sent.lane === this.#lane && (isHeld(cells) || started[0] === this.#sent.begun);
  }

  #whenThere(placed: Placed, call: Pick<OrphanedCall, "method" | "payload" | "options">): Promise<unknown> {
    return new Promise((resolve, reject) => this.#wait(placed, { ...call, resolve, reject }));
  }

  #send(lane: Lane, placed: Placed, method: string, payload: unknown, options: LaneCallOptions): Promise<unknown> {
    if (!this.#opened.has(placed.slot.number)) this.#open(lane, placed);
    if (method === "run") {
      for (const number of slotsIn(payload)) {
        const member = this.#opened.has(number) ? undefined : this.#parts.placedAt(number);
        if (member !== undefined) this.#open(lane, member);
      }
    }
    if (this.#parts.alone) this.#sent = { lane, begun: this.#stage?.started[0] };
    return lane.call(method, payload, options);
  }

  /** No round trip: the note and the call leave in one message, in this order. */
  #open(lane: Lane, { slot, member }: Placed): void {
    this.#opened.add(slot.number);
    const instance = [
      slot.number,
      member,
      slot.sessionId,
      slot.latest ?? slot.captured,
      slot.init,
      slot.lives,
    ] as const;
    const open: OpenInstance = slot.facts === undefined ? instance : [...instance, slot.facts];
    lane.note("open", open);
  }

  /**
   * As {@link #send}, for a cooperative call that was asked to stop before it could be made. The request follows in a
   * message of its own: code that only listens for it has begun to by then.
   */
  #sendAborted(
    lane: Lane,
    placed: Placed,
    method: string,
    payload: unknown,
    options: LaneCallOptions,
  ): Promise<unknown> {
    const stop = new AbortController();
    const answer = this.#send(lane, placed, method, payload, { ...options, signal: stop.signal });
    this.#parts.clock.soon(() => stop.abort());
    return answer;
  }

  /** Keeps a call until there is a thread to make it on. Waiting for the first one is not the call's time. */
  #wait(placed: Placed, { method, payload, options, resolve, reject }: Omit<OrphanedCall, "expiresAt">): void {
    const { deadlines, name, onMade } = this.#parts;
    const { signal } = options;
    if (signal?.aborted) {
      reject(aborted(signal));
      return;
    }
    const leave = () => {
      deadlines.cancel(deadline);
      letGo();
    };
    const fail = (error: TroupeError) => {
      leave();
      this.#waiting = this.#waiting.filter((other) => other !== call);
      reject(error);
    };
    const call: WaitingCall = {
      go: () => {
        leave();
        onMade(method, payload);
        if (this.#lane === undefined) reject(workerLost(name));
        else if (signal?.aborted) this.#sendAborted(this.#lane, placed, method, payload, options).then(resolve, reject);
        else this.#send(this.#lane, placed, method, payload, options).then(resolve, reject);
      },
      fail,
    };
    const isMadeAgain = options.statedMs !== undefined;
    const patienceMs = isMadeAgain ? Math.min(REPLACEMENT_MS, options.deadlineMs ?? REPLACEMENT_MS) : REPLACEMENT_MS;
    const deadline = deadlines.add(patienceMs, () => fail(noThread(name, patienceMs)));
    // Of a cooperative call an abort is a request: it is made with it, as if the abort had come a moment later.
    const letGo = options.cooperative ? ignore : onAbort(signal, () => fail(aborted(signal as AbortSignal)));
    this.#waiting.push(call);
    if (this.#waiting.length === 1) this.#parts.onWanted(this.#number);
  }
}

/** What a tool says, in the name of its call: the lane knows whose that is. One that nobody waits for any more says nothing. */
function tellNote(payload: unknown, lane: Lane, noted: NoteTaker): void {
  const [call, ...packed] = payload as ToolNoteOf;
  const note = readNote(packed);
  const waiting = lane.waiting(call);
  if (waiting === undefined) return;
  if (waiting.method !== "tool") throw new TypeError("It has a note of a call that is no tool's.");
  noted((waiting.payload as HookLane["tool"]["call"])[3], note);
}

/** A session's state as of its last answer, unless its instance was made anew since. */
function followState(note: unknown, placed: Placed | undefined): void {
  const [, life, state] = note as StateNote;
  if (!(state instanceof Uint8Array)) throw new TypeError("It has a state that is no bytes.");
  if (placed?.slot.lives === life) placed.slot.follow({ state });
}

/** A report of a plugin's thread with nothing in it but texts of limited size. */
function readReport(report: unknown): FloatingNote {
  const { message, details, cause } = decodeError(report) as TroupeError;
  const { owner, at, count } = (details ?? {}) as Readonly<Record<string, unknown>>;
  const { name, module } = (owner ?? {}) as Readonly<Record<string, unknown>>;
  const text = (value: unknown) => (typeof value === "string" ? value.slice(0, MAX_NAME) : null);
  const read = {
    owner: text(name) === null ? null : { kind: "plugin", name: text(name), module: text(module) },
    at: text(at),
    count: Number(count),
  };
  return floatingRejection(message, read, cause);
}

const MAX_NAME = 1_000;

function noThread(name: string, ms: number): TroupeError {
  return workerLost(name, `had no thread for ${ms} ms; the call was not made`);
}
