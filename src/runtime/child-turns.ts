import {
  type Activity,
  addUsage,
  NO_USAGE,
  subtractUsage,
  TroupeError,
  type TurnResult,
  type Usage,
} from "../kernel/index.js";
import { joinDeltas } from "../session/index.js";
import type { Turn } from "./turn.js";

/** Activities kept for a reader of a turn's events. */
const KEPT = 1_024;
/** Ended turns whose result nobody has fetched yet. */
const MAX_ENDED = 256;

interface ChildTurn {
  readonly turnId: string;
  readonly sessionId: string;
  readonly turn: Turn;
  /** Resolves when the turn is over and its usage was told; never rejects. */
  readonly over: Promise<void>;
  readonly kept: Activity[];
  missed: number;
  ended: boolean;
  wake: () => void;
}

export interface ChildTurnStart {
  readonly sessionId: string;
  readonly turnId: string | undefined;
  readonly start: () => Turn;
  /** Told as the turn spends, and at the end what was not told yet. */
  readonly onUsage: (usage: Usage) => void;
}

/** Turns that sessions started in other sessions. One at a time in each; a result can be fetched once. */
export class ChildTurns {
  readonly #turns = new Map<string, ChildTurn>();
  #next = 1;

  start({ sessionId, turnId = `${sessionId}#${this.#next++}`, start, onUsage }: ChildTurnStart): string {
    for (const other of this.#turns.values()) {
      if (other.turnId === turnId && !other.ended)
        throw new TroupeError("turn_exists", `There is a turn ${turnId} already.`, { details: { turnId } });
      if (other.sessionId === sessionId && !other.ended) {
        throw new TroupeError(
          "turn_running",
          `Session ${sessionId} has a turn running that was started for a session.`,
          {
            retryable: true,
            details: { sessionId, turnId: other.turnId },
          },
        );
      }
    }
    const turn = start();
    let over: () => void = ignore;
    const child: ChildTurn = {
      turnId,
      sessionId,
      turn,
      over: new Promise<void>((resolve) => {
        over = resolve;
      }),
      kept: [],
      missed: 0,
      ended: false,
      wake: ignore,
    };
    this.#turns.set(turnId, child);
    this.#follow(child, onUsage).then(over);
    return turnId;
  }

  async result(turnId: string): Promise<TurnResult> {
    const child = this.#find(turnId);
    await child.over;
    this.#turns.delete(turnId);
    return child.turn;
  }

  cancel(turnId: string): void {
    this.#find(turnId).turn.cancel("The session that started the turn cancelled it.");
  }

  /** What happened since the last call; waits for something, null when the turn is over. */
  async events(turnId: string): Promise<readonly Activity[] | null> {
    // Fetched with its result, it is over as well.
    const child = this.#turns.get(turnId);
    if (child === undefined) return null;
    if (child.kept.length === 0 && !child.ended) {
      await new Promise<void>((resolve) => {
        child.wake = resolve;
      });
    }
    const batch: Activity[] = child.missed > 0 ? [{ type: "gap", missed: child.missed }] : [];
    child.missed = 0;
    batch.push(...child.kept.splice(0));
    return batch.length === 0 ? null : batch;
  }

  #find(turnId: string): ChildTurn {
    const child = this.#turns.get(turnId);
    if (child !== undefined) return child;
    throw new TroupeError("turn_unknown", `There is no turn ${turnId}, or its result was fetched already.`);
  }

  /** Reads the turn to its end. What it uses is told once: live, and the rest when the result is known. */
  async #follow(child: ChildTurn, onUsage: (usage: Usage) => void): Promise<void> {
    let told = NO_USAGE;
    try {
      for await (const activity of child.turn) {
        if (activity.type === "model_call_finished") {
          told = addUsage(told, activity.usage);
          onUsage(activity.usage);
        }
        if (activity.type === "turn_finished") {
          const rest = subtractUsage(activity.result.usage, told);
          if (Object.values(rest).some((count) => count > 0)) onUsage(rest);
        }
        keep(child, activity);
      }
    } catch {
      // Whoever fetches the result gets the error.
    }
    child.ended = true;
    child.wake();
    this.#forgetOldest();
  }

  #forgetOldest(): void {
    const ended = [...this.#turns.values()].filter((child) => child.ended);
    for (const { turnId } of ended.slice(0, Math.max(0, ended.length - MAX_ENDED))) this.#turns.delete(turnId);
  }
}

function keep(child: ChildTurn, activity: Activity): void {
  const last = child.kept[child.kept.length - 1];
  const joined = last === undefined ? undefined : joinDeltas(last, activity);
  if (joined !== undefined) child.kept[child.kept.length - 1] = joined;
  else child.kept.push(activity);
  if (child.kept.length > KEPT) {
    child.kept.shift();
    child.missed++;
  }
  child.wake();
}

function ignore(): void {}
