import { once } from "node:events";
import { TroupeError } from "../kernel/index.js";
import { type Started, spawnGuard } from "./spawn.js";

/** The variable that every process of a runtime has, with the runtime's own value. */
const MARK = "TROUPE_PROCESS";

/**
 * `+ 12` and `- 12` say that there is a group, or no more. When nobody writes any more, those left are ended; and where
 * there is a /proc, whatever still has the mark, such as what was started in the moment its host died. A process of that
 * kind that starts others meanwhile is looked for again.
 */
const SCRIPT = `
trap '' INT TERM HUP QUIT PIPE
groups=' '
while read -r said id; do
  case "$said" in
    +) groups="$groups$id " ;;
    -) case "$groups" in *" $id "*) groups="\${groups%% $id *} \${groups#* $id }" ;; esac ;;
  esac
done
for id in $groups; do kill -KILL -- "-$id" 2>/dev/null; done
round=0
while [ -r /proc/self/environ ] && [ $round -lt 20 ]; do
  round=$((round + 1))
  left=$(grep -lsF -- "$1" /proc/[0-9]*/environ 2>/dev/null)
  [ -n "$left" ] || break
  for file in $left; do
    id=\${file#/proc/}
    kill -KILL "\${id%/environ}" 2>/dev/null
  done
done
`;

const MOST_STARTS = 10;

/**
 * Ends the processes of this thread when the thread, or the whole host, is no more. It is a small process of its own, since
 * nobody tells a child that its parent was killed; it starts with the first process.
 */
export class Guard {
  readonly #mark: string;
  readonly #groups = new Set<number>();
  #child: Started | undefined;
  #starting: Promise<void> | undefined;
  #starts = 0;
  #closing = false;

  constructor(id: string) {
    this.#mark = `${MARK}=${id}`;
  }

  /** What every process is to have in its environment. */
  get marks(): Readonly<Record<string, string>> {
    return { [MARK]: this.#mark.slice(MARK.length + 1) };
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Resolves when it watches. */
  async ready(): Promise<void> {
    if (this.#child !== undefined) return;
    this.#starting ??= this.#start().finally(() => {
      this.#starting = undefined;
    });
    await this.#starting;
  }

  add(group: number): void {
    this.#groups.add(group);
    this.#say(`+ ${group}`);
  }

  remove(group: number): void {
    if (this.#groups.delete(group)) this.#say(`- ${group}`);
  }

  /** Resolves when it has ended, and whatever was left before it. */
  async close(): Promise<void> {
    this.#closing = true;
    await this.#starting?.catch(() => undefined);
    const child = this.#child;
    if (child === undefined) return;
    const ended = child.exitCode === null && child.signalCode === null ? once(child, "exit") : undefined;
    child.stdin?.end();
    await ended;
  }

  async #start(): Promise<void> {
    if (process.platform === "win32") throw unsupported("Windows has no process groups");
    if (this.#starts >= MOST_STARTS) throw unsupported("the guard was ended again and again by somebody");
    this.#starts++;
    const child = await spawnGuard(SCRIPT, this.#mark).catch((cause: unknown) => {
      throw unsupported("the guard that ends them with their host needs /bin/sh", cause);
    });
    this.#child = child;
    // It ended: its exit says so.
    child.stdin?.on("error", () => undefined);
    child.once("exit", () => {
      this.#child = undefined;
      // Somebody ended it. Whatever runs is watched by another one.
      if (!this.#closing && this.#groups.size > 0) this.ready().catch(() => undefined);
    });
    for (const group of this.#groups) this.#say(`+ ${group}`);
  }

  #say(line: string): void {
    this.#child?.stdin?.write(`${line}\n`);
  }
}

function unsupported(why: string, cause?: unknown): TroupeError {
  return new TroupeError("processes_unsupported", `A plugin cannot have processes here: ${why}.`, { cause });
}
