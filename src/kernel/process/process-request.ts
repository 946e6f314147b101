import { isRecord } from "../json.js";
import { type FieldsOf, unknownField } from "../known-names.js";
import { countsOr, invalidProcess } from "../refusals.js";

/** A child process a plugin asks for. */
export interface ProcessRequest {
  /** The program and its arguments, as they are: no shell reads them. A name without a slash is looked up in the host's PATH. */
  readonly argv: readonly string[];
  /** Where it runs. Default: where the host does. */
  readonly cwd?: string;
  /** Names of the host's environment variables it gets too. Default: none. */
  readonly env?: readonly string[];
  /** It can be written to. Default false: its standard input is empty. */
  readonly stdin?: boolean;
  /** Bytes that are kept of each of its outputs; older ones make room. Default 256 KB, 1 MB at the most. */
  readonly keepBytes?: number;
}

/** A request, checked and completed. */
export interface ProcessSpec {
  readonly argv: readonly string[];
  readonly cwd: string | null;
  readonly env: readonly string[];
  readonly stdin: boolean;
  readonly keepBytes: number;
}

/** What is read of an output: of its bytes, counted from 0, those from one on. */
export interface ReadRequest {
  /** Default `stdout`. */
  readonly stream?: "stdout" | "stderr";
  /** Default 0: from the oldest that is kept. */
  readonly from?: number;
  /** Default 64 KB, 256 KB at the most. */
  readonly maxBytes?: number;
  /** How long to wait for the first byte behind `from`. Default 0, 10,000 at the most. */
  readonly waitMs?: number;
  /** `text` (default) is UTF-8; what is not comes as the replacement character. */
  readonly as?: "text" | "bytes";
}

export interface ReadSpec {
  readonly stream: "stdout" | "stderr";
  readonly from: number;
  readonly maxBytes: number;
  readonly waitMs: number;
  readonly as: "text" | "bytes";
}

const FIELDS: FieldsOf<ProcessRequest> = { argv: true, cwd: true, env: true, stdin: true, keepBytes: true };
const READ_FIELDS: FieldsOf<ReadRequest> = { stream: true, from: true, maxBytes: true, waitMs: true, as: true };

const KB = 1024;
export const KEEP_BYTES = 256 * KB;
const MAX_KEEP_BYTES = 1024 * KB;
const MAX_ARGUMENTS = 1_000;
const MAX_ARGV = 128 * KB;
const MAX_NAME = 256;
const MAX_NAMES = 100;
const MAX_PATH = 4 * KB;
const READ_BYTES = 64 * KB;
const MAX_READ_BYTES = 256 * KB;
export const MAX_WAIT_MS = 10_000;

/** Throws `invalid_process` with what is wrong, in the words of the request. */
export function checkProcess(request: unknown): ProcessSpec {
  if (!isRecord(request)) throw invalidProcess('it is an object such as { argv: ["ls", "-l"] }');
  const unknown = unknownField(request, FIELDS, "a process");
  if (unknown !== undefined) throw invalidProcess(unknown);
  const { keepBytes, stdin = false } = request;
  if (typeof stdin !== "boolean") throw invalidProcess("stdin is true or false");
  return {
    ...checkCommand(request),
    stdin,
    keepBytes: count("keepBytes", keepBytes, { least: 1, most: MAX_KEEP_BYTES, otherwise: KEEP_BYTES }),
  };
}

/** What is run, where and with what of the environment: of a process and of a monitor alike. */
export function checkCommand({
  argv,
  cwd = null,
  env = [],
}: Readonly<Record<string, unknown>>): Pick<ProcessSpec, "argv" | "cwd" | "env"> {
  if (typeof argv === "string")
    throw invalidProcess('argv is a list such as ["ls", "-l"], not a line for a shell; a shell is ["sh", "-c", line]');
  if (!isTexts(argv) || argv.length === 0 || argv.length > MAX_ARGUMENTS || argv[0] === "")
    throw invalidProcess(`argv is a list of 1 to ${MAX_ARGUMENTS} texts: the program, then its arguments`);
  if (argv.reduce((length, { length: more }) => length + more, 0) > MAX_ARGV)
    throw invalidProcess(`argv has up to ${MAX_ARGV} characters`);
  if (cwd !== null && (typeof cwd !== "string" || cwd === "" || cwd.length > MAX_PATH || cwd.includes("\0")))
    throw invalidProcess("cwd is the path of a folder");
  if (!isTexts(env) || env.length > MAX_NAMES || !env.every((name) => isVariable(name)))
    throw invalidProcess(`env is a list of up to ${MAX_NAMES} names of environment variables, not their values`);
  return { argv: [...argv], cwd, env: [...new Set(env)] };
}

/** Throws `invalid_process`. */
export function checkRead(request: unknown = {}): ReadSpec {
  if (!isRecord(request)) throw invalidProcess("what is read is said by { stream?, from?, maxBytes?, waitMs?, as? }");
  const unknown = unknownField(request, READ_FIELDS, "a read");
  if (unknown !== undefined) throw invalidProcess(unknown);
  const { stream = "stdout", from, maxBytes, waitMs, as = "text" } = request;
  if (stream !== "stdout" && stream !== "stderr") throw invalidProcess('stream is "stdout" or "stderr"');
  if (as !== "text" && as !== "bytes") throw invalidProcess('as is "text" or "bytes"');
  return {
    stream,
    as,
    from: count("from", from, { least: 0, most: Number.MAX_SAFE_INTEGER, otherwise: 0 }),
    // One character of UTF-8 has up to four bytes: fewer could stand still in the middle of one.
    maxBytes: count("maxBytes", maxBytes, { least: 4, most: MAX_READ_BYTES, otherwise: READ_BYTES }),
    waitMs: checkWait(waitMs),
  };
}

export function checkWait(waitMs: unknown): number {
  return count("waitMs", waitMs, { least: 0, most: MAX_WAIT_MS, otherwise: 0 });
}

const SIGNALS = [
  "SIGTERM",
  "SIGINT",
  "SIGHUP",
  "SIGQUIT",
  "SIGUSR1",
  "SIGUSR2",
  "SIGCONT",
  "SIGSTOP",
  "SIGKILL",
] as const;
export type ProcessSignal = (typeof SIGNALS)[number];

export function checkSignal(signal: unknown = "SIGTERM"): ProcessSignal {
  const found = SIGNALS.find((each) => each === signal);
  if (found !== undefined) return found;
  throw invalidProcess(`its signal is one of ${SIGNALS.join(", ")}`);
}

const count = countsOr(invalidProcess);

function isTexts(list: unknown): list is readonly string[] {
  return Array.isArray(list) && list.every((each) => typeof each === "string" && !each.includes("\0"));
}

function isVariable(name: string): boolean {
  return name !== "" && name.length <= MAX_NAME && !name.includes("=");
}

/** An output, as far as it is known: bytes are counted from 0. */
export interface OutputView {
  /** The oldest byte that is kept. */
  readonly from: number;
  /** One behind the newest. */
  readonly to: number;
  /** Nothing comes any more. */
  readonly ended: boolean;
}

/** A process as it is now. */
export interface ProcessView {
  readonly id: string;
  readonly argv: readonly string[];
  readonly pid: number;
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  readonly state: "running" | "exited";
  /** Null while it runs, and when a signal ended it. */
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly stdout: OutputView;
  readonly stderr: OutputView;
}

/** What was read of an output. */
export interface ProcessOutput {
  /** The first byte that is here. */
  readonly from: number;
  /** Where to read on. */
  readonly next: number;
  /** Bytes behind the place that was asked for that had made room before they were read: they are lost. */
  readonly dropped: number;
  /** Nothing comes behind `next`. */
  readonly ended: boolean;
  readonly text?: string;
  readonly bytes?: Uint8Array;
}
