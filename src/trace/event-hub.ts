import type { Clock } from "../async/index.js";
import { messageOf } from "../kernel/index.js";
import { Delivery } from "./delivery.js";
import { mapTexts } from "./event-error.js";
import {
  EVENT_TYPES,
  type EventArea,
  type EventContent,
  type EventSink,
  type ToldEvent,
  type TroupeEvent,
} from "./events.js";
import { JoinedEvents } from "./joined-events.js";
import { type Logger, writeDebug, writeLog } from "./log-lines.js";

/** Who listens, and what they may read. */
export interface Listening {
  readonly onEvent: ((event: TroupeEvent) => unknown) | undefined;
  readonly log: Logger | undefined;
  /** What of it goes to stderr. */
  readonly debug: ReadonlySet<EventArea>;
  readonly content: boolean;
  readonly redact: Redact | undefined;
}

/** Where a value is from: what was said to a session, a tool's arguments, or the words of an error. */
export type RedactedPlace = "input" | "args" | "error";
/** Gives what may be read of a value; what it throws hides the value. */
export type Redact = (value: unknown, where: RedactedPlace) => unknown;

interface HubParts extends Listening {
  readonly clock: Clock;
  /** Takes secrets out of the words of errors. */
  readonly hide: (text: string) => string;
}

const HIDDEN = "[hidden]";

/** The events of a runtime, on its main thread: joined, without what nobody may read, and given to each listener. */
export class EventHub implements EventSink {
  readonly #parts: HubParts;
  readonly #joined: JoinedEvents;
  readonly #listeners: readonly { readonly wants: (event: TroupeEvent) => boolean; readonly delivery: Delivery }[];

  constructor(parts: HubParts) {
    this.#parts = parts;
    this.#joined = new JoinedEvents(parts.clock, (event) => this.#tell(event));
    const { onEvent, log, debug, clock } = parts;
    const listener = (name: string, give: (event: TroupeEvent) => unknown, wants = (_: TroupeEvent) => true) => ({
      wants,
      delivery: new Delivery({
        clock,
        give,
        onFailure: (error) => process.emitWarning(`${name} threw, and the event is lost: ${messageOf(error)}`),
      }),
    });
    this.#listeners = [
      ...(onEvent === undefined ? [] : [listener("onEvent", (event) => onEvent(event))]),
      ...(log === undefined ? [] : [listener("log", (event) => writeLog(log, event))]),
      ...(debug.size === 0 ? [] : [listener("stderr", writeDebug, ({ type }) => debug.has(EVENT_TYPES[type].area))]),
    ];
  }

  get content(): boolean {
    return this.#parts.content;
  }

  emit(event: ToldEvent): void {
    this.receive({ ...event, at: this.#parts.clock.wallNow(), count: 1 });
  }

  /** An event of another thread. */
  receive(event: TroupeEvent): void {
    this.#joined.add(event);
  }

  /** Tells what waits to be told. */
  close(): void {
    this.#joined.flush();
    for (const { delivery } of this.#listeners) delivery.flush();
  }

  #tell(event: TroupeEvent): void {
    const wanting = this.#listeners.filter(({ wants }) => wants(event));
    if (wanting.length === 0) return;
    const readable = this.#readable(event);
    for (const { delivery } of wanting) delivery.add(readable);
  }

  #readable({ content, ...event }: TroupeEvent): TroupeEvent {
    const shown = this.#parts.content && content !== undefined ? { content: this.#readableContent(content) } : {};
    const { hide } = this.#parts;
    // Words that a redaction made something else than a text are not shown.
    const change = (text: string) => {
      const redacted = this.#redacted(hide(text), "error");
      return typeof redacted === "string" ? redacted : HIDDEN;
    };
    if (!("error" in event) || event.error === undefined) return { ...event, ...shown } as TroupeEvent;
    return { ...event, ...shown, error: mapTexts(event.error, change) } as TroupeEvent;
  }

  #readableContent(content: EventContent): EventContent {
    return Object.fromEntries(
      Object.entries(content).map(([where, value]) => [where, this.#redacted(value, where as keyof EventContent)]),
    );
  }

  #redacted(value: unknown, where: RedactedPlace): unknown {
    const { redact } = this.#parts;
    if (redact === undefined) return value;
    try {
      return redact(value, where);
    } catch {
      return HIDDEN;
    }
  }
}
