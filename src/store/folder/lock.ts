import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, resolve } from "node:path";
import type { Clock } from "../../async/index.js";
import { messageOf, TroupeError } from "../../kernel/index.js";

/**
 * One process at a time owns a store folder. The owner's file is `troupe-owner.<n>`; the highest n counts.
 *
 * Taking over from an owner that died means creating n + 1, which the file system lets only one process do, and the
 * highest file is never removed, only superseded. So nobody can delete a lock that somebody else has just taken, which
 * is what goes wrong when a stale lock file is removed and created again under one name. A file gets its name by a
 * link to a finished one, so nobody reads half of it.
 *
 * Limits: an owner in another container (another pid namespace) cannot be told from a dead one and loses the folder; its
 * data stays whole, because LMDB has its own write lock and every commit compares revisions, but it gets conflicts.
 */
export interface StoreLock {
  /** The folder's real path. */
  readonly path: string;
  /** Lets the next process in. May be called twice. */
  release(): void;
}

const NAME = /^troupe-owner\.(\d+)$/;

/**
 * Makes the folder if it is missing and takes it for this process. Call it on the main thread, before the store worker
 * starts. Throws `store_path_not_a_directory`, `store_not_writable` or `store_held`.
 *
 * @example
 * const lock = acquireStoreLock("./data", clock);
 * try {
 *   await run();
 * } finally {
 *   lock.release();
 * }
 */
export function acquireStoreLock(path: string, clock: Clock): StoreLock {
  const folder = makeFolder(path);
  const own = JSON.stringify(thisProcess());
  const draft = writeDraft(folder, own, clock);
  try {
    for (;;) {
      const last = latest(folder);
      if (last.owner !== undefined && isRunning(last.owner)) throw held(folder, last.owner);
      const number = last.number + 1;
      const file = fileOf(folder, number);
      if (!linked(draft, file)) continue;
      // A process that looked long ago may create a number that has been superseded since.
      if (latest(folder).number > number) {
        rmSync(file, { force: true });
        continue;
      }
      removeOlder(folder, number);
      return { path: folder, release: () => release(folder, file, own, clock) };
    }
  } finally {
    rmSync(draft, { force: true });
  }
}

function makeFolder(path: string): string {
  try {
    if (statSync(path, { throwIfNoEntry: false })?.isDirectory() === false) {
      throw new TroupeError("store_path_not_a_directory", `${path} is a file. Give the store a folder of its own.`, {
        details: { path },
      });
    }
    makeMissing(resolve(path));
    return realpathSync(path);
  } catch (error) {
    throw error instanceof TroupeError ? error : notWritable(path, error);
  }
}

// Not `recursive: true`: below /proc, Node's own loop never ends.
function makeMissing(folder: string): void {
  if (existsSync(folder)) return;
  makeMissing(dirname(folder));
  try {
    mkdirSync(folder);
  } catch (error) {
    // Another process made it just now.
    if (codeOf(error) !== "EEXIST") throw error;
  }
}

/** Writing is also the only test of being allowed to write that cannot lie. */
function writeDraft(folder: string, text: string, clock: Clock): string {
  const draft = join(folder, `.troupe-owner-${clock.uuid()}`);
  try {
    writeFileSync(draft, text, { flag: "wx" });
    return draft;
  } catch (error) {
    throw notWritable(folder, error);
  }
}

function linked(draft: string, file: string): boolean {
  try {
    linkSync(draft, file);
    return true;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return false;
    throw notWritable(file, error);
  }
}

/** The file that counts: its number, 0 when there is none, and its owner unless it was released. */
function latest(folder: string): { readonly number: number; readonly owner: Owner | undefined } {
  for (;;) {
    const number = Math.max(0, ...numbersIn(folder));
    if (number === 0) return { number, owner: undefined };
    const text = textOf(fileOf(folder, number));
    // Gone since the folder was listed: superseded.
    if (text !== undefined) return { number, owner: ownerIn(text) };
  }
}

function numbersIn(folder: string): number[] {
  return readdirSync(folder).flatMap((name) => {
    const number = NAME.exec(name)?.[1];
    return number === undefined ? [] : [Number(number)];
  });
}

function removeOlder(folder: string, number: number): void {
  for (const older of numbersIn(folder)) if (older < number) rmSync(fileOf(folder, older), { force: true });
}

function release(folder: string, file: string, own: string, clock: Clock): void {
  // Released twice, or the folder was deleted meanwhile: not ours any more.
  if (textOf(file) !== own) return;
  const draft = writeDraft(folder, JSON.stringify({ released: true }), clock);
  renameSync(draft, file);
}

function textOf(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if (codeOf(error) === "ENOENT" || codeOf(error) === "ENOTDIR") return undefined;
    throw notWritable(file, error);
  }
}

/** Undefined for a released lock, and for one a power cut left unreadable: its owner did not survive that either. */
function ownerIn(text: string): Owner | undefined {
  try {
    const found = JSON.parse(text) as Partial<Owner>;
    return Number.isInteger(found.pid) ? (found as Owner) : undefined;
  } catch {
    return undefined;
  }
}

function fileOf(folder: string, number: number): string {
  return join(folder, `troupe-owner.${number}`);
}

function held(path: string, { pid }: Owner): TroupeError {
  const by = pid === process.pid ? "already open in this process" : `in use by process ${pid}`;
  return new TroupeError("store_held", `The store at ${path} is ${by}. Close it there, or choose another path.`, {
    details: { pid, path },
  });
}

function notWritable(path: string, cause: unknown): TroupeError {
  return new TroupeError(
    "store_not_writable",
    `The store needs a folder it can create and write: ${messageOf(cause)}. Check the path and its permissions.`,
    { details: { path }, cause },
  );
}

function codeOf(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException).code;
}

/** A process, told apart from a later one that was given the same pid. */
export interface Owner {
  readonly pid: number;
  /** Which boot and which moment of it the process started at; absent where the system does not say. */
  readonly started?: string;
}

/** The process this code runs in. */
export function thisProcess(): Owner {
  const seen = look(process.pid);
  return seen === undefined ? { pid: process.pid } : { pid: process.pid, started: seen.started };
}

/** Is this very process still running? A zombie is not, and neither is one whose pid was reused. */
export function isRunning(owner: Owner): boolean {
  const seen = look(owner.pid);
  if (seen === undefined) return answersSignals(owner.pid);
  return !seen.dead && (owner.started === undefined || owner.started === seen.started);
}

/** What Linux says about a process; undefined on other systems, for hidden processes, and when it is gone. */
function look(pid: number): { readonly started: string; readonly dead: boolean } | undefined {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The second field is the program's name in parentheses and may contain anything; what follows is fixed.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const [state, ticks] = [fields[0], fields[19]];
    if (ticks === undefined) return undefined;
    return { started: `${boot}/${ticks}`, dead: state === "Z" || state === "X" };
  } catch {
    return undefined;
  }
}

function answersSignals(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // Not allowed to signal it: so it is there.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
