import { readFileSync } from "node:fs";

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
