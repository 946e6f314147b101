import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eachOf } from "../measuring/held.js";
import { pause } from "../measuring/neighbours.js";
import { audit } from "./audit.js";
import { Chance } from "./chance.js";
import { COUNTER, KILLED_FROM_OUTSIDE, processOptionsOf, threadOf } from "./options.js";
import { havingMark, markOf } from "./orphans.js";
import { answerTo, TurnRecord } from "./record.js";
import type { FromRuntime, ToRuntime } from "./runtime-messages.js";

export interface ProcessChaosPlan {
  readonly seed: number;
  readonly sessions: number;
  /** How often the process is killed, and how long it lives between: behind that, in the middle of a turn. */
  readonly processKills: number;
  readonly killProcessEveryMs: number;
  /** Threads are killed meanwhile. */
  readonly killEveryMs: number;
  /** Turns under way at once. */
  readonly askers: number;
  readonly progress: (line: string) => void;
}

export interface ProcessChaosReport {
  readonly violations: readonly string[];
  readonly finished: number;
  /** Why turns were refused, with how often. */
  readonly refused: Readonly<Record<string, number>>;
  readonly threadKills: number;
  readonly processKills: number;
  /** Turns that were asked for again because their process was gone: each has one outcome all the same. */
  readonly askedAgain: number;
  /** Turns that a process took up from another. */
  readonly resumed: number;
  /** Finished turns that were asked for again under their keys, and answered. */
  readonly answeredAgain: number;
}

const PROGRAM = new URL("./runtime-process.js", import.meta.url);
const SETUP_AT_ONCE = 64;
/** How long turns may take to end, and the last process to end, once nobody kills anything any more. */
const PATIENCE_MS = 60_000;
/** Of the turns that finished so many are asked for again in each new process. */
const ASKED_AFTERWARDS = 16;
/** How often it is looked whether the processes of a killed runtime have ended. */
const LOOK_MS = 20;
const MOST_LOOKS = 500;

/** The session whose turns are under way when the process is killed. */
const HELD = "held";

type Answer = Extract<FromRuntime, { type: "finished" | "refused" }> | "process killed";

/** What comes of it within the patience there is; undefined: nothing. */
async function inPatience<T>(ending: Promise<T>): Promise<T | undefined> {
  const patience = new AbortController();
  const ended = await Promise.race([ending, pause(PATIENCE_MS, patience.signal).then(() => undefined)]);
  patience.abort();
  return ended;
}

/** One process with a runtime, as the process that asks sees it. */
class RuntimeProcess {
  readonly #child;
  readonly #waiting = new Map<number, { readonly answered: (answer: Answer) => void; readonly onTool: () => void }>();
  readonly #onResumed: () => void;
  /** The number of a process that the runtime has; undefined: it died before it was there. */
  readonly ready: Promise<number | undefined>;
  readonly ended: Promise<unknown[]>;
  #asked = 0;

  constructor(args: readonly string[], onResumed: () => void) {
    this.#onResumed = onResumed;
    this.#child = fork(PROGRAM, [...args], { stdio: ["ignore", "ignore", "inherit", "ipc"] });
    this.ended = once(this.#child, "exit").then((how) => {
      for (const { answered } of this.#waiting.values()) answered("process killed");
      return how;
    });
    const ready = new Promise<number>((resolve) => {
      this.#child.on("message", (message) => this.#said(message as FromRuntime, resolve));
    });
    this.ready = Promise.race([ready, this.ended.then(() => undefined)]);
  }

  ask(session: string, name: string, model: string | undefined, onTool: () => void): Promise<Answer> {
    const id = this.#asked++;
    return new Promise((resolve) => {
      const answered = (answer: Answer) => {
        this.#waiting.delete(id);
        resolve(answer);
      };
      this.#waiting.set(id, { answered, onTool });
      if (!this.tell({ type: "ask", id, session, name, model })) answered("process killed");
    });
  }

  /** False: it is gone. */
  tell(message: ToRuntime): boolean {
    if (!this.#child.connected) return false;
    // One that dies meanwhile says so by its end.
    this.#child.send(message, () => undefined);
    return true;
  }

  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.ended;
  }

  #said(said: FromRuntime, ready: (pid: number) => void): void {
    if (said.type === "ready") ready(said.pid);
    else if (said.type === "resumed") this.#onResumed();
    else if (said.type === "tool") this.#waiting.get(said.id)?.onTool();
    else this.#waiting.get(said.id)?.answered(said);
  }
}

/** The runtime over all its processes: a turn whose process is gone is asked for again, under its key, of the next. */
class Runtime {
  readonly #args: readonly string[];
  readonly #record: TurnRecord;
  #current: Promise<RuntimeProcess>;
  #mark: string | undefined;
  askedAgain = 0;
  resumed = 0;

  constructor(args: readonly string[], record: TurnRecord) {
    this.#args = args;
    this.#record = record;
    this.#current = this.#start();
  }

  /** The turn's text. Rejects when it was refused. */
  async answer(session: string, name: string, model?: string, onTool: () => void = () => undefined): Promise<string> {
    for (;;) {
      const answer = await (await this.#current).ask(session, name, model, onTool);
      if (answer === "process killed") this.askedAgain++;
      else if (answer.type === "finished") return answer.text;
      else throw Object.assign(new Error("The turn did not finish."), { code: answer.code });
    }
  }

  async killThread(target: Extract<ToRuntime, { type: "kill" }>["target"]): Promise<void> {
    (await this.#current).tell({ type: "kill", target });
  }

  /** Kills the process; the next one is there when this resolves, and nothing of the one before. */
  async killProcess(): Promise<void> {
    const before = await this.#current;
    const mark = this.#mark;
    const next = before.kill().then(() => this.#start());
    this.#current = next;
    await next;
    if (mark !== undefined) await this.#untilGone(mark);
  }

  async close(): Promise<void> {
    const last = await this.#current;
    last.tell({ type: "close" });
    const [code] = (await inPatience(last.ended)) ?? [];
    if (code !== 0) this.#record.violations.push(`The last process did not end by itself: ${code ?? "it goes on"}.`);
    if (code === undefined) await last.kill();
    if (this.#mark !== undefined) await this.#untilGone(this.#mark);
  }

  async #start(): Promise<RuntimeProcess> {
    const process = new RuntimeProcess(this.#args, () => this.resumed++);
    const pid = await process.ready;
    if (pid === undefined) throw new Error("A process ended before its runtime was there.");
    this.#mark = markOf(pid);
    return process;
  }

  async #untilGone(mark: string): Promise<void> {
    for (let look = 0; look < MOST_LOOKS; look++) {
      if (havingMark(mark).length === 0) return;
      await pause(LOOK_MS);
    }
    this.#record.violations.push(`Processes of a killed runtime are left: ${havingMark(mark).join(", ")}.`);
  }
}

/**
 * Turns on many sessions of a runtime whose threads are killed one after the other, and its whole process now and then: the
 * next one has the same store. Then what was told is compared with that.
 */
export async function chaosOfProcesses(plan: ProcessChaosPlan): Promise<ProcessChaosReport> {
  const { seed, sessions: count, processKills, killProcessEveryMs, killEveryMs, askers, progress } = plan;
  const path = await mkdtemp(join(tmpdir(), "troupe-chaos-"));
  const record = new TurnRecord();
  const ids = Array.from({ length: count }, (_, n) => `session-${n}`);
  const chance = new Chance(seed);
  const askersChance = new Chance(~seed);
  let isOver = false;
  let threadKills = 0;
  let answeredAgain = 0;
  try {
    progress(`opening ${count} sessions`);
    const runtime = new Runtime([path, String(count)], record);
    const ask = async (id: string, name: string) => {
      const turn = () => runtime.answer(id, name);
      // A caller that was refused may ask again: under the same key it is the same turn, and runs once.
      if (!(await record.ask(id, name, turn))) await record.ask(id, name, turn);
    };
    await eachOf(ids, SETUP_AT_ONCE, (id) => ask(id, `${id} first`));
    const loops = Array.from({ length: askers }, async (_, asker) => {
      for (let n = 0; !isOver; n++) {
        const id = ids[askersChance.below(count)] as string;
        await ask(id, `${id} asker ${asker} turn ${n}`);
      }
    });
    const threads = (async () => {
      for (; !isOver; threadKills++) {
        await pause(killEveryMs);
        await runtime.killThread(threadOf(chance.of(KILLED_FROM_OUTSIDE), chance));
      }
    })();
    for (let n = 0; n < processKills; n++) {
      await pause(killProcessEveryMs);
      await killInATurn(runtime, record, n);
      answeredAgain += await askFinished(runtime, record, askersChance);
      progress(
        `${n + 1} processes and ${threadKills} threads killed, ${record.finished} turns finished, ${record.violations.length} violations`,
      );
    }
    isOver = true;
    if ((await inPatience(Promise.all([...loops, threads]))) === undefined)
      for (const name of record.open) record.violations.push(`The turn ${name} was told nothing.`);
    progress("closing");
    await runtime.close();
    progress(`opening the store anew: ${record.finished} finished turns must be there`);
    await audit(processOptionsOf(path, count), record, `${COUNTER}.turns`);
    const { violations, finished, codes } = record;
    const { askedAgain, resumed } = runtime;
    const refused = Object.fromEntries(codes);
    return { violations, finished, refused, threadKills, processKills, askedAgain, resumed, answeredAgain };
  } finally {
    await rm(path, { recursive: true, force: true });
  }
}

/** The process is killed while a tool holds a turn, which the next process takes up: its one outcome is told there. */
async function killInATurn(runtime: Runtime, record: TurnRecord, n: number): Promise<void> {
  const name = `held ${n}`;
  let isKilled: Promise<void> | undefined;
  const turn = () => {
    const onTool = () => {
      isKilled ??= runtime.killProcess();
    };
    return runtime.answer(HELD, name, "holding", onTool);
  };
  // Refused where a thread was killed under it; what counts is that the process is killed within a turn.
  while (!(await record.ask(HELD, name, turn)) && isKilled === undefined);
  await isKilled;
}

/**
 * Turns that finished in processes before this one are answered under their keys, and none of them runs again: of each
 * session the last, because a session keeps the keys of its last turns only.
 */
async function askFinished(runtime: Runtime, record: TurnRecord, chance: Chance): Promise<number> {
  const finished = [...record.sessions]
    .filter(([id]) => id !== HELD)
    .flatMap(([id, told]) => [...told.finished].slice(-1).map((name) => [id, name] as const));
  const some = Array.from({ length: ASKED_AFTERWARDS }, () => finished[chance.below(finished.length)]);
  await Promise.all(
    some.map(async (each) => {
      if (each === undefined) return;
      const [id, name] = each;
      const text = await runtime.answer(id, name).catch(({ code }) => `a refusal: ${code}`);
      // Whoever asks while a thread is killed is refused, and is told nothing wrong by that.
      if (text !== answerTo(name) && !text.startsWith("a refusal: worker_lost"))
        record.violations.push(`The finished turn ${name} of ${id} was answered again with ${text}.`);
    }),
  );
  return some.length;
}
