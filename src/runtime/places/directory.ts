import { ignore } from "../../async/index.js";
import { sessionBusy, sessionExists, type TroupeError } from "../../kernel/index.js";
import type { OpeningOptions } from "../../session/index.js";

/** A session that is open, or about to be: its worker, and what is under way with it. */
export interface Residence {
  readonly id: string;
  /** What the host holds of it, once it was asked for. */
  handle: object | undefined;
  worker: number;
  /** Turns and calls that have not ended; whoever closes the session waits for them. One for all that have none. */
  uses: ReadonlySet<PromiseLike<unknown>>;
  /** Pending while the session moves in (a fork), out (closing) or to another worker. Never rejects. */
  moving: Promise<void> | undefined;
  /** It moves out: what is asked of it meanwhile is too late. */
  closing: boolean;
  /** False until something succeeded here: an id that never opened is forgotten again. */
  opened: boolean;
  /** What it was opened with, for a worker that has to open it again. */
  opening?: OpeningOptions;
}

/**
 * Which worker has which session. Two workers with one session would overwrite each other's turns, so a session that is
 * moving in or out belongs to nobody else until that is over.
 */
export class SessionDirectory {
  readonly #residences = new Map<string, Residence>();
  readonly #workers: number;

  constructor(workers: number) {
    this.#workers = workers;
  }

  has(sessionId: string): boolean {
    return this.#residences.has(sessionId);
  }

  /** Where a session is, or will be: its own worker unless a fork put it elsewhere. It may be moving. */
  of(sessionId: string): Residence {
    return this.#residences.get(sessionId) ?? this.#add(sessionId, placeSession(sessionId, this.#workers));
  }

  /** Where a session is, when it is open or about to be. */
  find(sessionId: string): Residence | undefined {
    return this.#residences.get(sessionId);
  }

  /** Is anything under way with a session? */
  isBusy(sessionId: string): boolean {
    const residence = this.#residences.get(sessionId);
    return residence !== undefined && (residence.uses.size > 0 || residence.moving !== undefined);
  }

  /** Makes a call about a session once nobody is moving it; it is not closed before the call has ended. */
  async use<T>(sessionId: string, call: (residence: Residence) => Promise<T>): Promise<T> {
    let residence = this.of(sessionId);
    for (; residence.moving !== undefined; residence = this.of(sessionId)) await residence.moving;
    const used = call(residence);
    begin(residence, used);
    try {
      const result = await used;
      residence.opened = true;
      return result;
    } finally {
      end(residence, used);
      if (!residence.opened && residence.uses.size === 0) this.#forget(residence);
    }
  }

  /** A fork: `build` makes the session on the worker. When it fails there is no such session. */
  async moveIn(sessionId: string, worker: number, build: (residence: Residence) => Promise<void>): Promise<Residence> {
    if (this.has(sessionId)) {
      throw sessionExists(sessionId);
    }
    const residence = this.#add(sessionId, worker);
    try {
      await this.#move(residence, () => build(residence));
      residence.opened = true;
      return residence;
    } catch (error) {
      this.#forget(residence);
      throw error;
    }
  }

  /**
   * Closing: waits for what is under way, then `leave` ends the session on its worker. When that fails it stays. `hurry`
   * comes before the waiting.
   */
  async moveOut(
    sessionId: string,
    leave: (worker: number) => Promise<void>,
    hurry: (worker: number) => Promise<void> = nothing,
  ): Promise<void> {
    const residence = this.#residences.get(sessionId);
    if (residence === undefined) return;
    while (residence.moving !== undefined) await residence.moving;
    // Somebody else closed it meanwhile.
    if (this.#residences.get(sessionId) !== residence) return;
    residence.closing = true;
    try {
      await this.#move(residence, async () => {
        await hurry(residence.worker);
        await Promise.allSettled(residence.uses);
        await leave(residence.worker);
        this.#forget(residence);
      });
    } finally {
      residence.closing = false;
      if (!residence.opened && residence.uses.size === 0) this.#forget(residence);
    }
  }

  /** Every session that is open, or about to be. */
  ids(): string[] {
    return [...this.#residences.keys()];
  }

  /**
   * To another worker, or away for a while, as soon as nothing is under way: who asks something of the session before
   * that is served where it is, who does later waits. False when it was closed meanwhile.
   */
  async moveOver(sessionId: string, move: (residence: Residence) => Promise<void>): Promise<boolean> {
    const residence = this.#residences.get(sessionId);
    if (residence === undefined) return false;
    while (residence.moving !== undefined || residence.uses.size > 0)
      await Promise.allSettled([residence.moving, ...residence.uses]);
    if (this.#residences.get(sessionId) !== residence) return false;
    await this.#move(residence, () => move(residence));
    return true;
  }

  /** A worker has left its place: its sessions are found at another one. */
  follow(from: number, to: number): void {
    for (const residence of this.#residences.values()) if (residence.worker === from) residence.worker = to;
  }

  /** The sessions of a worker. */
  on(worker: number): Residence[] {
    return [...this.#residences.values()].filter((residence) => residence.worker === worker);
  }

  /** A message that came while the session moved takes its place there as soon as it has moved. */
  async take(sessionId: string, message: PromiseLike<unknown>): Promise<Residence> {
    let residence = this.of(sessionId);
    for (; residence.moving !== undefined; residence = this.of(sessionId)) await residence.moving;
    begin(residence, message);
    residence.opened = true;
    return residence;
  }

  /** Everything that is moving now. */
  moves(): Promise<void>[] {
    return [...this.#residences.values()].flatMap(({ moving }) => moving ?? []);
  }

  /** How many sessions each worker has. */
  loads(): number[] {
    const loads = new Array<number>(this.#workers).fill(0);
    // One that has left its place gets no more.
    for (const { worker } of this.#residences.values())
      if (worker < loads.length) loads[worker] = (loads[worker] ?? 0) + 1;
    return loads;
  }

  clear(): void {
    this.#residences.clear();
  }

  #add(sessionId: string, worker: number): Residence {
    const residence: Residence = {
      id: sessionId,
      handle: undefined,
      worker,
      uses: NO_USES,
      moving: undefined,
      closing: false,
      opened: false,
    };
    this.#residences.set(sessionId, residence);
    return residence;
  }

  async #move(residence: Residence, move: () => Promise<void>): Promise<void> {
    const moved = move();
    residence.moving = moved.catch(ignore);
    try {
      await moved;
    } finally {
      residence.moving = undefined;
    }
  }

  #forget(residence: Residence): void {
    const { id } = residence;
    if (this.#residences.get(id) === residence) this.#residences.delete(id);
  }
}

/** Most sessions have nothing under way, and a set of their own would be most of what they cost here. */
const NO_USES: ReadonlySet<PromiseLike<unknown>> = new Set();

/** Something is under way with a session. */
export function begin(residence: Residence, use: PromiseLike<unknown>): void {
  if (residence.uses === NO_USES) residence.uses = new Set([use]);
  else (residence.uses as Set<PromiseLike<unknown>>).add(use);
}

/** And has ended. */
export function end(residence: Residence, use: PromiseLike<unknown>): void {
  if (residence.uses === NO_USES) return;
  (residence.uses as Set<PromiseLike<unknown>>).delete(use);
  if (residence.uses.size === 0) residence.uses = NO_USES;
}

async function nothing(): Promise<void> {}

export function underWay(sessionId: string): TroupeError {
  return sessionBusy(sessionId, "has something under way");
}

/**
 * Rendezvous hashing: every session has one worker it belongs to, and a change in the number of workers moves only the
 * sessions that must move.
 */
export function placeSession(sessionId: string, workers: number): number {
  let best = 0;
  let bestScore = -1;
  for (let worker = 0; worker < workers; worker++) {
    const score = hash(sessionId, worker);
    if (score > bestScore) {
      best = worker;
      bestScore = score;
    }
  }
  return best;
}

/** The worker with the fewest sessions other than `not`; of equals the first. */
export function leastLoaded(loads: readonly number[], not: number): number {
  let best = -1;
  loads.forEach((load, worker) => {
    if (worker !== not && (best === -1 || load < (loads[best] as number))) best = worker;
  });
  return best === -1 ? not : best;
}

/** FNV-1a over the id, then the worker mixed in with a finaliser so that neighbours do not correlate. */
function hash(text: string, seed: number): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) {
    h ^= text.charCodeAt(i);
    h = Math.imul(h, 0x01000193);
  }
  h ^= Math.imul(seed + 1, 0x9e3779b1);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
