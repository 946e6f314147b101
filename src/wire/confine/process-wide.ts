import { TroupeError } from "../../kernel/index.js";

type Functions = Record<string, unknown>;

/** What Node has for the whole process, by module. Whatever it refuses a thread by itself is not listed. */
const PROCESS_WIDE: Readonly<Record<string, readonly string[]>> = {
  // A signal reaches the whole process, and SIGUSR1 opens its inspector.
  process: ["_kill"],
  os: ["setPriority"],
  v8: ["setFlagsFromString", "setHeapSnapshotNearHeapLimit"],
  module: ["register"],
  inspector: ["open", "Session"],
};

/**
 * Takes from this thread, before it imports a plugin or a tool, what changes the whole process, unless it has all
 * permissions. What was closed before is closed for every way of importing it, too.
 */
export function closeProcessWide(): void {
  // There only with Node's permission model, which `permissions: "all"` leaves off.
  if (process.permission !== undefined) {
    const { _kill: kill } = process as unknown as { _kill(pid: number, signal: number): number };
    for (const [name, functions] of Object.entries(PROCESS_WIDE)) closeFunctions(name, functions);
    process.kill = (pid, signal) => asking(kill, pid, signal);
    // It has the host's whole environment.
    Reflect.deleteProperty(process, "report");
  }
  // Names imported by `import { setPriority } from "node:os"` are the closed ones too.
  builtin("module").syncBuiltinESMExports();
}

/** Signal 0 asks whether a process is there, and reaches nobody. */
function asking(kill: (pid: number, signal: number) => number, pid: number, signal?: string | number): true {
  if (signal !== 0) throw processWide("process.kill");
  const problem = kill(pid, 0);
  if (problem === 0) return true;
  const code = builtin("util").getSystemErrorName(problem);
  throw Object.assign(new Error(`kill ${code}`), { code, errno: problem, syscall: "kill" });
}

/** Has functions of one of Node's modules refused to this thread. */
export function closeFunctions(name: string, functions: readonly string[]): void {
  const module = name === "process" ? (process as unknown as Functions) : builtin(name);
  for (const each of functions) {
    if (typeof module[each] !== "function") continue;
    // Not an arrow: some of these are constructed.
    module[each] = function refused(): never {
      throw processWide(`${name}.${each}`);
    };
  }
}

function processWide(what: string): TroupeError {
  const message = `${what} reaches past this thread, so neither a plugin nor a tool can call it. Let the host application do it, or give its entry permissions: "all".`;
  return new TroupeError("process_wide", message, { details: { call: what } });
}

/** The module's own object, which every way of importing it leads to. */
// biome-ignore lint/suspicious/noExplicitAny: Node's modules, whose functions are replaced here
export function builtin(name: string): Record<string, any> {
  return process.getBuiltinModule(`node:${name}`) as never;
}
