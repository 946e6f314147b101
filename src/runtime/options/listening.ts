import { debuggedAreas, type Listening, type Logger, type Redact, type TroupeEvent } from "../../trace/index.js";
import { invalid } from "./option-checks.js";

/** Who is told what happens in a runtime. Without any of them nothing is made for it. */
export interface ListeningOptions {
  /**
   * Told what fails, is restarted, refused or taken up again (docs/events.md). Floods are joined, and a listener that
   * throws or is slow costs nobody anything but itself.
   */
  readonly onEvent?: (event: TroupeEvent) => unknown;
  /** A logger such as pino's: gets each event as fields, with a sentence. */
  readonly log?: Logger;
  /** Events also have what people and models said, and what tools were called with. Default false. */
  readonly logContent?: boolean;
  /** Gives what of such a value, or of the words of an error, may be read. */
  readonly redact?: Redact;
}

const LEVELS = ["debug", "info", "warn", "error"] as const;

/** Undefined when nobody listens. */
export function resolveListening({ onEvent, log, logContent, redact }: ListeningOptions): Listening | undefined {
  if (onEvent !== undefined && typeof onEvent !== "function") throw invalid("onEvent must be a function");
  if (log !== undefined) {
    const isLogger =
      typeof log === "object" && log !== null && LEVELS.every((level) => typeof log[level] === "function");
    if (!isLogger) throw invalid(`log must be a logger with ${LEVELS.join(", ")}, such as pino() or console`);
  }
  if (logContent !== undefined && typeof logContent !== "boolean") throw invalid("logContent must be true or false");
  if (redact !== undefined && typeof redact !== "function")
    throw invalid("redact must be a function of a value and where it is from");
  const debug = debuggedAreas();
  if (onEvent === undefined && log === undefined && debug.size === 0) return undefined;
  return { onEvent, log, debug, content: logContent === true, redact };
}
