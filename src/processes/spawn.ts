import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, statSync } from "node:fs";
import { delimiter, resolve } from "node:path";
import { messageOf, type ProcessSpec, TroupeError } from "../kernel/index.js";

/** The one place that creates child processes: those of sessions, and the guard that ends them with their host. */

export type Started = ChildProcess & { readonly pid: number };

/** A program in a process group of its own, so that it and what it starts can be ended together. */
export function spawnGroup(
  { argv, cwd, env, stdin }: Omit<ProcessSpec, "keepBytes">,
  {
    marks,
    onPid,
  }: {
    /** Variables it has besides those it was given. */
    readonly marks: Readonly<Record<string, string>>;
    /** Told at once, before anything can come in between. */
    readonly onPid: (pid: number) => void;
  },
): Promise<Started> {
  const [program, ...args] = argv as readonly [string, ...string[]];
  const folder = resolve(cwd ?? ".");
  const file = found(program, folder);
  const given = Object.fromEntries(
    env.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]])),
  );
  return begun({ program, cwd: folder }, () => {
    const child = spawn(file, args, {
      argv0: program,
      cwd: folder,
      env: { ...given, ...marks },
      stdio: [stdin ? "pipe" : "ignore", "pipe", "pipe"],
      detached: true,
      shell: false,
    });
    if (child.pid !== undefined) onPid(child.pid);
    return child;
  });
}

/**
 * A shell that reads which groups there are, and ends them when nothing writes to it any more: also when its host was
 * killed, which nobody else is told of. It is in a session of its own, so that nothing meant for its host ends it first.
 */
export function spawnGuard(script: string, mark: string): Promise<Started> {
  const shell = "/bin/sh";
  return begun({ program: shell, cwd: "/" }, () =>
    spawn(shell, ["-c", script, "troupe-guard", mark], {
      cwd: "/",
      env: { ...(process.env.PATH !== undefined && { PATH: process.env.PATH }), LC_ALL: "C" },
      stdio: ["pipe", "ignore", "ignore"],
      detached: true,
    }),
  );
}

async function begun(
  what: { readonly program: string; readonly cwd: string },
  begin: () => ChildProcess,
): Promise<Started> {
  try {
    const child = begin();
    if (child.pid === undefined) throw ((await once(child, "error")) as [Error])[0];
    return child as Started;
  } catch (cause) {
    throw notStarted(what, cause);
  }
}

/** Node says `spawn ENOENT` of a folder that is not there as of a program. */
function notStarted({ program, cwd }: { readonly program: string; readonly cwd: string }, cause: unknown): TroupeError {
  const { code = "EUNKNOWN" } = cause as NodeJS.ErrnoException;
  const path = code === "ENOENT" && !isFolder(cwd) ? cwd : program;
  return new TroupeError("process_not_started", `${path} could not be started: ${messageOf(cause)}.`, {
    details: { code, path },
  });
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

/** A name without a slash is one of the host's PATH: the process itself may have none. */
function found(program: string, cwd: string): string {
  if (program.includes("/")) return resolve(cwd, program);
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    const file = resolve(folder, program);
    if (folder !== "" && isProgram(file)) return file;
  }
  return program;
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}

/** A signal for a whole group; nothing when it has ended. */
export function signalGroup(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid, signal);
  } catch {
    // Nobody is left, or the last one changed whose it is.
  }
}
