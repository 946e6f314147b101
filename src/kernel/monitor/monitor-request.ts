import { isStorableName } from "../ids.js";
import { isRecord, type Json } from "../json.js";
import { type FieldsOf, unknownField } from "../known-names.js";
import { checkCommand } from "../process/index.js";
import { countsOr, invalidMonitor } from "../refusals.js";
import { type CommandSpec, MONITOR_DELIVERIES, type MonitorSpec, type WatchSpec } from "./monitor.js";

/** What every monitor can be asked for with. */
interface MonitorWords {
  /** The plugin's own name for it in the session: asked for twice, it is one. */
  readonly id: string;
  /** What it is about, for people. */
  readonly label?: string;
  /** Only lines that match this regular expression are told. A tool's result is one line. */
  readonly pattern?: string;
  readonly ignoreCase?: boolean;
  /** An update is made when nothing has come for so long, or after five times as long. Default 200. */
  readonly debounceMs?: number;
  /** Updates beyond these wait, and what comes meanwhile is gathered. Default 30. */
  readonly maxPerMinute?: number;
  /** Ends it: so many lines told, a line that matches this (whatever `pattern` says), or a time from now. */
  readonly until?: { readonly lines?: number; readonly pattern?: string; readonly deadlineMs?: number };
  /**
   * `none` (default): updates wait to be taken. `turn`: each begins a turn of the session, `steer`: is read by the running
   * turn, or else begins one; while the one before has not been dealt with, updates gather.
   */
  readonly deliver?: (typeof MONITOR_DELIVERIES)[number];
}

/** The lines a program says. It needs `permissions: { processes: true }`. */
interface CommandWords {
  /** The program and its arguments; no shell reads them. */
  readonly argv: readonly string[];
  readonly cwd?: string;
  readonly env?: readonly string[];
  /** Default `stdout`. */
  readonly stream?: "stdout" | "stderr" | "both";
  /** Default `end`. `restart`: it is started again, after a second and then after ever longer. */
  readonly onExit?: "end" | "restart";
}

/** The lines that are added to a file, also when it is replaced or cut. It needs a `read` grant for the path. */
interface FileWords {
  readonly file: string;
  /** Default `end`: what is there already is not told. */
  readonly from?: "end" | "start";
}

/** What a tool of the session answers, whenever that is something else than before. No model is asked. */
interface ToolWords {
  readonly tool: string;
  readonly args?: Json;
  /** How long after its end it is run again: from 100 ms on. */
  readonly everyMs: number;
}

/** What is to be watched, and what of it is to be told. */
export type MonitorRequest = MonitorWords & (CommandWords | FileWords | ToolWords);

const WORDS: FieldsOf<MonitorWords> = {
  id: true,
  label: true,
  pattern: true,
  ignoreCase: true,
  debounceMs: true,
  maxPerMinute: true,
  until: true,
  deliver: true,
};
const COMMAND: FieldsOf<CommandWords> = { argv: true, cwd: true, env: true, stream: true, onExit: true };
const FILE: FieldsOf<FileWords> = { file: true, from: true };
const TOOL: FieldsOf<ToolWords> = { tool: true, args: true, everyMs: true };
const UNTIL: FieldsOf<NonNullable<MonitorWords["until"]>> = { lines: true, pattern: true, deadlineMs: true };

const MAX_ID = 64;
/** As of the task it is. */
const ID = /^[^#\s]+$/;
const MAX_LABEL = 200;
const MAX_PATTERN = 500;
const MAX_PATH = 4 * 1024;
const MAX_ARGS = 16 * 1024;
const DAY_MS = 24 * 3_600_000;
const LEAST_EVERY_MS = 100;

/** The plugin's own name for a monitor. */
export function checkMonitorId(id: unknown): string {
  if (typeof id === "string" && id.length <= MAX_ID && ID.test(id) && isStorableName(id)) return id;
  throw invalidMonitor(`its id is a text of 1 to ${MAX_ID} characters without spaces and #`);
}

/** A request, checked and completed. Throws `invalid_monitor` or, of a command, `invalid_process`. */
export function checkMonitor(request: unknown): { readonly id: string; readonly spec: MonitorSpec } {
  if (!isRecord(request)) throw invalidMonitor('it is an object such as { id: "log", file: "/var/log/app.log" }');
  const id = checkMonitorId(request.id);
  const watch = checkWatch(request);
  const { label = id, pattern = null, ignoreCase = false, debounceMs, maxPerMinute, deliver = "none" } = request;
  if (typeof label !== "string" || label.length > MAX_LABEL)
    throw invalidMonitor(`label is a text of up to ${MAX_LABEL} characters`);
  return {
    id,
    spec: {
      watch,
      label,
      pattern: checkPattern("pattern", pattern),
      ignoreCase: flag("ignoreCase", ignoreCase),
      debounceMs: count("debounceMs", debounceMs, { least: 1, most: 60_000, otherwise: 200 }),
      maxPerMinute: count("maxPerMinute", maxPerMinute, { least: 1, most: 600, otherwise: 30 }),
      until: checkUntil(request.until ?? {}),
      deliver: oneOf("deliver", deliver, MONITOR_DELIVERIES),
    },
  };
}

function checkWatch(request: Readonly<Record<string, unknown>>): WatchSpec {
  const kinds = [COMMAND, FILE, TOOL].filter((fields) => request[Object.keys(fields)[0] as string] !== undefined);
  const [fields] = kinds;
  if (fields === undefined || kinds.length > 1)
    throw invalidMonitor("it watches one thing: argv, file or tool says which");
  const unknown = unknownField(request, { ...WORDS, ...fields }, "such a monitor");
  if (unknown !== undefined) throw invalidMonitor(unknown);
  if (fields === COMMAND) return checkProgram(request);
  if (fields === FILE) {
    const { file, from = "end" } = request;
    if (typeof file !== "string" || file === "" || file.length > MAX_PATH || file.includes("\0"))
      throw invalidMonitor("file is the path of a file");
    return { kind: "file", path: file, from: oneOf("from", from, ["end", "start"] as const) };
  }
  const { tool, args = {}, everyMs } = request;
  if (typeof tool !== "string" || tool === "" || tool.length > MAX_LABEL)
    throw invalidMonitor("tool is the name of a tool of the session");
  const every = count("everyMs", everyMs, { least: LEAST_EVERY_MS, most: 7 * DAY_MS, otherwise: 0 });
  if (every === 0) throw invalidMonitor("everyMs says how often the tool is run");
  return { kind: "tool", name: tool, args: checkArgs(args), everyMs: every };
}

function checkProgram(request: Readonly<Record<string, unknown>>): CommandSpec {
  const { stream = "stdout", onExit = "end" } = request;
  return {
    kind: "command",
    ...checkCommand(request),
    stream: oneOf("stream", stream, ["stdout", "stderr", "both"] as const),
    onExit: oneOf("onExit", onExit, ["end", "restart"] as const),
  };
}

function checkUntil(until: unknown): MonitorSpec["until"] {
  if (!isRecord(until)) throw invalidMonitor("until is an object such as { lines: 1 }");
  const unknown = unknownField(until, UNTIL, "until");
  if (unknown !== undefined) throw invalidMonitor(unknown);
  const { lines, pattern = null, deadlineMs } = until;
  return {
    lines: count("until.lines", lines, { least: 1, most: 1_000_000_000, otherwise: 0 }) || null,
    pattern: checkPattern("until.pattern", pattern),
    deadlineMs: count("until.deadlineMs", deadlineMs, { least: 1, most: 365 * DAY_MS, otherwise: 0 }) || null,
  };
}

function checkPattern(name: string, pattern: unknown): string | null {
  if (pattern === null) return null;
  if (typeof pattern !== "string" || pattern === "" || pattern.length > MAX_PATTERN)
    throw invalidMonitor(`${name} is a regular expression of up to ${MAX_PATTERN} characters`);
  try {
    new RegExp(pattern, "u");
    return pattern;
  } catch (error) {
    throw invalidMonitor(`${name} is no regular expression (with the flag u): ${(error as Error).message}`);
  }
}

function checkArgs(args: unknown): Json {
  let text: string | undefined;
  try {
    text = JSON.stringify(args);
  } catch {
    text = undefined;
  }
  if (text === undefined || text.length > MAX_ARGS)
    throw invalidMonitor(`args is plain JSON data of up to ${MAX_ARGS} characters`);
  return JSON.parse(text) as Json;
}

function flag(name: string, given: unknown): boolean {
  if (typeof given === "boolean") return given;
  throw invalidMonitor(`${name} is true or false`);
}

function oneOf<T extends string>(name: string, given: unknown, known: readonly T[]): T {
  const found = known.find((each) => each === given);
  if (found !== undefined) return found;
  throw invalidMonitor(`${name} is one of ${known.join(", ")}, not ${JSON.stringify(given)}`);
}

const count = countsOr(invalidMonitor);
