export { eventError } from "./event-error.js";
export { EventHub, type Listening, type Redact, type RedactedPlace } from "./event-hub.js";
export {
  type EndReason,
  EVENT_TYPES,
  type EventArea,
  type EventContent,
  type EventContext,
  type EventError,
  type EventLevel,
  type EventSink,
  type EventType,
  type ToldEvent,
  type TroupeEvent,
} from "./events.js";
export { JoinedEvents } from "./joined-events.js";
export { debuggedAreas, type Logger } from "./log-lines.js";
export {
  firstTokenPhase,
  hookPhase,
  modelOfPhase,
  type PhaseFailures,
  PhaseProbe,
  type PhaseStats,
  recordMs,
} from "./probe.js";
