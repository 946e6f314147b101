import {
  type Activity,
  type AttemptRecord,
  type BudgetPeriod,
  type CallSettings,
  type Cancellation,
  type InputItem,
  type Json,
  type JsonObject,
  type LedgerEntry,
  type ModelCallRecord,
  modelCallIdOf,
  NO_USAGE,
  type Part,
  type PromptLayer,
  type RequestedOutput,
  type SessionBudget,
  type SessionCreateRequest,
  type TenantSpent,
  type TurnResult,
  type Usage,
} from "../../kernel/index.js";
import type { HostMethod, ProtocolTurnOptions, SessionHandle } from "../../plugin/index.js";
import type { PackedNote } from "../../tools/index.js";
import type { TroupeEvent } from "../../trace/index.js";
import type { ErrorData } from "../../wire/index.js";
import type { Observed } from "./observed.js";
import type { Exchange, Inspected, PayerAnswer } from "./session-calls.js";
import type { HostName, TurnLimit } from "./worker-setup.js";

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
  /** How models are called, over what runtime, agent and session say. */
  readonly calling?: CallSettings;
  /** Laid over what host and session put into the prompt. */
  readonly prompt?: PromptLayer;
  readonly maxSteps?: number | null;
  /** Over the runtime's. */
  readonly limit?: Partial<TurnLimit>;
  /** What single plugins are told at the turn's beginning, by plugin id. */
  readonly pluginInputs?: Readonly<Record<string, Json>>;
  /** For the protocol, laid over the session's own. */
  readonly options?: ProtocolTurnOptions;
  readonly extension?: Json;
  /** The form the answer is to have. */
  readonly output?: RequestedOutput;
  /** A session with a budget started it, or one that runs for such a session: they are asked before each model call. */
  readonly limited?: true;
}

/** What the main thread says on the lane. Calls: `turn`, and those of `SESSION_CALLS` whose route it is. Notes: `listen`, `cancel`, `usage`, `toolNote`. */
export type TurnCall = readonly [
  key: number,
  sessionId: string,
  input: string,
  listen: boolean,
  extras?: TurnExtras | undefined,
  /** Asked before, of a worker that was lost. */
  again?: boolean,
];
export type CancelNote = readonly [key: number, cancellation: Cancellation];
/** What a session's child has used, counted in the session's ledger, and the call that ended with it, let in by `payersAdmit`. */
export type UsageNote = readonly [sessionId: string, entry: LedgerEntry | undefined, call?: string];

/** What a session worker says to the main thread on the lane. Calls: `tool`, `relay`, `secrets`. Notes: `activity`, `trace`, `observed`, `inspected`, `unasked`, `full`, `wanted`, `hostDown`, `floating`, `crashed`, `event`. */
export type TraceNote = TraceEvent;
/** The worker's heap stays full: how full, of 1. */
export type FullNote = number;

/** A plugin host is called and this worker has no lane to it. */
export interface WantedNote extends HostName {
  /** The last lane to the host that this worker had; -1: none yet. Who opens lanes may have sent the next one already. */
  readonly lane: number;
}
/** A lane to a plugin host was lost, or the host answers nothing: its thread must not go on. */
export interface HostDownNote extends HostName {
  readonly lane: number;
  /** Nobody needs the host any more: it was for one session, which is closed. */
  readonly released?: boolean;
  /** The session whose call held the thread, when it was one of this worker's. */
  readonly offender: string | undefined;
  /** Sessions of this worker that have offended lately, and those that use the group and have not. */
  readonly offenders: number;
  readonly innocent: number;
}
/** A promise of a model or an inline plugin was rejected and nobody handled it: a `floating_rejection`. */
export type FloatingNote = ErrorData;
/** The worker ends with an error that nobody caught: an `uncaught_exception`. The last thing it says. */
export type CrashedNote = ErrorData;
/** Something that whoever listens is told. Floods are joined before they cross. */
export type EventNote = TroupeEvent;
/** An event in the life of a session that somebody inspects. */
export type InspectedNote = Inspected;
export type ObservedNote = readonly [reader: number, observed: Observed];
export type ActivityNote = readonly [key: number, activity: Activity];
export type HostToolCall = readonly [
  toolName: string,
  args: unknown,
  facts: { sessionId: string; turnId: string; callId: string; asks?: true },
];

/** What a tool of the host's, or of a plugin's thread, says before it answers: for which call of the lane, and a packed note. */
export type ToolNoteOf = readonly [call: number, ...note: PackedNote];

/** Asks the host for the secrets of a tenant; never stored, never logged. */
export interface SecretsCall {
  readonly tenant: string | undefined;
}

interface StartedTurn {
  readonly from: string;
  readonly turnId: string;
}

/** A model call that a tenant is to pay. */
export interface TenantAsk {
  readonly tenant: string;
  /** The session whose turn it is of, or a completion beside it. */
  readonly id: string;
  /** What the turn has spent by now and is not stored. */
  readonly unstored: TenantSpent;
}

export type TenantAnswer =
  | { readonly kind: "unlimited" }
  | { readonly kind: "go"; readonly period: BudgetPeriod }
  /** `end`: of the period, in milliseconds since 1970. */
  | { readonly kind: "spent"; readonly why: string; readonly whenSpent: "stop" | "pause"; readonly end: number };

/** A model call of a turn that other sessions pay for. */
export interface PayersAsk {
  /** The session whose turn it is of. */
  readonly sessionId: string;
  /** The session's id, or that of a completion beside its turn. */
  readonly call: string;
}

/** A service about what a session has outside of its worker. */
export interface OutsideAsk {
  readonly sessionId: string;
  readonly pluginId: string;
  readonly method: HostMethod;
  readonly args: readonly unknown[];
  /** The same when the service is asked for again in the place of this one; undefined when nobody would. */
  readonly asked: string | undefined;
}

/**
 * What a session asks of other sessions, by way of the main thread: it knows where they are. `from` is the session that
 * asks; whether it may has been checked.
 */
interface RelayCalls {
  create: Exchange<SessionHandle, { from: string; request: SessionCreateRequest; budget?: SessionBudget }>;
  close: Exchange<void, { sessionId: string }>;
  /** `streams`: somebody will read its events. `limited`: who starts it has a budget, which pays. */
  startTurn: Exchange<
    { readonly turnId: string; readonly sessionId: string },
    {
      from: string;
      sessionId: string;
      text: string;
      turnId: string | undefined;
      key: string | undefined;
      streams: boolean;
      limited: boolean;
    }
  >;
  /** Of a turn the session itself started; `turn_unknown` for any other, and for one that was awaited before. */
  awaitTurn: Exchange<TurnResult, StartedTurn>;
  cancelTurn: Exchange<void, StartedTurn>;
  /** The next activities of a turn; null when it is over. */
  turnEvents: Exchange<readonly unknown[] | null, StartedTurn>;
  /** May a call of this tenant's session begin? Waits while calls under way may use up what is left. */
  tenantAdmit: Exchange<TenantAnswer, TenantAsk>;
  tenantPaid: Exchange<void, TenantAsk & { cost: TenantSpent }>;
  tenantEnded: Exchange<void, Pick<TenantAsk, "tenant" | "id">>;
  /** A turn is about to be stored: the period that it counts for, null for a tenant without a budget. */
  tenantCommits: Exchange<BudgetPeriod | null, Pick<TenantAsk, "tenant" | "id">>;
  /**
   * May the call begin, by the budgets of all for whom its turn runs? Waits while calls under way may use up what is left;
   * with `waits` also until a budget that is spent is raised.
   */
  payersAdmit: Exchange<PayerAnswer, PayersAsk & { waits: boolean }>;
  /** It has ended and is counted in its own session, or is not made. */
  payersLeft: Exchange<void, PayersAsk>;
  /** Processes and monitors: they are no session worker's. */
  outside: Exchange<unknown, OutsideAsk>;
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

/**
 * A turn's result on its way to the main thread. Cloning an object costs mostly its keys, and the calls of an ordinary
 * turn all have the same: they go as values, and only what is out of the ordinary goes as it is.
 */
export type TurnReply = Omit<TurnResult, "modelCallRecords"> & { readonly modelCallRecords: PackedCalls };

/** The records themselves, or the model and the route of all of them and then {@link WIDTH} numbers for each. */
type PackedCalls = readonly ModelCallRecord[] | readonly [model: string, route: string, ...calls: number[]];

const COUNTERS = Object.keys(NO_USAGE) as readonly (keyof Usage)[];
const FIRST_CALL = 2;
const COUNTED = 3;
const WIDTH = COUNTED + COUNTERS.length;
/** In the place of a first token that never came. */
const NONE = -1;

export function packResult(result: TurnResult): TurnReply {
  const { modelCallRecords: records } = result;
  const [first] = records;
  if (first === undefined || !records.every((record) => isOrdinary(record, first))) return result;
  const packed: [string, string, ...number[]] = [first.model, first.route];
  for (const { step, attempts } of records) {
    const [{ durationMs, firstTokenMs = NONE, usage }] = attempts as readonly [OrdinaryAttempt];
    packed.push(step, durationMs, firstTokenMs);
    for (const counter of COUNTERS) packed.push(usage[counter]);
  }
  return { ...result, modelCallRecords: packed };
}

export function unpackResult(reply: TurnReply): TurnResult {
  const { turnId, modelCallRecords: packed } = reply;
  if (!isPacked(packed)) return { ...reply, modelCallRecords: packed };
  const [model, route] = packed;
  const records: ModelCallRecord[] = [];
  for (let at = FIRST_CALL; at < packed.length; at += WIDTH) {
    const [step, durationMs, firstTokenMs] = packed.slice(at, at + COUNTED) as [number, number, number];
    const usage: { -readonly [C in keyof Usage]: Usage[C] } = { ...NO_USAGE };
    for (const [place, counter] of COUNTERS.entries()) usage[counter] = packed[at + COUNTED + place] as number;
    const first = firstTokenMs === NONE ? undefined : { firstTokenMs };
    const attempt: AttemptRecord = {
      attempt: 1,
      outcome: "completed",
      durationMs,
      outputStarted: true,
      ...first,
      usage,
    };
    records.push({ modelCallId: modelCallIdOf(turnId, step), step, model, route, attempts: [attempt] });
  }
  return { ...reply, modelCallRecords: records };
}

type OrdinaryAttempt = AttemptRecord & Required<Pick<AttemptRecord, "usage">>;

/** Answered at the first attempt, by the same model as the others, and nothing to say about it but what it cost. */
function isOrdinary({ model, route, attempts, replayDrops, misfit }: ModelCallRecord, first: ModelCallRecord): boolean {
  const [attempt] = attempts;
  return (
    attempts.length === 1 &&
    attempt?.outcome === "completed" &&
    attempt.usage !== undefined &&
    attempt.evidence === undefined &&
    attempt.usageEstimated === undefined &&
    replayDrops === undefined &&
    misfit === undefined &&
    model === first.model &&
    route === first.route
  );
}

function isPacked(calls: PackedCalls): calls is readonly [string, string, ...number[]] {
  return typeof calls[0] === "string";
}
