import { deferred, ignore } from "../../async/index.js";
import {
  type Activity,
  ActivityBuffer,
  activitiesUpTo,
  addEntry,
  type Ledger,
  ledgerSince,
  type ModelCallRecord,
  OWN_SOURCE,
  TroupeError,
  type TurnResult,
  turnRunning,
  turnUnknown,
  UNKNOWN_MODEL,
  type Usage,
  usageOfCall,
} from "../../kernel/index.js";
import type { Turn } from "./turns.js";

/** Activities kept for a reader of a turn's events. */
const KEPT = activitiesUpTo(1_024);
/** Ended turns whose result or events nobody has fetched yet. */
const MAX_ENDED = 256;
/** Turns with a key that are known to be paid for; of one that is not, or of an earlier process, all is billed again. */
const MAX_PAID = 10_000;

/** A turn as the session that started it knows it: two sessions may use the same id. */
interface ChildTurnRef {
  readonly from: string;
  readonly turnId: string;
}

interface ChildTurn extends ChildTurnRef {
  readonly sessionId: string;
  readonly key: string | undefined;
  readonly turn: Turn;
  /** Who started it has a budget, or runs for a session that has one. */
  readonly limited: boolean;
  /** Model calls that whoever started it has let in, and that have not ended. */
  readonly calls: Set<string>;
  /** Resolves when the turn is over and its usage was told; never rejects. */
  readonly over: Promise<void>;
  readonly bill: Bill;
  readonly kept: ActivityBuffer<Activity>;
  /** Readers that wait for something to happen. */
  readonly waiting: (() => void)[];
  ended: boolean;
  /** Its result was fetched; its events may still be read. */
  fetched: boolean;
  /** Its events have been read to the end, or nobody will read them. */
  read: boolean;
}

interface ChildTurnStart {
  /** The session that starts it. */
  readonly from: string;
  readonly sessionId: string;
  readonly turnId: string | undefined;
  /** Whoever starts it under the key again means the same turn. */
  readonly key?: string | undefined;
  /** Keep its events for somebody to read. */
  readonly streams: boolean;
  /** Who starts it has a budget. */
  readonly limited: boolean;
  /** `limited`: it is asked about before its model calls. */
  readonly start: (limited: boolean) => Turn;
  /** Told of what happens in the turn. */
  readonly onActivity?: (activity: Activity) => void;
  /** Told as the turn spends, whatever it spends on, and at the end what was not told yet. */
  readonly onUsage: OnUsage;
  /** A model call that whoever starts it let in has ended. */
  readonly onCallEnded: (call: string) => void;
}

type OnUsage = (model: string, usage: Usage) => void;

/** Turns that sessions started in other sessions. One at a time in each; a result can be fetched once. */
export class ChildTurns {
  readonly #turns = new Map<string, ChildTurn>();
  /** Turns with a key that were billed: whoever asks for one again pays nothing. */
  readonly #paid = new Set<string>();
  #next = 1;

  start({
    from,
    sessionId,
    key,
    turnId = `${sessionId}#${this.#next++}`,
    streams,
    limited: hasBudget,
    start,
    onActivity = ignore,
    onUsage,
    onCallEnded,
  }: ChildTurnStart): string {
    for (const other of this.#turns.values()) {
      if (other.ended) continue;
      if (key !== undefined && other.key === key && other.from === from && other.sessionId === sessionId) {
        // The call that asked for it was lost with its worker, and what that was told with it.
        other.bill.again();
        return other.turnId;
      }
      if (other.from === from && other.turnId === turnId)
        throw new TroupeError("turn_exists", `There is a turn ${turnId} already.`, { details: { turnId } });
      if (other.sessionId === sessionId) {
        throw turnRunning(sessionId, "has a turn running that was started for a session");
      }
    }
    const limited = hasBudget || this.#runningIn(from)?.limited === true;
    const turn = start(limited);
    const over = deferred();
    const name = key && JSON.stringify([from, sessionId, key]);
    const bill = new Bill(onUsage, { isPaid: name !== undefined && this.#paid.has(name) });
    const child: ChildTurn = {
      from,
      turnId,
      sessionId,
      key,
      turn,
      limited,
      calls: new Set(),
      over: over.promise,
      bill,
      kept: new ActivityBuffer(KEPT),
      waiting: [],
      ended: false,
      fetched: false,
      read: !streams,
    };
    // An older turn of this name has ended: behind the others again, it is not the next to be forgotten.
    this.#turns.delete(keyOf(child));
    this.#turns.set(keyOf(child), child);
    this.#follow(child, { onActivity, onCallEnded })
      .then(() => name !== undefined && this.#isPaid(name))
      .then(() => over.resolve());
    return turnId;
  }

  /** Who has a turn run for it there, the nearest first: the session that started it, whoever started that one's, and so on. */
  lineOf(sessionId: string): readonly string[] {
    return this.#lineFrom(sessionId).map(({ from }) => from);
  }

  /** The same, as far as somebody's budget is to be asked: the turns by which a session's calls are theirs. */
  limiting(sessionId: string): readonly Pick<ChildTurn, "from" | "calls" | "ended">[] {
    return this.#lineFrom(sessionId).filter(({ limited }) => limited);
  }

  #lineFrom(sessionId: string): readonly ChildTurn[] {
    const line: ChildTurn[] = [];
    for (
      let turn = this.#runningIn(sessionId);
      turn !== undefined && !line.includes(turn);
      turn = this.#runningIn(turn.from)
    )
      line.push(turn);
    return line;
  }

  /** The sessions in which such turns run. */
  get sessions(): string[] {
    return [...this.#turns.values()].flatMap(({ ended, sessionId }) => (ended ? [] : [sessionId]));
  }

  #runningIn(sessionId: string): ChildTurn | undefined {
    for (const turn of this.#turns.values()) if (!turn.ended && turn.sessionId === sessionId) return turn;
    return undefined;
  }

  async result(ref: ChildTurnRef): Promise<TurnResult> {
    const child = this.#find(ref);
    await child.over;
    child.fetched = true;
    this.#forgetIfDone(child);
    return child.turn;
  }

  cancel(ref: ChildTurnRef): void {
    this.#find(ref).turn.cancel("The session that started the turn cancelled it.");
  }

  /** What happened since the last call; waits for something, null when the turn is over. */
  async events(ref: ChildTurnRef): Promise<readonly Activity[] | null> {
    const child = this.#turns.get(keyOf(ref));
    if (child === undefined) return null;
    while (child.kept.entries.length === 0 && !child.ended) {
      await new Promise<void>((resolve) => child.waiting.push(resolve));
    }
    const batch = child.kept.takeAll();
    if (batch.length > 0) return batch;
    child.read = true;
    this.#forgetIfDone(child);
    return null;
  }

  #isPaid(name: string): void {
    this.#paid.add(name);
    for (const oldest of this.#paid) {
      if (this.#paid.size <= MAX_PAID) return;
      this.#paid.delete(oldest);
    }
  }

  #find(ref: ChildTurnRef): ChildTurn {
    const child = this.#turns.get(keyOf(ref));
    if (child !== undefined && !child.fetched) return child;
    throw turnUnknown(`Session ${ref.from} has started no turn ${ref.turnId}, or has fetched its result already.`);
  }

  /** Reads the turn to its end. */
  async #follow(
    child: ChildTurn,
    { onActivity, onCallEnded }: Required<Pick<ChildTurnStart, "onActivity" | "onCallEnded">>,
  ): Promise<void> {
    try {
      for await (const activity of child.turn) {
        child.bill.saw(activity);
        // Behind what it cost.
        if (endsCall(activity) && child.calls.delete(child.sessionId)) onCallEnded(child.sessionId);
        onActivity(activity);
        if (child.read) continue;
        child.kept.push(activity);
        wakeReaders(child);
      }
    } catch {
      // Whoever fetches the result gets the error.
    }
    child.ended = true;
    for (const call of child.calls) onCallEnded(call);
    child.calls.clear();
    wakeReaders(child);
    this.#forgetOldest();
  }

  #forgetIfDone(child: ChildTurn): void {
    const key = keyOf(child);
    // A newer turn may have its name by now.
    if (child.fetched && child.read && this.#turns.get(key) === child) this.#turns.delete(key);
  }

  #forgetOldest(): void {
    const ended = [...this.#turns].filter(([, child]) => child.ended);
    for (const [key] of ended.slice(0, Math.max(0, ended.length - MAX_ENDED))) this.#turns.delete(key);
  }
}

/** What a turn spends, told once: as it is spent, and when the result is known what had not been seen. */
class Bill {
  readonly #tell: OnUsage;
  /** For the turn's own model calls. */
  #told: Ledger = [];
  /** All that was told. */
  #all: Ledger = [];
  /** Its result is asked for again by its key, and was billed. */
  readonly #isPaid: boolean;

  constructor(tell: OnUsage, { isPaid }: { readonly isPaid: boolean }) {
    this.#isPaid = isPaid;
    this.#tell = (model, usage) => {
      this.#all = addEntry(this.#all, { source: OWN_SOURCE, model, usage });
      tell(model, usage);
    };
  }

  /** Tells all of it once more. */
  again(): void {
    const told = this.#all;
    this.#all = [];
    for (const { model, usage } of told) this.#tell(model, usage);
  }

  saw(activity: Activity): void {
    switch (activity.type) {
      case "model_call_finished":
      case "model_call_failed": {
        const { usage, record } = activity;
        if (usage === undefined) return;
        const entry = { source: OWN_SOURCE, model: record?.model ?? UNKNOWN_MODEL, usage };
        this.#told = addEntry(this.#told, entry);
        this.#tell(entry.model, usage);
        return;
      }
      // Its direct completions and its own children: spent for the turn, and so for whoever started it.
      case "usage":
        this.#tell(activity.model, activity.usage);
        return;
      case "turn_finished":
        if (this.#isPaid) return;
        for (const { model, usage } of ledgerSince(ledgerOfCalls(activity.result.modelCallRecords), this.#told))
          this.#tell(model, usage);
        return;
    }
  }
}

function endsCall({ type }: Activity): boolean {
  return type === "model_call_finished" || type === "model_call_failed";
}

function ledgerOfCalls(records: readonly ModelCallRecord[]): Ledger {
  return records.reduce<Ledger>((ledger, record) => {
    const usage = usageOfCall(record);
    return usage === undefined ? ledger : addEntry(ledger, { source: OWN_SOURCE, model: record.model, usage });
  }, []);
}

function keyOf({ from, turnId }: ChildTurnRef): string {
  return JSON.stringify([from, turnId]);
}

function wakeReaders({ waiting }: ChildTurn): void {
  for (const wake of waiting.splice(0)) wake();
}
