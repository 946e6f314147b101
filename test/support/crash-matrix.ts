import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createTroupe, type Troupe, type TroupeOptions } from "troupe";
import { onTestFinished } from "vitest";
import { fixture, tempFolder, until } from "./runtime.js";

// Plain modules, shared with the program that is killed.
const { referenceOptions } = (await import(fixture("crash/runtime.mjs").href)) as {
  referenceOptions: (parts: {
    folder: string;
    tier: "inline" | "worker";
    troupe: () => Troupe;
    kill: () => void;
  }) => TroupeOptions;
};
const { linesOf, isAtItsLine } = (await import(fixture("crash/seams.mjs").href)) as {
  linesOf: (folder: string, sessionId: string) => string[];
  isAtItsLine: (folder: string, sessionId: string) => boolean;
};

export interface CrashOrder {
  /** Right behind which line of the trace. */
  readonly line: string;
  readonly kills: "thread" | "process";
  readonly delayMs: number;
  /** Waits there, and crashes nothing. */
  readonly holds?: true;
  /** The sessions that are to be at their lines by then, this one among them; without them it crashes alone. */
  readonly group?: readonly string[];
}

/** A folder with a store and the effects of its sessions; what crashes where is ordered beforehand. */
export class CrashFolder {
  readonly folder: string;

  private constructor(folder: string) {
    this.folder = folder;
  }

  static async create(): Promise<CrashFolder> {
    const folder = await tempFolder();
    mkdirSync(join(folder, "store"));
    return new CrashFolder(folder);
  }

  /** The first crash of a session, and perhaps a second one while it recovers. */
  order(sessionId: string, ...orders: readonly CrashOrder[]): void {
    for (const [index, order] of orders.entries())
      writeFileSync(join(this.folder, `${sessionId}.order${index + 1}`), JSON.stringify(order));
  }

  /** What was ordered and not met is not met any more. */
  countermand(sessionId: string): void {
    for (const nth of [1, 2]) rmSync(join(this.folder, `${sessionId}.order${nth}`), { force: true });
  }

  lines(sessionId: string): string[] {
    return linesOf(this.folder, sessionId);
  }

  /** How often each effect was begun. */
  counts(sessionId: string): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const line of this.lines(sessionId))
      if (line.startsWith(">")) counts[line.slice(1)] = (counts[line.slice(1)] ?? 0) + 1;
    return counts;
  }

  async start(tier: "inline" | "worker"): Promise<Troupe> {
    const troupe: Troupe = await createTroupe(
      referenceOptions({
        folder: this.folder,
        tier,
        troupe: () => troupe,
        kill: () => void troupe.kill({ sessionWorker: 0 }),
      }),
    );
    onTestFinished(() => troupe.close());
    return troupe;
  }

  /** Resolves when these sessions are where they are to crash. */
  async atTheirLines(sessionIds: readonly string[]): Promise<void> {
    for (const id of sessionIds) await until(`${id} is at its line`, () => isAtItsLine(this.folder, id));
  }

  /** Runs the reference turn of these sessions in a process that is killed as soon as each was told that it is cancelled. */
  runUntilCancelled(sessionIds: readonly string[]): Promise<NodeJS.Signals | number | null> {
    return this.#run("cancelled-turns.mjs", sessionIds);
  }

  /**
   * Runs the reference turn of a group of sessions in a process of their own, with others beside them; resolves with what
   * ended it.
   */
  runUntilKilled(group: readonly string[], others: readonly string[]): Promise<NodeJS.Signals | number | null> {
    return this.#run("reference-turn.mjs", [others.join(","), ...group]);
  }

  async #run(name: string, args: readonly string[]): Promise<NodeJS.Signals | number | null> {
    const program: ChildProcess = spawn(
      process.execPath,
      [fixture(`programs/${name}`).pathname, this.folder, ...args],
      { stdio: ["ignore", "ignore", "inherit"] },
    );
    const [code, signal] = (await once(program, "exit")) as [number | null, NodeJS.Signals | null];
    return signal ?? code;
  }
}

/** Does something for each item, so many at a time. */
export async function eachOf<T>(items: readonly T[], atOnce: number, run: (item: T) => Promise<void>): Promise<void> {
  const left = [...items];
  const next = async (): Promise<void> => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) await run(item);
  };
  await Promise.all(Array.from({ length: atOnce }, next));
}
