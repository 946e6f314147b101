import {
  type Activity,
  type InputItem,
  type Json,
  type JsonObject,
  joinDeltas,
  type LedgerEntry,
  type Part,
  type PromptLayer,
  type SessionCreateRequest,
  type TurnResult,
} from "../../kernel/index.js";
import type { HostMethod, ProtocolTurnOptions, SessionHandle } from "../../plugin/index.js";
import type { Exchange, Inspected } from "./session-calls.js";

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

/** A lazy plugin that is called and may have no thread, by its place in the options. */
export type WantedNote = number;
/** An event in the life of a session that somebody inspects. */
export type InspectedNote = Inspected;
export type ObservedNote = readonly [reader: number, observed: Observed];
export type ActivityNote = readonly [key: number, activity: Activity];
export type HostToolCall = readonly [
  toolName: string,
  args: unknown,
  facts: { sessionId: string; turnId: string; callId: string },
];

interface StartedTurn {
  readonly from: string;
  readonly turnId: string;
}

/**
 * What a session asks of other sessions, by way of the main thread: it knows where they are. `from` is the session that
 * asks; whether it may has been checked.
 */
interface RelayCalls {
  create: Exchange<SessionHandle, { from: string; request: SessionCreateRequest }>;
  close: Exchange<void, { sessionId: string }>;
  /** `streams`: somebody will read its events. */
  startTurn: Exchange<
    { readonly turnId: string; readonly sessionId: string },
    { from: string; sessionId: string; text: string; turnId: string | undefined; streams: boolean }
  >;
  /** Of a turn the session itself started; `turn_unknown` for any other, and for one that was awaited before. */
  awaitTurn: Exchange<TurnResult, StartedTurn>;
  cancelTurn: Exchange<void, StartedTurn>;
  /** The next activities of a turn; null when it is over. */
  turnEvents: Exchange<readonly unknown[] | null, StartedTurn>;
  /** A service of another session, served where that session is. */
  ask: Exchange<unknown, { sessionId: string; pluginId: string; method: HostMethod; args: readonly unknown[] }>;
}
type RelayMethod = keyof RelayCalls;

/** The asking side of {@link RelayCalls}. */
export type HostRelay = <M extends RelayMethod>(
  method: M,
  argument: RelayCalls[M]["argument"],
) => Promise<RelayCalls[M]["answer"]>;

/** A relayed call as it crosses. */
export type RelayCall<M extends RelayMethod = RelayMethod> = {
  [N in M]: readonly [method: N, argument: RelayCalls[N]["argument"]];
}[M];

/** The answering side. */
export type RelayAnswers = {
  readonly [M in RelayMethod]: (argument: RelayCalls[M]["argument"]) => Promise<RelayCalls[M]["answer"]>;
};

/** Something a plugin wants to have noted, as the host gets it. */
export interface TraceEvent {
  /** `plugin.<id>.<name>` */
  readonly name: string;
  readonly payload: Json;
  readonly context: JsonObject;
}

/** Takes traces; nobody listening costs nothing. */
export interface TraceSink {
  readonly listening: boolean;
  emit(event: TraceEvent): void;
}

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
