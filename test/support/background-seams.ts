import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Troupe, TroupeOptions } from "troupe";
import { MONITORS } from "../../dist/src/kernel/index.js";
import { OCCURRENCES, openLmdb, SCHEDULES, TASKS } from "../../dist/src/store/index.js";
import { decode } from "../../dist/src/wire/index.js";
import { fixture, NODE_ARGS, startTroupe, tempFolder } from "./runtime.js";

// Plain modules, shared with the program that is killed.
const shared = (await import(fixture("crash/background.mjs").href)) as {
  backgroundOptions: (folder: string) => TroupeOptions;
  pidsIn: (file: string) => number[];
};
export const { pidsIn } = shared;

/** What of a scenario the store has. */
export interface Left {
  readonly tasks: readonly LeftTask[];
  readonly monitors: readonly { readonly end: object | null }[];
  readonly events: readonly { readonly matched: number; readonly isDone: boolean }[];
  readonly schedules: readonly { readonly key: string; readonly runs: number }[];
}

interface LeftTask {
  readonly id: string;
  readonly kind: string;
  readonly state: string;
  readonly steps: number;
  readonly run: number;
  readonly wake: number | null;
  readonly untold: boolean;
}

/** Those that have something going on. */
const SESSIONS = ["s", "told"];

/** A scenario in a process that was killed right behind its nth write. */
export class KilledAt {
  readonly folder: string;
  /** How many writes there are in all, when the process came to its end before it was to be killed. */
  readonly writes: number | undefined;
  /** Of the processes that its monitors and its plugins had. */
  readonly pids: readonly number[];
  readonly others: readonly number[];

  private constructor(folder: string, writes: number | undefined) {
    this.folder = folder;
    this.writes = writes;
    this.pids = pidsIn(this.path("monitor"));
    this.others = pidsIn(this.path("process"));
  }

  static async write(nth: number | `${"worker" | "plugins"} ${0 | 1}`, scenario: string): Promise<KilledAt> {
    const folder = await tempFolder();
    mkdirSync(join(folder, "store"));
    const program = fixture("programs/background-until-killed.mjs").pathname;
    const child = spawn(process.execPath, [...NODE_ARGS, program, scenario, folder, String(nth)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let said = "";
    child.stdout.on("data", (text) => {
      said += text;
    });
    const [code, signal] = (await once(child, "exit")) as [number | null, NodeJS.Signals | null];
    if (signal !== "SIGKILL" && code !== 0) throw new Error(`${scenario} ended with ${signal ?? code}.`);
    return new KilledAt(folder, signal === "SIGKILL" ? undefined : Number(said));
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  /** What the process has left. Before the next one is started. */
  left(): Left {
    const store = openLmdb(this.path("store"));
    try {
      const of = <T>(table: string) =>
        SESSIONS.flatMap((session) =>
          store
            .rows({ table, session, limit: 100 })
            .map(({ key, value }) => ({ id: key, ...decode<T & object>(value) })),
        );
      return {
        tasks: of<Omit<LeftTask, "id">>(TASKS),
        monitors: of<{ end: object | null }>(MONITORS),
        events: store.rows({ table: OCCURRENCES, limit: 10 }).map(({ value, order }) => ({
          ...decode<{ matched: number }>(value),
          isDone: order?.owner === "done",
        })),
        schedules: store
          .rows({ table: SCHEDULES, limit: 10 })
          .map(({ key, value }) => ({ key, ...decode<{ runs: number }>(value) })),
      };
    } finally {
      store.close();
    }
  }

  next(): Promise<Troupe> {
    return startTroupe(shared.backgroundOptions(this.folder));
  }
}
