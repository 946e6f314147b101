import type { Json, JsonObject, SessionCreateRequest, TurnResult } from "../../kernel/index.js";
import type { HostMethod, SessionHandle } from "../../plugin/index.js";

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

/** The types of a call that crosses threads. */
export interface Exchange<Answer, Argument extends object> {
  readonly answer: Answer;
  readonly argument: Readonly<Argument>;
}

interface StartedTurn {
  readonly from: string;
  readonly turnId: string;
}

/**
 * What a session asks of other sessions, by way of the main thread: it knows where they are. `from` is the session that
 * asks; whether it may has been checked.
 */
export interface RelayCalls {
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
