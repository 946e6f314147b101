import type { Activity, InputItem, Json, LedgerEntry, Part, PromptLayer } from "../../kernel/index.js";
import type { ProtocolTurnOptions } from "../../plugin/index.js";
import type { TraceEvent } from "./host-relay.js";
import type { Observed } from "./observed.js";
import type { Inspected } from "./session-facts.js";

/** What a turn brings along beside its text. */
export interface TurnExtras {
  /** The input, when it is more than a text. */
  readonly items?: readonly InputItem[];
  /** The same, already stored: what waited for the turn. */
  readonly parts?: readonly Part[];
  /** Why the input is of no use. */
  readonly invalid?: string;
  /** The caller's own name for the turn. */
  readonly key?: string;
  /** Another model than the session's. */
  readonly model?: string;
  /** Laid over what host and session put into the prompt. */
  readonly prompt?: PromptLayer;
  readonly maxSteps?: number | null;
  /** What single plugins are told at the turn's beginning, by plugin id. */
  readonly pluginInputs?: Readonly<Record<string, Json>>;
  /** For the protocol, laid over the session's own. */
  readonly options?: ProtocolTurnOptions;
  readonly extension?: Json;
}

/** What the main thread says on the lane. Calls: `turn`, and those of `SESSION_CALLS` whose route it is. Notes: `listen`, `cancel`, `usage`. */
export type TurnCall = readonly [
  key: number,
  sessionId: string,
  input: string,
  listen: boolean,
  extras?: TurnExtras | undefined,
  /** Asked before, of a worker that was lost. */
  again?: boolean,
];
export type CancelNote = readonly [key: number, reason: string];
/** What a session's child has used; counted in the session's ledger. */
export type UsageNote = readonly [sessionId: string, entry: LedgerEntry];

/** What a session worker says to the main thread on the lane. Calls: `tool`, `relay`. Notes: `activity`, `trace`, `observed`, `inspected`, `full`. */
export type TraceNote = TraceEvent;
/** The worker's heap stays full: how full, of 1. */
export type FullNote = number;
/** An event in the life of a session that somebody inspects. */
export type InspectedNote = Inspected;
export type ObservedNote = readonly [reader: number, observed: Observed];
export type ActivityNote = readonly [key: number, activity: Activity];
export type HostToolCall = readonly [
  toolName: string,
  args: unknown,
  facts: { sessionId: string; turnId: string; callId: string },
];
