import type { Json, JsonObject, SessionCreateRequest, TurnResult } from "../kernel/index.js";
import type { HostMethod, SessionHandle } from "../plugin/index.js";

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

interface StartedTurn {
  readonly from: string;
  readonly turnId: string;
}

/**
 * What a session asks of other sessions, by way of the main thread: it knows where they are. `from` is the session that
 * asks; whether it may has been checked.
 */
export interface HostRelay {
  create(argument: { readonly from: string; readonly request: SessionCreateRequest }): Promise<SessionHandle>;
  close(argument: { readonly sessionId: string }): Promise<void>;
  startTurn(argument: {
    readonly from: string;
    readonly sessionId: string;
    readonly text: string;
    readonly turnId: string | undefined;
    /** Somebody will read its events. */
    readonly streams: boolean;
  }): Promise<{ readonly turnId: string; readonly sessionId: string }>;
  /** Of a turn the session itself started; `turn_unknown` for any other, and for one that was awaited before. */
  awaitTurn(argument: StartedTurn): Promise<TurnResult>;
  cancelTurn(argument: StartedTurn): Promise<void>;
  /** The next activities of a turn; null when it is over. */
  turnEvents(argument: StartedTurn): Promise<readonly unknown[] | null>;
  /** A service of another session, served where that session is. */
  ask(argument: {
    readonly sessionId: string;
    readonly pluginId: string;
    readonly method: HostMethod;
    readonly args: readonly unknown[];
  }): Promise<unknown>;
}
export type HostRelayMethod = keyof HostRelay;
