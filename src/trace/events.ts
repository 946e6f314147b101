/** An error as events have it: data, whichever thread it was thrown on. */
export interface EventError {
  readonly name: string;
  readonly message: string;
  /** Of the code that threw, such as the plugin's. */
  readonly stack?: string;
  /** Troupe's, or Node's own (`ERR_ACCESS_DENIED`, `ENOENT`). */
  readonly code?: string;
  /** What Node refused, and what it was about: `FileSystemWrite`, `/var/log/audit.jsonl`. */
  readonly permission?: string;
  readonly resource?: string;
  readonly cause?: EventError;
}

/** What every event has. */
export interface EventContext {
  /** When it happened (the first time, of several): milliseconds since 1970. */
  readonly at: number;
  /** How often it happened: 1, unless the same thing came faster than once a second and was joined. */
  readonly count: number;
  readonly session?: string;
  /** The turn the session was at. */
  readonly turn?: string;
  readonly tenant?: string;
  readonly plugin?: string;
  /** The thread it happened on, or that it is about. */
  readonly thread?: string;
  /** The turn was taken up again after a crash, and is doing again what it had done: this may have been told before. */
  readonly replaying?: true;
  /** With `logContent: true`, and past `redact`: what was said. */
  readonly content?: EventContent;
}

/** What people and models said, and what tools were called with. */
export interface EventContent {
  readonly input?: unknown;
  readonly args?: unknown;
}

/** Why a thread ended. */
export type EndReason =
  | "asked"
  | "exit"
  | "error"
  | "heap"
  | "blocked"
  | "external"
  | "resources"
  | "patched"
  | "malformed";

/**
 * What happens in a runtime and nobody is told of otherwise: what failed, what was restarted, refused or taken up again.
 * A closed union: a new type of event is a new minor release.
 *
 * @example
 * createTroupe({ onEvent: (event) => { if (event.type === "plugin_given_up") page(event.plugin, event.error.message); } });
 */
export type TroupeEvent = EventContext & Happening;

type Happening =
  /** `outcome`: what the plugin's `onFailure` makes of it; `default`: what a hook of this kind does by itself. */
  | {
      readonly type: "hook_failed";
      readonly session: string;
      readonly plugin: string;
      readonly hook: string;
      readonly timeout: boolean;
      readonly outcome: "skipped" | "turn_failed" | "default";
      readonly error: EventError;
    }
  | {
      readonly type: "tool_failed";
      readonly session: string;
      readonly tool: string;
      readonly call: string;
      readonly code: string;
      /** Where the tool runs. */
      readonly home: "host" | "plugin" | "pool";
      readonly error: EventError;
    }
  /** A call, or code behind an `await`, held the plugin's thread for longer than its `blockedMs`; the thread is ended. */
  | { readonly type: "plugin_blocked"; readonly plugin: string; readonly thread: string; readonly held: boolean }
  /** The plugin's thread is gone. `held`: one of the plugin's calls held it. */
  | {
      readonly type: "plugin_lost";
      readonly plugin: string;
      readonly thread: string;
      readonly held: boolean;
      readonly reason: EndReason;
      readonly error?: EventError;
    }
  | { readonly type: "plugin_restarted"; readonly plugin: string; readonly thread: string; readonly restarts: number }
  | { readonly type: "plugin_given_up"; readonly plugin: string; readonly error: EventError }
  /** It held the thread of its group until that was lost, and has threads of its own from now on. */
  | { readonly type: "plugin_separated"; readonly plugin: string; readonly group: string }
  /** The session's calls of the plugin go to the quarantine host. */
  | {
      readonly type: "session_quarantined";
      readonly session: string;
      readonly plugin: string;
      readonly offences: number;
    }
  /** The session has ended or blocked the plugin's threads so often that its calls are refused for a while. */
  | {
      readonly type: "session_refused";
      readonly session: string;
      readonly plugin: string;
      readonly offences: number;
      readonly forMs: number;
    }
  /** `session`: the only one that is refused; absent: all are. */
  | {
      readonly type: "breaker_opened";
      readonly plugin: string;
      readonly hook: string;
      readonly timeouts: number;
      readonly forMs: number;
    }
  | { readonly type: "breaker_closed"; readonly plugin: string; readonly hook: string; readonly openMs: number }
  /** A turn was not run, or came to nothing. `background`: no caller waits for it, so nobody else is told. */
  | {
      readonly type: "turn_refused";
      readonly session: string;
      readonly code: string;
      readonly background: boolean;
      readonly error: EventError;
    }
  /** A turn is stored and did not finish; cancelled ones are not told. */
  | {
      readonly type: "turn_stopped";
      readonly session: string;
      readonly turn: string;
      readonly reason: string;
      readonly code: string;
      readonly error: EventError;
    }
  /** A tenant has spent its budget of a period: told once for each, with the first call that is not made. */
  | {
      readonly type: "tenant_budget_spent";
      readonly tenant: string;
      readonly period: string;
      readonly tokens: number;
      readonly cost: number;
      readonly whenSpent: "stop" | "pause";
    }
  /** A crash left the turn behind; it goes on. `times`: how often it was taken up before. */
  | { readonly type: "turn_resumed"; readonly session: string; readonly turn: string; readonly times: number }
  | {
      readonly type: "model_retry";
      readonly session: string;
      readonly turn: string;
      readonly model: string;
      readonly step: number;
      readonly attempt: number;
      readonly code: string;
      readonly delayMs: number;
      readonly error: EventError;
    }
  /** The model gave no answer, and another one is asked. */
  | {
      readonly type: "model_fallback";
      readonly session: string;
      readonly turn: string;
      readonly from: string;
      readonly to: string;
      readonly step: number;
      readonly code: string;
      readonly error: EventError;
    }
  /** A conversation was summed up, and goes on in another frame. `reason`: `asked` by `session.compact()`. */
  | {
      readonly type: "context_compacted";
      readonly session: string;
      readonly reason: "asked" | "threshold" | "overflow";
      readonly frameId: string;
      readonly messagesBefore: number;
      readonly messages: number;
      readonly pluginId: string;
    }
  /** From the session worker's asking to the answer that it is on the disk. */
  | { readonly type: "store_slow"; readonly session?: string; readonly write: string; readonly tookMs: number }
  | { readonly type: "store_lost"; readonly error: EventError }
  /** A session worker has a new thread because the old one's heap stayed full, or because somebody asked for it. */
  | { readonly type: "worker_recycled"; readonly thread: string; readonly recycled: number }
  | {
      readonly type: "session_worker_lost";
      readonly thread: string;
      readonly reason: string;
      readonly error: EventError;
    }
  | { readonly type: "session_worker_replaced"; readonly thread: string; readonly restarts: number }
  | { readonly type: "session_worker_given_up"; readonly thread: string; readonly error: EventError }
  /** A run of a schedule failed. `final`: the schedule has ended with it; otherwise it is tried again, or left to the next. */
  | { readonly type: "schedule_failed"; readonly schedule: string; readonly final: boolean; readonly error: EventError }
  /** Nothing ran when a run of a schedule was due, and its `misfire` leaves late runs out. */
  | { readonly type: "schedule_missed"; readonly schedule: string; readonly due: number }
  /** A session that subscribed to a trigger does not get an event: it was deleted, or could not take it. */
  | { readonly type: "trigger_failed"; readonly trigger: string; readonly session: string; readonly error: EventError }
  /** Something about a task failed that nobody else is told of: its session is not told of its end yet, say. */
  | { readonly type: "task_failed"; readonly task: string; readonly session: string; readonly error: EventError }
  /**
   * A monitor has ended by itself because it cannot go on (`final`), or what it has to tell cannot be stored, or not be
   * delivered, now: that is tried again.
   */
  | {
      readonly type: "monitor_failed";
      readonly session: string;
      readonly plugin: string;
      readonly monitor: string;
      readonly final: boolean;
      readonly error: EventError;
    }
  /** The process nears the memory it may have; told again only after it was well below. */
  | { readonly type: "memory_high"; readonly usedMb: number; readonly limitMb: number }
  /** A promise was rejected and nobody handled it; `owner` is the module it came from, when that is known. */
  | { readonly type: "floating_rejection"; readonly owner: string | null; readonly error: EventError }
  | {
      readonly type: "lane_opened";
      readonly plugin: string;
      readonly thread: string;
      readonly to: string;
      readonly lane: number;
    }
  | { readonly type: "lane_lost"; readonly plugin: string; readonly thread: string; readonly lanes: readonly number[] }
  /** The listener is slower than events come: so many of them are not told. */
  | { readonly type: "events_dropped"; readonly dropped: number };

export type EventType = TroupeEvent["type"];
export type EventLevel = "debug" | "info" | "warn" | "error";
/** `NODE_DEBUG=troupe:<area>` shows the events of one area. */
export type EventArea =
  | "plugin"
  | "session"
  | "turn"
  | "tool"
  | "model"
  | "store"
  | "worker"
  | "schedule"
  | "lane"
  | "events";

/** How loud an event is, and where it belongs. */
export const EVENT_TYPES: { readonly [T in EventType]: { readonly level: EventLevel; readonly area: EventArea } } = {
  hook_failed: { level: "error", area: "plugin" },
  tool_failed: { level: "error", area: "tool" },
  plugin_blocked: { level: "error", area: "plugin" },
  plugin_lost: { level: "warn", area: "plugin" },
  plugin_restarted: { level: "info", area: "plugin" },
  plugin_given_up: { level: "error", area: "plugin" },
  plugin_separated: { level: "warn", area: "plugin" },
  session_quarantined: { level: "warn", area: "session" },
  session_refused: { level: "error", area: "session" },
  breaker_opened: { level: "error", area: "plugin" },
  breaker_closed: { level: "info", area: "plugin" },
  turn_refused: { level: "error", area: "turn" },
  turn_stopped: { level: "warn", area: "turn" },
  tenant_budget_spent: { level: "warn", area: "turn" },
  turn_resumed: { level: "info", area: "turn" },
  model_retry: { level: "warn", area: "model" },
  model_fallback: { level: "warn", area: "model" },
  context_compacted: { level: "info", area: "session" },
  store_slow: { level: "warn", area: "store" },
  store_lost: { level: "error", area: "store" },
  worker_recycled: { level: "info", area: "worker" },
  session_worker_lost: { level: "error", area: "worker" },
  session_worker_replaced: { level: "info", area: "worker" },
  session_worker_given_up: { level: "error", area: "worker" },
  schedule_failed: { level: "error", area: "schedule" },
  schedule_missed: { level: "warn", area: "schedule" },
  trigger_failed: { level: "error", area: "schedule" },
  task_failed: { level: "error", area: "schedule" },
  monitor_failed: { level: "error", area: "schedule" },
  memory_high: { level: "warn", area: "worker" },
  floating_rejection: { level: "error", area: "plugin" },
  lane_opened: { level: "debug", area: "lane" },
  lane_lost: { level: "debug", area: "lane" },
  events_dropped: { level: "warn", area: "events" },
};

type DistributiveOmit<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never;

/** An event as it is told; whoever passes it on knows the rest. */
export type ToldEvent = DistributiveOmit<Happening, never> & Partial<Omit<EventContext, "at" | "count">>;

/**
 * Takes events. Where nobody listens there is no sink, so that what stands behind `events?.` is never evaluated: no
 * object and no string is made.
 */
export interface EventSink {
  /** Contents of messages and arguments were asked for. */
  readonly content: boolean;
  emit(event: ToldEvent): void;
}
