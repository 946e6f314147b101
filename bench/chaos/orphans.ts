import { readdirSync, readFileSync } from "node:fs";

/** The variable that tells a runtime's processes from all others. */
const MARK = /TROUPE_PROCESS=[^\0]+/;

/** What all processes of one runtime bear, read from one of them; undefined where the system does not tell. */
export function markOf(pid: number): string | undefined {
  return MARK.exec(read(pid, "environ"))?.[0];
}

/** The processes that bear such a mark, the one that watches over them included. */
export function havingMark(mark: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => isAlive(pid) && ["environ", "cmdline"].some((file) => read(pid, file).includes(mark)));
}

/** One that has ended and waits for its parent to notice is none. */
function isAlive(pid: number): boolean {
  return /^\S+ \(.*\) [^ZX]/s.test(read(pid, "stat"));
}

function read(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "latin1");
  } catch {
    return "";
  }
}
