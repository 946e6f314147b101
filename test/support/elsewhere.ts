import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { SessionOptions, TroupeOptions, TurnOptions } from "troupe";
import { onTestFinished } from "vitest";
import { openLmdb, openLmdbReader } from "../../dist/src/store/index.js";
import { fixture, until } from "./runtime.js";

export interface TurnElsewhere extends SessionOptions {
  readonly input?: string;
  /** Asked for instead of a turn. */
  readonly command?: string;
  readonly extras?: TurnOptions;
}

interface Said {
  readonly type: string;
  readonly key?: string;
  readonly code?: string;
  readonly receipt?: unknown;
}

/** A process of its own that runs one turn of session "s", or a command. Its options must be plain but for the URLs of modules. */
export class Elsewhere {
  readonly #program: ChildProcess;
  readonly #exited: Promise<unknown>;
  /** What it has said so far. */
  readonly said: Said[] = [];

  constructor(options: TroupeOptions, turn: TurnElsewhere) {
    this.#program = spawn(
      process.execPath,
      [fixture("programs/one-turn.mjs").pathname, JSON.stringify({ options, ...turn })],
      { stdio: ["ignore", "pipe", "inherit"] },
    );
    this.#exited = once(this.#program, "exit");
    const lines = createInterface({ input: this.#program.stdout as NonNullable<ChildProcess["stdout"]> });
    lines.on("line", (line) => this.said.push(JSON.parse(line)));
    onTestFinished(() => this.kill());
  }

  /** Resolves with the first thing of this type that it says. */
  async says(type: string): Promise<Said> {
    await until(`it says ${type}`, () => this.said.some((line) => line.type === type));
    return this.said.find((line) => line.type === type) as Said;
  }

  async kill(): Promise<void> {
    this.#program.kill("SIGKILL");
    await this.#exited;
  }
}

/** Resolves when a session's journal, of a store that another process may have open, has a row with such a key. */
export async function journaled(path: string, ending: string | RegExp, sessionId = "s"): Promise<void> {
  const isIt = (key: string) => (typeof ending === "string" ? key.endsWith(ending) : ending.test(key));
  const reader = openLmdbReader(path);
  try {
    await until(`${ending} is written down`, () => reader?.journal(sessionId).some(({ key }) => isIt(key)) ?? false);
  } finally {
    reader?.close();
  }
}

/** Makes what session "s" has written down so much older, in a store that nobody has open. Says when each row was written then. */
export function ageJournal(path: string, byMs: number): Map<string, number> {
  let now = 0;
  const store = openLmdb(path, { clock: { wallNow: () => now } });
  try {
    const expectedRevision = store.head("s")?.revision ?? 0;
    const over = { sessionId: "s", expectedRevision, epoch: store.claim("s", { owner: "a test", take: "always" }) };
    const rows = store.journal("s").map(({ sequence: _sequence, at, ...row }) => ({ ...row, at: at - byMs }));
    const results = store.write([{ kind: "clear", ...over }]);
    for (const { at, ...row } of rows) {
      now = at;
      results.push(...store.write([{ kind: "record", entry: { ...row, ...over } }]));
    }
    if (results.some(({ ok }) => !ok)) throw new Error("The journal could not be written.");
    return new Map(rows.map(({ key, at }) => [key, at]));
  } finally {
    store.close();
  }
}
