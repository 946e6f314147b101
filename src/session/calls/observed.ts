import { type Activity, type AnyErrorCode, joinDeltas } from "../../kernel/index.js";

/** A session that does something for another one. */
export interface ChildPlace {
  readonly sessionId: string;
  /** 1: for the session that is watched; 2: for one of those. */
  readonly depth: number;
}

/** What can be seen of a session from outside, in the order it happened. */
export type ObservedEvent =
  | {
      readonly type: "activity";
      readonly turnId: string;
      readonly activity: Activity;
      /** Set where it happened in another session, in a turn that this session or one of its children started there. */
      readonly child?: ChildPlace;
    }
  /** A turn is stored. */
  | { readonly type: "committed"; readonly revision: number; readonly turnIndex: number }
  /** The turn that ran was refused: nothing of it is stored, and no `turn_finished` will come. */
  | { readonly type: "refused"; readonly turnId: string; readonly code: AnyErrorCode; readonly message: string };

/** A tool call that waits for its answer from outside. */
export type PendingCall = Omit<Extract<Activity, { type: "tool_call_pending" }>, "type">;

/** The turn that runs in a session. */
export interface TurnInProgress {
  readonly turnId: string;
  readonly turnIndex: number;
  /** When it began, in milliseconds since 1970; of one that was taken up again, when it began the first time. */
  readonly since: number;
  /** The text it was asked with, as hooks left it; empty while hooks that may replace it have not answered. */
  readonly input: string;
  /** Model calls that were answered. */
  readonly step: number;
  /** What of its answers was shown so far, block by block, with a blank line between. */
  readonly text: string;
  /** Calls that wait for an answer from outside. */
  readonly pending: readonly PendingCall[];
}

/** An event with its place: a reader that has seen it can go on behind it. */
export interface Observed {
  readonly cursor: string;
  readonly event: ObservedEvent | ObservationGap;
}

/** Events a reader asked for are no longer known. What follows is complete again. */
export interface ObservationGap {
  readonly type: "gap";
  /** `trimmed`: too long ago. `unavailable`: of another life of the session, or never. */
  readonly reason: "trimmed" | "unavailable";
}

/** Two neighbouring events as one, when they are deltas that can be joined. */
export function joinEvents(first: Observed["event"], second: Observed["event"]): ObservedEvent | undefined {
  if (first.type !== "activity" || second.type !== "activity") return undefined;
  if (first.turnId !== second.turnId || first.child?.sessionId !== second.child?.sessionId) return undefined;
  const activity = joinDeltas(first.activity, second.activity);
  return activity && { ...second, activity };
}
