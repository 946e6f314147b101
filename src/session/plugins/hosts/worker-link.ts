import { triggerCheckTimeout } from "../../../kernel/index.js";
import { type Contributions, operationDeadline, operationTimeout, type PluginManifest } from "../../../plugin/index.js";
import type { HomeContext } from "../../../tools/index.js";
import type { LaneCallOptions } from "../../../wire/index.js";
import { type Captured, type HookAnswer, type HookLane, type HookRef, packHook } from "../../plugin-thread/index.js";
import { PluginPolicy } from "../failure-policy.js";
import {
  type HookOptions,
  hookProbes,
  type LinkOptions,
  type OperationCall,
  type PluginLink,
  type PluginSlot,
  type TriggeredEvent,
} from "../plugin-link.js";
import type { PluginGroup } from "./plugin-group.js";

interface WorkerLinkOptions extends LinkOptions {
  readonly manifest: PluginManifest;
  readonly group: PluginGroup;
  /** Its place in the group. */
  readonly member: number;
}

/** A plugin on plugin hosts: packs its calls, and keeps the state that comes with their answers. */
export class WorkerLink implements PluginLink {
  readonly manifest: PluginManifest;
  readonly probes: PluginLink["probes"];
  readonly optionalInChildren: boolean;
  readonly policy: PluginPolicy;
  #group: PluginGroup;
  #member: number;
  /** Groups it was in before, for the slots it had there. */
  readonly #former: PluginGroup[] = [];
  /** The deadline of every hook call. */
  readonly #within: Required<Pick<LaneCallOptions, "deadlineMs" | "deadlineCode">>;

  constructor(options: WorkerLinkOptions) {
    this.manifest = options.manifest;
    this.probes = hookProbes(options.manifest.id, options);
    this.optionalInChildren = options.optionalInChildren;
    this.policy = new PluginPolicy(this.manifest.id, options);
    this.#group = options.group;
    this.#member = options.member;
    this.#within = { deadlineMs: options.deadlineMs, deadlineCode: "hook_timeout" };
    this.#group.join(this.#member, this);
  }

  get group(): PluginGroup {
    return this.#group;
  }

  /** It runs on the hosts of another group from now on; its sessions' state goes with it. */
  moveTo(group: PluginGroup, member: number): void {
    this.#former.push(this.#group);
    this.#group = group;
    this.#member = member;
    group.join(member, this);
  }

  /** The host that this slot's hooks go to now, when hooks of other plugins can cross with them. */
  hostNow(slot: PluginSlot): object | undefined {
    if (this.#former.some((group) => group.isOpen(slot))) return undefined;
    return this.#group.hostNow(this.#member, slot);
  }

  /** How long a hook call may take, and who may stop it. */
  within(signal: AbortSignal | undefined): LaneCallOptions {
    const { deadlineMs, deadlineCode } = this.#within;
    return { deadlineMs, deadlineCode, signal };
  }

  async register(slot: PluginSlot): Promise<Contributions> {
    const { stateful, contributions } = await this.#call(slot, "register", [slot.number], this.#within);
    // Registering changes nothing that would have to be captured.
    slot.touched = false;
    slot.stateful = stateful;
    slot.registered = contributions;
    return contributions;
  }

  hook(slot: PluginSlot, hook: HookRef, facts: object, { capture = false, signal }: HookOptions): Promise<unknown> {
    const payload = packHook(slot.number, hook, capture ? captureMode(slot) : 0, facts);
    const answer = this.#call(slot, "hook", payload, this.within(signal));
    return capture ? this.keeping(slot, answer as Promise<HookAnswer>) : answer;
  }

  tool(
    slot: PluginSlot,
    toolId: string,
    args: unknown,
    { sessionId, turnId, callId, asks, attempt, signal, cancelGraceMs: graceMs }: HomeContext,
  ): Promise<unknown> {
    const facts = { sessionId, turnId, callId, ...(asks && { asks }), ...(attempt && { attempt }) };
    // The tool's own timeout is kept by the dispatch, which aborts the signal.
    return this.#call(slot, "tool", [slot.number, toolId, args, facts], { signal, graceMs });
  }

  operation(slot: PluginSlot, { spec, args, sessionId, signal }: OperationCall): Promise<unknown> {
    const deadlineMs = operationDeadline(spec, this.#within.deadlineMs);
    const onExpired = () => {
      this.renew(slot);
      return operationTimeout(spec, { pluginId: this.manifest.id, deadlineMs: deadlineMs as number });
    };
    const limits = deadlineMs === undefined ? {} : { deadlineMs, onExpired };
    const call: HookLane["operation"]["call"] = [slot.number, spec.name, args, sessionId];
    // Its caller's signal asks it to stop; what it did by then counts. Its state is captured with its outcome.
    return this.#call(slot, "operation", call, { signal, cooperative: true, ...limits });
  }

  async payload(slot: PluginSlot, { source, payload }: TriggeredEvent): Promise<string | undefined> {
    const { deadlineMs } = this.#within;
    const limits = { deadlineMs, onExpired: () => triggerCheckTimeout(source, deadlineMs, { retryable: true }) };
    try {
      const problem = await this.#call(slot, "payload", [slot.number, source, payload], limits);
      return problem == null ? undefined : String(problem);
    } finally {
      this.closeSession(slot);
    }
  }

  async capture(slot: PluginSlot): Promise<void> {
    await this.#leaveFormer(slot);
    if (!this.#group.isOpen(slot)) {
      slot.keepLatest();
      slot.touched = false;
      return;
    }
    const asked = this.#call(slot, "capture", [slot.number, captureMode(slot)], this.#captureWithin(slot));
    const answer = asked.then((captured) => ({ value: undefined, captured }));
    await this.keeping(slot, answer);
  }

  /** A thread that kept its caller waiting for a whole deadline is asked for the state too, and given a tenth of it. */
  #captureWithin(slot: PluginSlot): LaneCallOptions {
    if (!slot.late) return this.#within;
    slot.late = false;
    const { deadlineMs, deadlineCode } = this.#within;
    return { deadlineMs: Math.min(deadlineMs, Math.max(MIN_CAPTURE_MS, Math.ceil(deadlineMs / 10))), deadlineCode };
  }

  /** The slot is clean from when it was asked: a hook called meanwhile touches it again. */
  async keeping(slot: PluginSlot, answer: Promise<HookAnswer>): Promise<unknown> {
    slot.touched = false;
    slot.capturing = answer;
    const { lives } = slot;
    try {
      const { value, captured } = await answer;
      captureCame(slot, lives, captured);
      return value;
    } catch (error) {
      captureLost(slot, lives);
      throw error;
    } finally {
      if (slot.capturing === answer) slot.capturing = undefined;
    }
  }

  renew(slot: PluginSlot, state?: Uint8Array): void {
    for (const group of [this.#group, ...this.#former]) group.close(slot);
    slot.renewed(state);
  }

  closeSession(slot: PluginSlot): void {
    for (const group of [this.#group, ...this.#former]) group.forget(slot);
    slot.renewed();
  }

  close(): void {
    this.#group.shutDown();
  }

  #call<M extends keyof HookLane>(
    slot: PluginSlot,
    method: M,
    payload: HookLane[M]["call"],
    options: LaneCallOptions,
  ): Promise<HookLane[M]["answer"]> {
    if (this.#former.length > 0) return this.#callBehindMove(slot, { method, payload }, options);
    return this.#group.call(this.#member, slot, { method, payload }, options);
  }

  async #callBehindMove<M extends keyof HookLane>(
    slot: PluginSlot,
    asked: { readonly method: M; readonly payload: HookLane[M]["call"] },
    options: LaneCallOptions,
  ): Promise<HookLane[M]["answer"]> {
    await this.#leaveFormer(slot);
    return this.#group.call(this.#member, slot, asked, options);
  }

  /** Fetches the slot's state from the host of a group that the plugin has left; undefined when there is none. */
  #leaveFormer(slot: PluginSlot): Promise<void> | undefined {
    return this.#former.find((group) => group.isOpen(slot))?.leave(slot);
  }
}

/** What a thread that is well needs at most to say its state, even on a machine short of cores. */
const MIN_CAPTURE_MS = 250;

/** Ask for what changed, or for all of it when an earlier answer was lost. */
export function captureMode(slot: PluginSlot): 1 | 2 {
  return slot.resync ? 2 : 1;
}

/** The state that came with an answer, unless the slot's instance was made anew since it was asked (`lives`). */
export function captureCame(slot: PluginSlot, lives: number, captured: Captured | undefined): void {
  if (lives !== slot.lives) return;
  if (captured === undefined) {
    slot.touched = true;
    return;
  }
  if (captured.state === undefined) slot.keepLatest();
  slot.keep(captured);
  slot.resync = false;
}

/** The plugin may have captured and its answer been lost: next time it must not say that nothing changed. */
export function captureLost(slot: PluginSlot, lives: number): void {
  if (lives !== slot.lives) return;
  slot.touched = true;
  slot.resync = true;
}
