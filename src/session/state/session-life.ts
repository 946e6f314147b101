import { type LedgerEntry, TroupeError, type TurnState } from "../../kernel/index.js";
import type { LeftBehind, TurnJournal, UnfinishedTurn } from "../journal/index.js";
import type { SessionHooks } from "../plugins/index.js";
import type { SessionProtocol } from "../protocol/index.js";
import type { StoredSession } from "../stored/index.js";

/** Where a session is in its turns. Its statechart has this in its context, and changes it by {@link lifeAfter} alone. */
export type Life =
  | { readonly kind: "idle" }
  /** A crash left a turn behind that is to be taken up again. */
  | { readonly kind: "unfinished"; readonly turn: UnfinishedTurn }
  | TurnLife
  /** The turn was left in the middle, as its journal has it: the session is closing. */
  | { readonly kind: "suspended" }
  /** The store may hold something else than the memory: the next message opens the session anew. */
  | { readonly kind: "stale"; readonly error: TroupeError; readonly turn: TurnLife | undefined };

type TurnLife =
  | { readonly kind: "running"; readonly turnId: string }
  /** The turn is stored; its last hooks are still to be told. */
  | { readonly kind: "told"; readonly turnId: string };

export type LifeEvent =
  | { readonly type: "turn.found"; readonly turn: UnfinishedTurn }
  | { readonly type: "turn.begun"; readonly turnId: string }
  | { readonly type: "turn.stored" }
  | { readonly type: "turn.ended" }
  | { readonly type: "turn.suspended" }
  | { readonly type: "session.stale"; readonly error: TroupeError };

export const IDLE: Life = { kind: "idle" };

/** A stale session stays stale whatever its turn does, and a suspended one stays suspended: both are opened anew. */
export function lifeAfter(life: Life, event: LifeEvent): Life {
  switch (event.type) {
    case "turn.found":
      return life.kind === "idle" ? { kind: "unfinished", turn: event.turn } : life;
    case "turn.begun":
      return withTurn(life, { kind: "running", turnId: event.turnId });
    case "turn.stored": {
      const turn = turnOf(life);
      return turn === undefined ? life : withTurn(life, { kind: "told", turnId: turn.turnId });
    }
    case "turn.ended":
      return turnOf(life) === undefined ? life : withTurn(life, undefined);
    case "turn.suspended":
      return life.kind === "stale" ? life : { kind: "suspended" };
    case "session.stale":
      if (life.kind === "suspended") return life;
      // A store that is lost says more than a session that is, and that more than a write that failed, whichever was first.
      if (life.kind === "stale" && rankOf(life.error) >= rankOf(event.error)) return life;
      return { kind: "stale", error: event.error, turn: turnOf(life) };
  }
}

const RANKED: readonly string[] = ["session_moved", "store_lost"];

function rankOf({ code }: TroupeError): number {
  return RANKED.indexOf(code);
}

function withTurn(life: Life, turn: TurnLife | undefined): Life {
  if (life.kind === "suspended") return life;
  return life.kind === "stale" ? { ...life, turn } : (turn ?? IDLE);
}

/** The turn under way, also when the session became stale under it. */
export function turnOf(life: Life): TurnLife | undefined {
  if (life.kind === "stale") return life.turn;
  return life.kind === "running" || life.kind === "told" ? life : undefined;
}

/** No running turn is about to store what changed. */
export function betweenTurns(life: Life): boolean {
  return turnOf(life)?.kind !== "running";
}

/** No turn is still to be stored or to be taken up, and what is in memory may be stored. */
export function mayPark({ kind }: Life): boolean {
  return RESTING[kind] !== "no";
}

/**
 * What becomes of changes in memory. `settles`: they are stored, because no turn will and nothing opens the session anew.
 * `as stored`: they are given up, and the session may leave memory. `no`: a turn or the next opening decides.
 */
const RESTING: Readonly<Record<Life["kind"], "settles" | "as stored" | "no">> = {
  idle: "settles",
  told: "settles",
  suspended: "as stored",
  unfinished: "no",
  running: "no",
  stale: "no",
};

/** A turn as the session knows it while it runs. */
export interface RunningTurn {
  readonly turnId: string;
  /** What the turn has added. */
  readonly state: Pick<TurnState, "phase" | "messages" | "usage" | "spent" | "step">;
  /** The text it is asked with. Hooks that may replace it have not answered before the phase that asks them is over. */
  readonly input: string;
  readonly replacesInput: boolean;
  /** See {@link TurnExtras.limited}. */
  readonly isLimited: boolean;
  /** What it had added before it was taken up. */
  readonly left: LeftBehind | undefined;
  readonly tellUsage: (entry: LedgerEntry) => void;
  readonly journal: TurnJournal;
}

/** The statechart a session lives in, as the session sees it. */
export interface LifeChart {
  readonly life: () => Life;
  readonly send: (event: LifeEvent) => void;
}

/** A session's hand on its statechart, and the turn that runs: what that offers is no data, and so not in the chart. */
export class SessionLife {
  readonly #chart: LifeChart;
  #turn: RunningTurn | undefined;

  constructor(chart: LifeChart) {
    this.#chart = chart;
  }

  get now(): Life {
    return this.#chart.life();
  }

  get isStale(): boolean {
    return this.now.kind === "stale";
  }

  get isSuspended(): boolean {
    return this.now.kind === "suspended";
  }

  /** A turn a crash left behind, until it is taken up again. */
  get unfinished(): UnfinishedTurn | undefined {
    const life = this.now;
    return life.kind === "unfinished" ? life.turn : undefined;
  }

  /** The turn that runs, until its last hooks were told of it. */
  get turn(): RunningTurn | undefined {
    return turnOf(this.now) === undefined ? undefined : this.#turn;
  }

  /** The turn that runs and is not stored yet. */
  get unstoredTurn(): RunningTurn | undefined {
    return turnOf(this.now)?.kind === "running" ? this.#turn : undefined;
  }

  found(turn: UnfinishedTurn): void {
    this.#chart.send({ type: "turn.found", turn });
  }

  begin(turn: RunningTurn): void {
    this.#turn = turn;
    this.#chart.send({ type: "turn.begun", turnId: turn.turnId });
  }

  turnStored(): void {
    this.#chart.send({ type: "turn.stored" });
  }

  /** A turn that is stored stays told of until its work is done, which the chart knows by itself. */
  end(): void {
    const unstored = this.unstoredTurn !== undefined;
    this.#turn = undefined;
    if (unstored) this.#chart.send({ type: "turn.ended" });
  }

  suspend(): void {
    this.#chart.send({ type: "turn.suspended" });
  }

  /**
   * The next message opens the session anew; it is refused when the store is lost for good, or while somebody else has the
   * session.
   */
  giveUp(error?: unknown): void {
    const lost = error instanceof TroupeError && rankOf(error) >= 0 ? error : undefined;
    const stale = new TroupeError("session_stale", "The session must be opened again.", { retryable: true });
    this.#chart.send({ type: "session.stale", error: lost ?? stale });
  }
}

/** What of a session is looked at to store what its turns did not. */
interface SavedSession {
  readonly hooks: Pick<SessionHooks, "capture" | "needCapture">;
  readonly protocol: Pick<SessionProtocol, "captureExecution" | "codeExecutor">;
  readonly life: Pick<SessionLife, "now">;
  readonly stored: Pick<StoredSession, "head" | "dirty" | "store">;
}

/** Stores state that changed since the last commit; a session that never had a turn stays unstored unless `always`. */
export async function saveSession(
  { hooks, protocol, life, stored }: SavedSession,
  { always = false, unless = never }: { readonly always?: boolean; readonly unless?: () => boolean } = {},
): Promise<void> {
  // One plugin whose state cannot be captured does not cost the others theirs.
  const captures = await Promise.allSettled([hooks.capture(), protocol.captureExecution()]);
  // A turn that began meanwhile stores it itself.
  if (always || stored.head !== undefined) await stored.store("save", () => !betweenTurns(life.now) || unless());
  for (const captured of captures) if (captured.status === "rejected") throw captured.reason;
}

/** Something may have changed behind the last write that no turn is about to store. */
export function isUnsaved({ hooks, protocol, life, stored }: SavedSession): boolean {
  if (RESTING[life.now.kind] !== "settles" || stored.head === undefined) return false;
  return hooks.needCapture() || stored.dirty || protocol.codeExecutor !== undefined;
}

/**
 * Stores what hooks changed behind the last write. Whatever was asked of a session, its answer finds everything stored:
 * what is on the disk does not depend on when a session is parked, and a crash right after takes nothing back.
 * `unless`: somebody else is about to.
 */
export async function settleSession(session: SavedSession, unless = never): Promise<void> {
  if (isUnsaved(session) && !unless()) await saveSession(session, { unless });
}

const never = () => false;
