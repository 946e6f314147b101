import type { Logger, TroupeEvent } from "troupe";
import { until } from "./runtime.js";

type Of<T extends TroupeEvent["type"]> = Extract<TroupeEvent, { type: T }>;

/** A listener that keeps what it hears. */
export function listening() {
  const events: TroupeEvent[] = [];
  const of = <T extends TroupeEvent["type"]>(type: T) => events.filter((event): event is Of<T> => event.type === type);
  return {
    events,
    onEvent: (event: TroupeEvent) => void events.push(event),
    of,
    /** The first of a type, once it is there. */
    async first<T extends TroupeEvent["type"]>(type: T): Promise<Of<T>> {
      await until(`there is an event ${type}`, () => of(type).length > 0);
      return of(type)[0] as Of<T>;
    },
  };
}

export interface LogLine {
  readonly level: string;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly message: string;
}

/** A logger that keeps its lines. */
export function keptLog(): { readonly lines: LogLine[]; readonly log: Logger } {
  const lines: LogLine[] = [];
  const at = (level: string) => (fields: Readonly<Record<string, unknown>>, message: string) =>
    void lines.push({ level, fields, message });
  return { lines, log: { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") } };
}
