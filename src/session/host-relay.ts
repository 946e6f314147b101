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
  }): Promise<{ readonly turnId: string; readonly sessionId: string }>;
  awaitTurn(argument: { readonly turnId: string }): Promise<TurnResult>;
  cancelTurn(argument: { readonly turnId: string }): Promise<void>;
  /** The next activities of a turn; null when it is over. */
  turnEvents(argument: { readonly turnId: string }): Promise<readonly unknown[] | null>;
  /** A service of another session, served where that session is. */
  ask(argument: {
    readonly sessionId: string;
    readonly pluginId: string;
    readonly method: HostMethod;
    readonly args: readonly unknown[];
  }): Promise<unknown>;
}
export type HostRelayMethod = keyof HostRelay;
