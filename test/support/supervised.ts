import { execFileSync } from "node:child_process";
import { closeSync, constants, mkdtempSync, openSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  createTroupe,
  type Session,
  type Troupe,
  TroupeError,
  type TroupeOptions,
  type TurnOptions,
  type TurnResult,
} from "troupe";
import { afterAll, beforeEach, expect } from "vitest";
import { RESIDENT, until } from "./runtime.js";
import { type Deed, type Reason, takesLong } from "./supervisor-matrix.js";

/** More than there are deeds: a plugin that fails more sessions than not is given up for all. */
const NEIGHBOURS = Array.from({ length: 12 }, (_, n) => `neighbour ${n}`);

/** Warnings of the test that runs, each as its code with its reason. */
export function warnings(): string[] {
  const heard: string[] = [];
  const listener = (warning: Error) => {
    if (warning instanceof TroupeError) heard.push(wordsOf(warning));
  };
  process.on("warning", listener);
  beforeEach(() => void heard.splice(0));
  afterAll(() => void process.off("warning", listener));
  return heard;
}

function wordsOf({ code, details }: TroupeError): string {
  return typeof details.reason === "string" ? `${code} (${details.reason})` : code;
}

/** What a turn came to, as the matrix says it. */
export async function reasonOf(turn: PromiseLike<TurnResult>): Promise<string> {
  try {
    const { outcome, issues, toolCalls } = await turn;
    const failed = toolCalls.find(({ output }) => output.status === "failure")?.output;
    if (failed?.status === "failure") return `${outcome.type}, tool: ${failed.failure.code}`;
    const [issue] = issues;
    if (issue === undefined) return outcome.type;
    const words =
      /thrown on purpose|(ended|blocked) its thread|used more heap|held more memory in buffers|replaced functions/.exec(
        issue.message,
      )?.[0];
    return `${outcome.type}, issue: ${issue.code} (${words})`;
  } catch (error) {
    if (!(error instanceof TroupeError)) throw error;
    const { cause } = error;
    const isHooks = error.code === "plugin_prepare_turn" && cause instanceof TroupeError;
    return `refused: ${isHooks ? `${error.code} < ${wordsOf(cause)}` : wordsOf(error)}`;
  }
}

/** A pipe in a folder of its own. Whoever reads it is held by the system until {@link release}. */
export class Pipe {
  readonly folder = mkdtempSync(join(tmpdir(), "troupe-test-"));
  readonly path = join(this.folder, "pipe");

  constructor() {
    execFileSync("mkfifo", [this.path]);
    afterAll(() => {
      this.release();
      rmSync(this.folder, { recursive: true, force: true });
    });
  }

  /** Whoever reads finds the end. */
  release(): void {
    try {
      closeSync(openSync(this.path, constants.O_WRONLY | constants.O_NONBLOCK));
    } catch (error) {
      // Nobody reads.
      if ((error as NodeJS.ErrnoException).code !== "ENXIO") throw error;
    }
  }
}

interface Neighbours {
  readonly troupe: Troupe;
  readonly sessions: readonly Session[];
  /** Every neighbour takes a turn. */
  turns(): Promise<string>[];
}

/** One runtime for the cells of a row, with sessions that do nothing wrong. */
export class Row {
  readonly #start: (deed: Deed) => Promise<TroupeOptions>;
  readonly #turnOf: (text: string) => string;
  readonly #withoutPlugins: readonly string[];
  readonly #apart: boolean;
  readonly #started = new Map<string, Promise<Neighbours>>();
  #keys = 0;

  constructor({
    start,
    turnOf = (text) => text,
    withoutPlugins = [],
    apart = false,
  }: {
    readonly start: (deed: Deed) => Promise<TroupeOptions>;
    readonly turnOf?: (text: string) => string;
    /** Ids of plugins that one of the neighbours does without. */
    readonly withoutPlugins?: readonly string[];
    /** Each deed has a runtime of its own: a thread that ends by itself again and again is given up. */
    readonly apart?: boolean;
  }) {
    this.#apart = apart;
    this.#start = start;
    this.#turnOf = turnOf;
    this.#withoutPlugins = withoutPlugins;
    afterAll(async () => {
      for (const started of this.#started.values()) await (await started).troupe.close();
    });
  }

  /** A deed that takes longer than blocked threads are given has a runtime where they are given more. */
  for(deed: Deed): Promise<Neighbours> {
    const place = this.#apart ? deed : String(takesLong(deed));
    let started = this.#started.get(place);
    if (started === undefined) {
      started = this.#open(deed);
      this.#started.set(place, started);
    }
    return started;
  }

  /** By a key: a turn that was stored while its answer was lost is answered too. */
  turn(session: Session, text: string): PromiseLike<TurnResult> {
    const options: TurnOptions = { key: `k${this.#keys++}` };
    return session.turn(this.#turnOf(text), options);
  }

  async #open(deed: Deed): Promise<Neighbours> {
    const troupe = await createTroupe({ ...RESIDENT, sessionWorkers: 1, drainMs: 500, ...(await this.#start(deed)) });
    const sessions = await Promise.all(NEIGHBOURS.map((id) => troupe.session(id)));
    const turns = () => sessions.map((session) => reasonOf(this.turn(session, "hello")));
    expect(new Set(await Promise.all(turns()))).toEqual(new Set(["finished"]));
    if (this.#withoutPlugins.length > 0) {
      const authority = { withoutPlugins: this.#withoutPlugins };
      sessions.push(await (sessions[0] as Session).fork({ id: "neighbour without it", at: "leaf", authority }));
    }
    return { troupe, sessions, turns };
  }
}

/**
 * Has the host been warned of what the cell says, and of nothing else? Meanwhile the neighbours go on: what code does while
 * no call holds its thread may be found with their next turn only.
 */
export async function expectWarned(
  heard: readonly string[],
  { warned, mayWarn }: Reason,
  goOn: () => Promise<unknown> = async () => undefined,
): Promise<void> {
  if (warned !== undefined)
    await until(`the host is warned of ${warned}`, async () => {
      if (heard.length === 0) await goOn();
      return heard.length > 0;
    });
  // A call that is made again may do it again.
  expect([...new Set(heard)].filter((each) => each !== mayWarn)).toEqual(warned === undefined ? [] : [warned]);
}
