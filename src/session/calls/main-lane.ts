import {
  type Activity,
  type AttemptRecord,
  type InputItem,
  type Json,
  type JsonObject,
  joinDeltas,
  type LedgerEntry,
  type ModelCallRecord,
  modelCallIdOf,
  NO_USAGE,
  type Part,
  type PromptLayer,
  type SessionCreateRequest,
  type TurnResult,
  type Usage,
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

/** What a session worker says to the main thread on the lane. Calls: `tool`, `relay`. Notes: `activity`, `trace`, `observed`, `inspected`, `full`, `wanted`. */
export type TraceNote = TraceEvent;
/** The worker's heap stays full: how full, of 1. */
export type FullNote = number;

/** A plugin on a thread of its own is called and this worker has no lane to it: the plugin's place in the options. */
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

/**
 * A turn's result on its way to the main thread. Cloning an object costs mostly its keys, and the calls of an ordinary
 * turn all have the same: they go as values, and only what is out of the ordinary goes as it is.
 */
export type TurnReply = Omit<TurnResult, "modelCallRecords"> & { readonly modelCallRecords: PackedCalls };

/** The records themselves, or the model and the route of all of them and then {@link WIDTH} numbers for each. */
type PackedCalls = readonly ModelCallRecord[] | readonly [model: string, route: string, ...calls: number[]];

const COUNTERS = Object.keys(NO_USAGE) as readonly (keyof Usage)[];
const FIRST_CALL = 2;
const WIDTH = 2 + COUNTERS.length;

export function packResult(result: TurnResult): TurnReply {
  const { modelCallRecords: records } = result;
  const [first] = records;
  if (first === undefined || !records.every((record) => isOrdinary(record, first))) return result;
  const packed: [string, string, ...number[]] = [first.model, first.route];
  for (const { step, attempts } of records) {
    const [{ durationMs, usage }] = attempts as readonly [OrdinaryAttempt];
    packed.push(step, durationMs, ...COUNTERS.map((counter) => usage[counter]));
  }
  return { ...result, modelCallRecords: packed };
}

export function unpackResult(reply: TurnReply): TurnResult {
  const { turnId, modelCallRecords: packed } = reply;
  if (!isPacked(packed)) return { ...reply, modelCallRecords: packed };
  const [model, route] = packed;
  const records: ModelCallRecord[] = [];
  for (let at = FIRST_CALL; at < packed.length; at += WIDTH) {
    const [step, durationMs, ...counted] = packed.slice(at, at + WIDTH) as [number, number, ...number[]];
    const usage = Object.fromEntries(COUNTERS.map((counter, place) => [counter, counted[place]])) as unknown as Usage;
    const attempts: readonly AttemptRecord[] = [
      { attempt: 1, outcome: "completed", durationMs, outputStarted: true, usage },
    ];
    records.push({ modelCallId: modelCallIdOf(turnId, step), step, model, route, attempts });
  }
  return { ...reply, modelCallRecords: records };
}

type OrdinaryAttempt = AttemptRecord & Required<Pick<AttemptRecord, "usage">>;

/** Answered at the first attempt, by the same model as the others, and nothing to say about it but what it cost. */
function isOrdinary({ model, route, attempts, replayDrops }: ModelCallRecord, first: ModelCallRecord): boolean {
  const [attempt] = attempts;
  return (
    attempts.length === 1 &&
    attempt?.outcome === "completed" &&
    attempt.usage !== undefined &&
    attempt.evidence === undefined &&
    replayDrops === undefined &&
    model === first.model &&
    route === first.route
  );
}

function isPacked(calls: PackedCalls): calls is readonly [string, string, ...number[]] {
  return typeof calls[0] === "string";
}
