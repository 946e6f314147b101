import type { Session, Troupe, TroupeError, TurnResult } from "troupe";
import { randomFrom } from "./random.js";

/** Turns on their way at any time; a few sessions have one running and one waiting each. */
const MOST_IN_FLIGHT = 200;
const IN_FLIGHT_PER_SESSION = 2;
/** One turn in so many is followed by a fork, whose child gets a few turns of its own. */
const TURNS_PER_FORK = 250;
const CHILD_TURNS = 3;
/** How long the last turns may take once nothing more is asked; what is out then counts as lost. */
const LAST_TURNS_MS = 30_000;

/** The plugin that fails on purpose: what it breaks names it. */
const CHAOS = "chaos";

const QUESTIONS = ["What is the weather?", "How many primes are there?", "What have I used so far?", "And now?"];

/** A session and what it should have stored. */
export interface Hosted {
  readonly session: Session;
  /** Turns the store knew when the session was opened or forked. */
  readonly before: number;
  stored: number;
}

/** What happened so far. Every turn asked for is finished, refused or still in flight. */
export interface Tally {
  asked: number;
  finished: number;
  refused: number;
  /** Finished and stored, but without an answer: by the code that says why. */
  readonly stopped: Map<string, number>;
  readonly refusedBy: Map<string, number>;
  toolCalls: number;
  /** Tool calls a plugin denied. */
  denied: number;
  forked: number;
  readonly forksRefusedBy: Map<string, number>;
  /** Of all these, the ones whose message does not name the plugin that was made to fail. */
  readonly unmeant: Map<string, number>;
}

/** Asks the sessions one after another, many at a time, and keeps the counts. */
export class Load {
  readonly #troupe: Troupe;
  readonly #random: () => number;
  readonly #hosted: Hosted[] = [];
  /** Every session there was, closed children included, with the turns it must have. */
  readonly expected = new Map<string, number>();
  readonly tally: Tally = {
    asked: 0,
    finished: 0,
    refused: 0,
    stopped: new Map(),
    refusedBy: new Map(),
    toolCalls: 0,
    denied: 0,
    forked: 0,
    forksRefusedBy: new Map(),
    unmeant: new Map(),
  };
  /** Turns that answered with another place in their session than the next one. */
  readonly misplaced: string[] = [];
  #next = 0;
  #asking = true;

  constructor(troupe: Troupe, options: { readonly seed: number }) {
    this.#troupe = troupe;
    this.#random = randomFrom(options.seed);
  }

  get inFlight(): number {
    return this.tally.asked - this.tally.finished - this.tally.refused;
  }

  async open(count: number): Promise<void> {
    const ids = Array.from({ length: count }, (_, index) => `chat-${index + 1}`);
    this.#hosted.push(...(await Promise.all(ids.map(async (id) => this.#host(await this.#troupe.session(id))))));
  }

  /** Asks until the time is up or the signal aborts, then waits for the turns that are still out. */
  async run(ms: number, signal: AbortSignal): Promise<void> {
    const inFlight = Math.min(MOST_IN_FLIGHT, IN_FLIGHT_PER_SESSION * this.#hosted.length);
    const askers = Array.from({ length: inFlight }, () => this.#askOn());
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      const onAbort = () => {
        clearTimeout(timer);
        resolve();
      };
      if (signal.aborted) onAbort();
      else signal.addEventListener("abort", onAbort, { once: true });
    });
    this.#asking = false;
    const patience = new Promise<void>((resolve) => setTimeout(resolve, LAST_TURNS_MS).unref());
    await Promise.race([Promise.all(askers), patience]);
  }

  async #askOn(): Promise<void> {
    while (this.#asking) {
      const hosted = this.#hosted[this.#next++ % this.#hosted.length] as Hosted;
      await this.#ask(hosted);
      if (this.#asking && this.#random() * TURNS_PER_FORK < 1) await this.#fork(hosted);
    }
  }

  async #ask(hosted: Hosted): Promise<void> {
    const question = QUESTIONS[Math.floor(this.#random() * QUESTIONS.length)] as string;
    this.tally.asked++;
    try {
      this.#finished(hosted, await hosted.session.turn(question));
    } catch (error) {
      this.tally.refused++;
      this.#count(this.tally.refusedBy, error);
    }
  }

  #finished(hosted: Hosted, { turnIndex, outcome, toolCalls }: TurnResult): void {
    const { tally } = this;
    const { id } = hosted.session;
    tally.finished++;
    hosted.stored++;
    const expected = hosted.before + hosted.stored;
    this.expected.set(id, expected);
    if (turnIndex !== expected) this.misplaced.push(`${id} answered turn ${turnIndex} where ${expected} was due`);
    if (outcome.type === "stopped") this.#count(tally.stopped, outcome);
    tally.toolCalls += toolCalls.length;
    for (const { output } of toolCalls) {
      if (output.status === "failure" && output.failure.kind === "permission_denied") tally.denied++;
    }
  }

  async #fork(parent: Hosted): Promise<void> {
    try {
      const child = await this.#host(await parent.session.fork());
      this.tally.forked++;
      for (let turn = 0; turn < CHILD_TURNS; turn++) await this.#ask(child);
      await child.session.close();
    } catch (error) {
      this.#count(this.tally.forksRefusedBy, error);
    }
  }

  #count(counts: Map<string, number>, failure: unknown): void {
    count(counts, failure);
    const { message } = failure as Partial<TroupeError>;
    if (!message?.includes(CHAOS)) count(this.tally.unmeant, failure);
  }

  async #host(session: Session): Promise<Hosted> {
    const { turns } = await session.info();
    this.expected.set(session.id, turns);
    return { session, before: turns, stored: 0 };
  }
}

/** Whatever is thrown here comes from the runtime, and that throws errors with codes. */
function count(counts: Map<string, number>, by: unknown): void {
  const code = (by as Partial<TroupeError>).code ?? String(by);
  counts.set(code, (counts.get(code) ?? 0) + 1);
}
