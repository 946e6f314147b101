import { readdirSync, readFileSync } from "node:fs";

/** Is there such a process, other than one that has ended and waits for its parent to notice? */
export function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return !/^\S+ \(.*\) [ZX]/s.test(stat);
  } catch {
    return false;
  }
}

/** The processes that bear a runtime's mark as this one does, and those in the groups of these. */
export function kindred(pid: number): { readonly mark: string; readonly pids: () => number[] } {
  const mark = /TROUPE_PROCESS=[^\0]+/.exec(readFileSync(`/proc/${pid}/environ`, "utf8"))?.[0] ?? "";
  const pids = () =>
    readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map(Number)
      .filter((each) => {
        try {
          return isAlive(each) && readFileSync(`/proc/${each}/environ`, "utf8").includes(mark);
        } catch {
          return false;
        }
      });
  return { mark, pids };
}
