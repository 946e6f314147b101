import { debuglog } from "node:util";
import { EVENT_TYPES, type EventArea, type EventLevel, type TroupeEvent } from "./events.js";

/** A logger such as pino's, or `console`. */
export type Logger = {
  readonly [L in EventLevel]: (fields: Readonly<Record<string, unknown>>, message: string) => unknown;
};

/** Writes an event to a logger: the event's fields, and a sentence. */
export function writeLog(log: Logger, event: TroupeEvent): unknown {
  return log[EVENT_TYPES[event.type].level]({ ...event }, sentenceFor(event));
}

/** Which areas `NODE_DEBUG` asks for: `troupe` is all of them, `troupe:lane` one. */
export function debuggedAreas(): ReadonlySet<EventArea> {
  const areas = new Set(Object.values(EVENT_TYPES).map(({ area }) => area));
  if (debuglog("troupe").enabled) return areas;
  return new Set([...areas].filter((area) => debuglog(`troupe:${area}`).enabled));
}

/** Writes an event to stderr, as Node does for its own modules. */
export function writeDebug(event: TroupeEvent): void {
  const { area } = EVENT_TYPES[event.type];
  const whole = debuglog("troupe");
  const { type, at, ...fields } = event;
  const line = `${new Date(at).toISOString()} ${type} ${sentenceFor(event)} ${JSON.stringify(fields)}`;
  (whole.enabled ? whole : debuglog(`troupe:${area}`))("%s", line);
}

/** What happened, in words. What people and models said is in none of them. */
function sentenceFor(event: TroupeEvent): string {
  const said = wordsFor(event);
  return event.count === 1 ? said : `${said} (${event.count} times)`;
}

function wordsFor(event: TroupeEvent): string {
  switch (event.type) {
    case "hook_failed":
      return `Plugin ${event.plugin}: ${event.hook} ${event.timeout ? "missed its deadline" : "failed"}: ${event.error.message}`;
    case "tool_failed":
      return `Tool ${event.tool} failed with ${event.code}: ${event.error.message}`;
    case "plugin_blocked":
      return `Plugin ${event.plugin} blocked its thread ${event.held ? "in a call" : "behind an await or in a timer"}, so the thread is replaced.`;
    case "plugin_lost":
      return `The thread of plugin ${event.plugin} is gone: ${event.reason}.`;
    case "plugin_restarted":
      return `Plugin ${event.plugin} has a new thread.`;
    case "plugin_given_up":
      return event.error.message;
    case "plugin_separated":
      return `Plugin ${event.plugin} held the thread of the group ${event.group} and has threads of its own from now on.`;
    case "session_quarantined":
      return `Session ${event.session} is in quarantine: its calls ended or blocked threads of ${event.plugin} ${event.offences} times.`;
    case "session_refused":
      return `Calls of session ${event.session} to ${event.plugin} are refused for ${event.forMs} ms: they ended or blocked its threads ${event.offences} times.`;
    case "breaker_opened":
      return `Plugin ${event.plugin}: ${event.hook} is not asked for ${event.forMs} ms${event.session === undefined ? "" : ` by session ${event.session}`}, because ${event.timeouts} calls in a row missed their deadline.`;
    case "breaker_closed":
      return `Plugin ${event.plugin}: ${event.hook} answers again, after ${Math.round(event.openMs)} ms.`;
    case "turn_refused":
      return `A turn of session ${event.session} was refused with ${event.code}: ${event.error.message}`;
    case "turn_stopped":
      return `A turn of session ${event.session} stopped (${event.reason}, ${event.code}): ${event.error.message}`;
    case "tenant_budget_spent":
      return `Tenant ${event.tenant} has spent its budget of ${event.period}: ${event.tokens} tokens, ${event.cost} in money.`;
    case "turn_resumed":
      return `A turn of session ${event.session} that a crash left behind goes on.`;
    case "model_retry":
      return `The model ${event.model} failed with ${event.code} and is asked again in ${event.delayMs} ms: ${event.error.message}`;
    case "model_fallback":
      return `The model ${event.from} failed with ${event.code}, so ${event.to} is asked: ${event.error.message}`;
    case "context_compacted":
      return `The conversation of session ${event.session} was summed up (${event.reason}): ${event.messagesBefore} messages are ${event.messages} now.`;
    case "store_slow":
      return `The store took ${Math.round(event.tookMs)} ms for a ${event.write}.`;
    case "store_lost":
      return event.error.message;
    case "worker_recycled":
      return `${event.thread} has a new thread because the old one was full, or somebody asked for it.`;
    case "session_worker_lost":
      return event.error.message;
    case "session_worker_replaced":
      return `${event.thread} has a new thread.`;
    case "session_worker_given_up":
      return event.error.message;
    case "schedule_failed":
      return `A run of the schedule ${event.schedule} failed${event.final ? ", and with it the schedule" : " and is tried again"}: ${event.error.message}`;
    case "schedule_missed":
      return `The schedule ${event.schedule} leaves out its run of ${new Date(event.due).toISOString()}, which is too late.`;
    case "trigger_failed":
      return `Session ${event.session} does not get the event ${event.trigger}: ${event.error.message}`;
    case "task_failed":
      return `Something about the task ${event.task} of session ${event.session} failed: ${event.error.message}`;
    case "monitor_failed":
      return `Monitor ${event.monitor} of plugin ${event.plugin} ${event.final ? "has ended" : "tries again"}: ${event.error.message}`;
    case "memory_high":
      return `The process uses ${event.usedMb} of the ${event.limitMb} MB it may have.`;
    case "floating_rejection":
      return event.error.message;
    case "lane_opened":
      return `Lane ${event.lane} from ${event.to} to plugin ${event.plugin} is open.`;
    case "lane_lost":
      return `The lanes to plugin ${event.plugin} are gone: ${event.lanes.join(", ") || "none"}.`;
    case "events_dropped":
      return `The listener is slower than events come: ${event.dropped} of them were not told.`;
  }
}
