import { type Activity, joinDeltas } from "../../kernel/index.js";

/** What can be seen of a session from outside, in the order it happened. */
export type ObservedEvent =
  | { readonly type: "activity"; readonly turnId: string; readonly activity: Activity }
  /** A turn is stored. */
  | { readonly type: "committed"; readonly revision: number; readonly turnIndex: number };

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
  const activity = joinDeltas(first.activity, second.activity);
  return activity && { ...second, activity };
}
