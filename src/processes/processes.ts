import type { Clock } from "../async/index.js";
import {
  type ProcessOutput,
  type ProcessSignal,
  type ProcessSpec,
  type ProcessView,
  type ReadSpec,
  TroupeError,
} from "../kernel/index.js";
import { Child } from "./child.js";
import type { Guard } from "./guard.js";
import { KeptOutput } from "./kept-output.js";

/** Whose a process is: one plugin's, in one session. */
export interface ProcessOwner {
  readonly sessionId: string;
  readonly pluginId: string;
}

const MOST_RUNNING = 256;
const MOST_OF_SESSION = 16;
/** Processes that have ended are kept for whoever still reads what they said. */
const MOST_ENDED_OF_SESSION = 32;
/** Of what was asked of a process so many are known again. */
const MOST_DONE = 4_096;

interface Known extends ProcessOwner {
  readonly id: string;
  readonly argv: readonly string[];
  readonly startedAt: number;
  /** What asked for it, where that may ask again. */
  readonly asked: string | undefined;
  readonly child: Child;
  readonly stdout: KeptOutput;
  readonly stderr: KeptOutput;
  /** Names of writes and signals that the process has had: a plugin's call that is made again asks under the same ones. */
  readonly done: Set<string>;
}

/** The processes of plugins, by session; each is known to its own plugin alone. */
export class Processes {
  readonly #clock: Clock;
  readonly #guard: Guard;
  readonly #known = new Map<string, Known>();
  /** By session: those that are being started. */
  readonly #starting = new Map<string, Set<{ readonly asked: string | undefined; readonly started: Promise<Known> }>>();

  constructor({ clock, guard }: { readonly clock: Clock; readonly guard: Guard }) {
    this.#clock = clock;
    this.#guard = guard;
  }

  /** `asked` is the asker's own name for what it asks: asked for again, it is the process that was started for it. */
  async start(owner: ProcessOwner, spec: ProcessSpec, asked?: string): Promise<ProcessView> {
    if (asked !== undefined) {
      const before = this.#of(owner).find((known) => known.asked === asked);
      if (before !== undefined) return viewOf(before);
      for (const each of this.#starting.get(owner.sessionId) ?? [])
        if (each.asked === asked) return viewOf(await each.started);
    }
    this.#checkRoom(owner.sessionId);
    const starting = { asked, started: this.#begin(owner, spec, asked) };
    const all = this.#starting.get(owner.sessionId) ?? new Set();
    this.#starting.set(owner.sessionId, all.add(starting));
    try {
      return viewOf(await starting.started);
    } finally {
      all.delete(starting);
      if (all.size === 0) this.#starting.delete(owner.sessionId);
    }
  }

  list(owner: ProcessOwner): ProcessView[] {
    return this.#of(owner).map(viewOf);
  }

  async read(owner: ProcessOwner, id: string, spec: ReadSpec, signal: AbortSignal): Promise<ProcessOutput> {
    const known = this.#find(owner, id);
    const output = known[spec.stream];
    if (spec.waitMs > 0) await this.#until(spec.waitMs, signal, (tell) => output.onBehind(spec.from, tell));
    return output.read(spec);
  }

  /** The process as it is when it has ended, or when that was waited for long enough. */
  async wait(owner: ProcessOwner, id: string, waitMs: number, signal: AbortSignal): Promise<ProcessView> {
    const known = this.#find(owner, id);
    await this.#until(waitMs, signal, (tell) => {
      void known.child.ended.then(tell);
      return () => undefined;
    });
    return viewOf(known);
  }

  /** `asked`: as of {@link start}. What was written for it is not written again. */
  write(owner: ProcessOwner, id: string, bytes: string | Uint8Array, asked?: string): void {
    const known = this.#find(owner, id);
    once(known, asked, () => known.child.write(bytes));
  }

  closeInput(owner: ProcessOwner, id: string): void {
    this.#find(owner, id).child.closeInput();
  }

  signal(owner: ProcessOwner, id: string, signal: ProcessSignal, asked?: string): void {
    const known = this.#find(owner, id);
    once(known, asked, () => known.child.signalAll(signal));
  }

  async stop(owner: ProcessOwner, id: string): Promise<ProcessView> {
    const known = this.#find(owner, id);
    await known.child.stop();
    return viewOf(known);
  }

  /** Ends all of a session, also those that are about to start, and forgets them. */
  async endSession(sessionId: string): Promise<void> {
    const starting = [...(this.#starting.get(sessionId) ?? [])].map(({ started }) => started);
    await Promise.allSettled(starting);
    const all = [...this.#known.values()].filter((known) => known.sessionId === sessionId);
    for (const { id } of all) this.#known.delete(id);
    await Promise.all(all.map(({ child }) => child.stop()));
  }

  async close(): Promise<void> {
    const sessions = [...this.#known.values()].map(({ sessionId }) => sessionId);
    await Promise.all([...new Set([...sessions, ...this.#starting.keys()])].map((id) => this.endSession(id)));
  }

  get running(): number {
    let running = 0;
    for (const { child } of this.#known.values()) if (child.running) running++;
    return running;
  }

  async #begin(owner: ProcessOwner, spec: ProcessSpec, asked: string | undefined): Promise<Known> {
    const { sessionId, pluginId } = owner;
    const stdout = new KeptOutput(spec.keepBytes);
    const stderr = new KeptOutput(spec.keepBytes);
    const child = await Child.start(spec, { clock: this.#clock, guard: this.#guard, stdout, stderr });
    const { argv } = spec;
    const known = { id: this.#clock.uuid(), sessionId, pluginId, asked, argv, startedAt: this.#clock.wallNow() };
    const started: Known = { ...known, child, stdout, stderr, done: new Set() };
    this.#known.set(started.id, started);
    this.#forgetOld(sessionId);
    return started;
  }

  /** Those that are being started count too: many may be asked for at once. */
  #checkRoom(sessionId: string): void {
    const running = [...this.#known.values()].filter(({ child }) => child.running);
    const ofSession = running.filter((known) => known.sessionId === sessionId).length;
    let starting = 0;
    for (const all of this.#starting.values()) starting += all.size;
    if (ofSession + (this.#starting.get(sessionId)?.size ?? 0) >= MOST_OF_SESSION)
      throw tooMany(`Session ${sessionId}`, MOST_OF_SESSION);
    if (running.length + starting >= MOST_RUNNING) throw tooMany("The runtime", MOST_RUNNING);
  }

  #forgetOld(sessionId: string): void {
    const ended = [...this.#known.values()].filter((known) => known.sessionId === sessionId && !known.child.running);
    for (const { id } of ended.slice(0, -MOST_ENDED_OF_SESSION)) this.#known.delete(id);
  }

  #of({ sessionId, pluginId }: ProcessOwner): Known[] {
    return [...this.#known.values()].filter((known) => known.sessionId === sessionId && known.pluginId === pluginId);
  }

  /** Another plugin's is none, whoever has heard of its id. */
  #find({ sessionId, pluginId }: ProcessOwner, id: string): Known {
    const known = this.#known.get(id);
    if (known !== undefined && known.sessionId === sessionId && known.pluginId === pluginId) return known;
    throw new TroupeError(
      "process_unknown",
      `Plugin ${pluginId} has no process ${JSON.stringify(id)} in this session.`,
      {
        details: { id, pluginId, sessionId },
      },
    );
  }

  #until(ms: number, signal: AbortSignal, listen: (tell: () => void) => () => void): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        timer.cancel();
        forget();
        signal.removeEventListener("abort", done);
        resolve();
      };
      const timer = this.#clock.timeout(ms, done);
      let forget = () => {};
      signal.addEventListener("abort", done, { once: true });
      forget = listen(done);
    });
  }
}

function once({ done }: Known, asked: string | undefined, act: () => void): void {
  if (asked !== undefined && done.has(asked)) return;
  act();
  if (asked === undefined) return;
  done.add(asked);
  const [oldest] = done;
  if (done.size > MOST_DONE && oldest !== undefined) done.delete(oldest);
}

function viewOf({ id, argv, startedAt, child, stdout, stderr }: Known): ProcessView {
  const { pid, running, exitCode, signal } = child;
  const state = running ? "running" : "exited";
  return { id, argv, pid, startedAt, state, exitCode, signal, stdout: stdout.view, stderr: stderr.view };
}

function tooMany(who: string, limit: number): TroupeError {
  return new TroupeError("process_limit", `${who} has ${limit} processes that run, and may have no more.`, {
    retryable: true,
    details: { limit },
  });
}
