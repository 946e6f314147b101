import { type Clock, ignore, sleep } from "../../../async/index.js";
import { runtimeClosed, TroupeError } from "../../../kernel/index.js";
import type { NoteTaker } from "../../../tools/index.js";
import type { EventSink } from "../../../trace/index.js";
import {
  Deadlines,
  endedBy,
  endedByCall,
  type LaneCallOptions,
  type StageView,
  workerLost,
} from "../../../wire/index.js";
import type { FloatingNote, GroupSetup, HostDownNote, HostName, PluginLane, WantedNote } from "../../calls/index.js";
import type { HookCall, HookLane, RunAnswer, RunCall } from "../../plugin-thread/index.js";
import { checkCaptured } from "../check-captured.js";
import type { HostGate, PluginLink, PluginSlot } from "../plugin-link.js";
import { AskedServices } from "./asked-services.js";
import { Assignment, isSharedByWorkers, QUARANTINE } from "./assignment.js";
import { threadsLinger } from "./held-thread.js";
import { HostLink, type OrphanOf, type Placed, type RunName, slotsIn } from "./host-link.js";
import { LeftSessions } from "./left-sessions.js";
import { LostCalls } from "./lost-calls.js";
import { readRunAnswer } from "./read-run.js";
import { tellOffences } from "./tell-offence.js";

/** How long a session's state may take on its way to another host; one that takes longer stays where it is. */
const MOVE_MS = 5_000;
/** Threads that do not end; with so many, sessions that have offended are refused until one does. */
const MOST_LINGERING = 2;

interface PluginGroupParts extends GroupSetup {
  readonly number: number;
  readonly clock: Clock;
  readonly host: HostGate;
  /** Asks the main thread for a lane to a host. */
  readonly want: (host: WantedNote) => void;
  /** Tells the main thread that a host's thread must not go on. */
  readonly down: (note: HostDownNote) => void;
  /** Tells the host's application of a rejection in a plugin that nobody handled. */
  readonly floating: (note: FloatingNote) => void;
  /** Told what tools say before they answer; default: nobody is. */
  readonly noted?: NoteTaker;
  /** Undefined: nobody listens. */
  readonly events?: EventSink | undefined;
}

/** The plugins of one group as a session worker calls them: which host has which session, and what becomes of calls. */
export class PluginGroup {
  readonly #parts: PluginGroupParts;
  readonly #assignment: Assignment;
  readonly #deadlines: Deadlines;
  readonly #hosts = new Map<string, HostLink>();
  readonly #links: PluginLink[] = [];
  /** The slots of live sessions, by number: a call that must be made again names only that. */
  readonly #placed = new Map<number, Placed>();
  readonly #left = new LeftSessions();
  readonly #services: AskedServices;
  readonly #lostCalls: LostCalls;
  /** Captures that fetch a slot's state for its next host. */
  readonly #fetches = new WeakSet<object>();
  #failed: TroupeError | undefined;
  #lingering = 0;

  constructor(parts: PluginGroupParts) {
    this.#parts = parts;
    this.#assignment = new Assignment({ ...parts, ...tellOffences(parts.events, this.#links) });
    this.#deadlines = new Deadlines(parts.clock);
    const { name, host } = parts;
    const shared = { name, links: this.#links, placedAt: (slot: number) => this.#placed.get(slot) };
    this.#services = new AskedServices({ ...shared, host });
    this.#lostCalls = new LostCalls({
      ...shared,
      clock: parts.clock,
      services: this.#services,
      settled: (placed) => this.#settled(placed),
    });
  }

  /** Has it more than one plugin? */
  get isShared(): boolean {
    return this.#links.length > 1;
  }

  /** A plugin takes its place in the group. */
  join(member: number, link: PluginLink): void {
    this.#links[member] = link;
  }

  /** Messages on the lanes to its hosts, over all incarnations. */
  get messages(): { sent: number; received: number } {
    const total = { sent: 0, received: 0 };
    for (const { messages } of this.#hosts.values()) {
      total.sent += messages.sent;
      total.received += messages.received;
    }
    return total;
  }

  attach(lane: PluginLane): void {
    this.#host(lane.key).attach(lane);
  }

  /** The thread at the other end of this lane does not end: nothing more is expected of it. */
  lose({ key, lane }: HostName & { readonly lane: number }): void {
    const host = this.#hosts.get(key);
    if (host?.laneNumber === lane) host.lose(workerLost(this.#parts.name));
  }

  /** A host that cannot be had: whoever waits for it is told, and may ask again. */
  refuse(key: string, error: TroupeError): void {
    this.#hosts.get(key)?.fail(error);
  }

  threadsLinger(count: number): void {
    this.#lingering = count;
  }

  /**
   * Its sessions are spread over so many shards from now on; those at a shard that is no more leave it, unless they have a
   * call under way there. Is such a shard still used?
   */
  async spread(shards: number): Promise<boolean> {
    this.#assignment.spread(shards);
    const surplus = [...this.#hosts.values()].filter(({ key }) => this.#assignment.isSurplus(key));
    if (surplus.length === 0) return false;
    const leaving: Promise<void>[] = [];
    for (const placed of this.#placed.values()) {
      if (placed.host === undefined || !surplus.includes(placed.host)) continue;
      // One that has this version is there because its state could not be had.
      if (placed.moving === undefined && placed.version !== this.#assignment.version) this.#place(placed);
      if (placed.moving !== undefined) leaving.push(placed.moving);
    }
    await Promise.all(leaving);
    return surplus.some(({ isUsed }) => isUsed);
  }

  /** Its plugins will not come back: every call fails with `error`. Null: they are back. */
  fail(error: TroupeError | null): void {
    this.#failed = error ?? undefined;
    if (error !== null) for (const host of this.#hosts.values()) host.fail(error);
  }

  call<M extends keyof HookLane>(
    member: number,
    slot: PluginSlot,
    { method, payload }: { readonly method: M; readonly payload: HookLane[M]["call"] },
    options: LaneCallOptions,
  ): Promise<HookLane[M]["answer"]> {
    slot.touched = true;
    if (this.#failed !== undefined) return Promise.reject(this.#failed);
    const placed = this.#placedFor(member, slot);
    // Typed by what a plugin host serves under this method.
    type Answer = Promise<HookLane[M]["answer"]>;
    if (this.#assignment.isSuspect(slot.sessionId))
      return this.#callForSuspect(placed, method, payload, options) as Answer;
    const host = this.#hostOf(placed);
    if (host !== undefined) return host.call(placed, method, payload, options) as Answer;
    return this.#callMoved(placed, { method, payload }, options);
  }

  /** Apart from {@link call}: a closure there would cost every call an allocation. */
  async #callMoved<M extends keyof HookLane>(
    placed: Placed,
    asked: { readonly method: M; readonly payload: HookLane[M]["call"] },
    options: LaneCallOptions,
  ): Promise<HookLane[M]["answer"]> {
    await placed.moving;
    return this.call(placed.member, placed.slot, asked, options);
  }

  /** The host that this slot's hooks go to now, when hooks of other plugins can cross with them. */
  hostNow(member: number, slot: PluginSlot): object | undefined {
    if (!this.isShared || this.#failed !== undefined || this.#assignment.isSuspect(slot.sessionId)) return undefined;
    return this.#hostOf(this.#placedFor(member, slot));
  }

  /** Calls hooks of several plugins for one session in one message; their slots are at one host. */
  async run(slots: readonly PluginSlot[], payload: RunCall, options: LaneCallOptions): Promise<RunAnswer> {
    for (const slot of slots) slot.touched = true;
    const placed = this.#placedOf(payload) as Placed;
    const answer = await (placed.host as HostLink).call(placed, "run", payload, options);
    const checked = readRunAnswer(answer, slots.length);
    if (checked[3] !== 0) this.#services.goesOn(checked[3], payload);
    return checked;
  }

  /** Waits for the hook that a run came to. */
  rest(
    slot: PluginSlot,
    { run, at }: { readonly run: RunName; readonly at: number },
    hook: HookCall,
    options: LaneCallOptions,
  ): Promise<unknown> {
    this.#services.isRest(run, at, hook);
    const { member } = this.#placed.get(slot.number) as Placed;
    const payload: HookLane["rest"]["call"] = [slot.number, ...run, hook];
    return this.call(member, slot, { method: "rest", payload }, options).finally(() => this.#services.over(run));
  }

  /** Nobody waits for the run's rest. */
  drop(run: RunName): void {
    this.#services.over(run);
    for (const host of this.#hosts.values()) host.drop(run);
  }

  isOpen(slot: PluginSlot): boolean {
    return this.#placed.get(slot.number)?.host?.isOpen(slot.number) === true;
  }

  /** The session's next call makes a new instance. */
  close(slot: PluginSlot): void {
    this.#placed.get(slot.number)?.host?.close(slot.number);
  }

  /** The slot's plugin is in another group from now on: its state is fetched, and its instance here closed. */
  async leave(slot: PluginSlot): Promise<void> {
    const placed = this.#placed.get(slot.number);
    if (placed?.host === undefined) return;
    this.#move(placed, placed.host);
    await placed.moving;
    this.forget(slot);
  }

  forget(slot: PluginSlot): void {
    this.close(slot);
    const host = this.#placed.get(slot.number)?.host;
    this.#placed.delete(slot.number);
    this.#left.add(slot.sessionId);
    if (host === undefined || this.#parts.isolation !== "session") return;
    for (const other of this.#placed.values()) if (other.host === host) return;
    this.#hosts.delete(host.key);
    this.#tellDown(host, host.laneNumber, { released: true });
  }

  shutDown(): void {
    this.#deadlines.clear();
    this.fail(runtimeClosed());
  }

  async #callForSuspect(placed: Placed, method: string, payload: unknown, options: LaneCallOptions): Promise<unknown> {
    const { clock, name } = this.#parts;
    const { sessionId } = placed.slot;
    if (this.#lingering >= MOST_LINGERING && this.#assignment.hasOffended(sessionId))
      throw threadsLinger(name, sessionId, this.#lingering);
    const admitted = this.#assignment.admit(sessionId, clock.now());
    if (admitted instanceof TroupeError) throw admitted;
    if (admitted > 0) await sleep(clock, admitted, { signal: options.signal });
    return (await this.#settled(placed)).call(placed, method, payload, options);
  }

  #placedFor(member: number, slot: PluginSlot): Placed {
    let placed = this.#placed.get(slot.number);
    if (placed === undefined) {
      placed = { slot, member, host: undefined, version: -1, moving: undefined };
      this.#placed.set(slot.number, placed);
    }
    return placed;
  }

  /** The host a slot is at; undefined while it moves. */
  #hostOf(placed: Placed): HostLink | undefined {
    if (placed.moving !== undefined) return undefined;
    const { version } = this.#assignment;
    return placed.version === version && placed.host !== undefined ? placed.host : this.#place(placed);
  }

  /** The host of a slot from now on, once it is there. */
  async #settled(placed: Placed): Promise<HostLink> {
    for (;;) {
      const host = placed.moving === undefined ? this.#place(placed) : undefined;
      if (host !== undefined) return host;
      await placed.moving;
    }
  }

  /**
   * The host of a slot from now on; undefined when the slot's state must be fetched first, which is on its way then. A
   * slot with a call under way stays where it is until that is answered.
   */
  #place(placed: Placed): HostLink | undefined {
    const { slot, host: before } = placed;
    const key = this.#assignment.hostOf(slot.sessionId, this.#parts.clock.now());
    if (before !== undefined && before.key !== key && before.isOpen(slot.number)) {
      if (before.isBusy(slot.number)) return before;
      if (slot.stateful) {
        this.#move(placed, before);
        return undefined;
      }
      before.close(slot.number);
    }
    return this.#putAt(placed, this.#host(key));
  }

  #putAt(placed: Placed, host: HostLink): HostLink {
    placed.host = host;
    placed.version = this.#assignment.version;
    return host;
  }

  /** A slot's calls wait until its state has come from the host it leaves. */
  #move(placed: Placed, from: HostLink): void {
    placed.moving ??= this.#fetchState(placed, from).finally(() => {
      placed.moving = undefined;
    });
  }

  /** Fetches a slot's state from the host it leaves. One whose state cannot be had stays there. */
  async #fetchState(placed: Placed, from: HostLink): Promise<void> {
    const { slot } = placed;
    const { lives } = slot;
    const capture: HookLane["capture"]["call"] = [slot.number, 1];
    this.#fetches.add(capture);
    try {
      const captured = await from.call(placed, "capture", capture, { deadlineMs: MOVE_MS });
      if (slot.lives === lives) slot.follow(checkCaptured(captured, { plugin: slot.name }));
      from.close(slot.number);
    } catch {
      if (from.isOpen(slot.number)) this.#putAt(placed, from);
    }
  }

  #host(key: string): HostLink {
    const known = this.#hosts.get(key);
    if (known !== undefined) return known;
    const { number: group, clock, name, want } = this.#parts;
    const host: HostLink = new HostLink({
      key,
      name,
      clock,
      deadlines: this.#deadlines,
      alone: key === QUARANTINE,
      placedOf: (payload) => this.#placedOf(payload),
      placedAt: (slot) => this.#placed.get(slot),
      onWanted: (lane) => want({ group, key, lane }),
      onLost: (orphans, stage) => this.#lost(host, orphans, stage),
      onSilent: (lane) => this.#tellDown(host, lane, {}),
      serveHost: (port, lane, number) => this.#services.serve(port, lane, number),
      onFloating: this.#parts.floating,
      noted: this.#parts.noted ?? ignore,
      onMade: (method, payload) => this.#services.again(method, payload),
    });
    this.#hosts.set(key, host);
    return host;
  }

  #placedOf(payload: unknown): Placed | undefined {
    return this.#placed.get(slotsIn(payload)[0] as number);
  }

  /**
   * A host's thread is gone. Only the call that held it fails, and its session is a suspect. When none did, the thread was
   * ended by code behind an `await`, or by a timer: whoever had a call under way there goes on in quarantine, where calls
   * are made one by one, so that there it is certain.
   */
  #lost(host: HostLink, orphans: readonly OrphanOf[], stage: StageView): void {
    // This side closed the lane: other session workers may still use the thread.
    if (this.#failed !== undefined) {
      for (const { reject } of orphans) reject(this.#failed);
      return;
    }
    const now = this.#parts.clock.now();
    const by = endedBy(stage.cells);
    // A call that held the thread while a message was found that is none of a lane's need not have sent it.
    const isByCall = by !== "asked" && by !== "malformed";
    let held = isByCall ? orphans.find(({ fate }) => fate === "held") : undefined;
    if (held === undefined && by !== "asked" && !endedByCall(stage.cells)) {
      const begun = orphans.filter(({ fate }) => fate !== "unstarted");
      const sessions = new Set(begun.map(({ placed }) => placed?.slot.sessionId ?? ""));
      if (sessions.size === 1 && !isSharedByWorkers(host.key)) [held] = begun;
      else for (const session of sessions) this.#assignment.offend(session, { now, certain: false });
    }
    const offender = held?.placed?.slot.sessionId;
    if (offender !== undefined) this.#assignment.offend(offender, { now, certain: true });
    this.#tellDown(host, stage.lane, { offender });
    for (const orphan of orphans) {
      if (orphan === held) void this.#lostCalls.reject(orphan, stage.cells);
      // The slot goes on with the state its thread left behind. Made again, this call would wait for the move that waits for it.
      else if (this.#fetches.has(orphan.payload as object)) orphan.reject(workerLost(this.#parts.name));
      else this.#lostCalls.again(orphan, stage.cells);
    }
  }

  #tellDown(
    host: HostLink,
    lane: number,
    { offender, released = false }: { readonly offender?: string | undefined; readonly released?: boolean },
  ): void {
    const here = [...this.#placed.values()].map(({ slot }) => slot.sessionId);
    const innocent = this.#left.and(here).filter((session) => !this.#assignment.hasOffended(session)).length;
    const { offenders } = this.#assignment;
    const { number: group, down } = this.#parts;
    down({ group, key: host.key, lane, offender, offenders, innocent, released });
  }
}
