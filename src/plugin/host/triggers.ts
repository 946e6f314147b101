import type { Json, JsonObject, StoredSubscription, SubscribeRequest } from "../../kernel/index.js";

/** An event of the outside world that a plugin of the runtime declares. */
export interface TriggerView {
  /** What it goes by: `alias.event`. */
  readonly source: string;
  readonly resourceType: string;
  readonly alias: string;
  readonly event: string;
  readonly payloadSchema: JsonObject;
}

/** What came of an event. */
export interface TriggerReceipt {
  /** How many subscriptions it matched: so many sessions are told. */
  readonly matched: number;
  /** It had come under this key before; nobody is told again. */
  readonly replayed: boolean;
}

export interface TriggerOptions {
  /** The caller's own name for the event: sent twice, it is told once. Remembered for a week. */
  readonly key?: string;
  /** Only these sessions, as far as they subscribed. */
  readonly sessions?: readonly string[];
}

/** A session's subscription to a trigger. */
export interface SubscriptionView extends StoredSubscription {
  readonly key: string;
}

/** The triggers there are, and what the session wants to be told of. */
export interface TriggerReads {
  /** By source. */
  list(): Promise<readonly TriggerView[]>;
  /** Of the session, the host's and other plugins' too. */
  subscriptions(): Promise<readonly SubscriptionView[]>;
}

/** Events that a plugin tells of, and those it has its session told of. */
export interface TriggerActs {
  /**
   * Tells of an event of any plugin's trigger: the own session and those made from it, as far as they subscribed. Resolves
   * when the event is stored, and does not wait for those it is told to.
   *
   * @example
   * const { matched } = await context.host.triggers.emit("mail.received", { from: "ada" }, { key: mail.id });
   */
  emit(source: string, payload?: Json, options?: TriggerOptions): Promise<TriggerReceipt>;
  /** Has the session told of events that come from now on. Under a key it is the plugin's one subscription. */
  subscribe(source: string, request?: SubscribeRequest): Promise<SubscriptionView>;
  /** False when the plugin has no such subscription in the session. */
  unsubscribe(key: string): Promise<boolean>;
}
