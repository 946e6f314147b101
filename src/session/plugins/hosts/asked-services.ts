import type { MessagePort } from "node:worker_threads";
import { HOOK_HOSTS, type HostInterface, NO_HOST, OPERATION_HOSTS, TOOL_HOOK_HOST } from "../../../plugin/index.js";
import { type Lane, type Served, serve, workerLost } from "../../../wire/index.js";
import {
  type HookCall,
  type HookLane,
  type HostService,
  hookOf,
  placeOf,
  RUN_WIDTH,
  type RunCall,
  unpackFacts,
} from "../../plugin-thread/index.js";
import { AskingCall, AskingTool, type HostGate, hostCallOver, type PluginLink } from "../plugin-link.js";
import type { Placed, RunName } from "./host-link.js";

interface AskedServicesParts {
  /** The group, in errors. */
  readonly name: string;
  readonly host: HostGate;
  /** By the plugin's place in the group. */
  readonly links: readonly PluginLink[];
  readonly placedAt: (slot: number) => Placed | undefined;
}

/** A call that asks: for whom, and what it may ask for. */
interface Asker {
  readonly slot: number;
  readonly method: keyof HookLane;
  /** Of a hook: its number, and where its facts are. */
  readonly hook?: { readonly number: number; readonly payload: HookCall | RunCall; readonly from: number };
  readonly at: number;
}

/**
 * Host services, asked in the name of a call that is still under way: what the call was granted is looked up here, and not
 * believed. A hook call that is made again is given the answers it was given before.
 */
export class AskedServices {
  readonly #parts: AskedServicesParts;
  /** By what the call was sent with, which is the same when it is made again; of a run, one for each of its hooks. */
  readonly #asking = new WeakMap<object, AskingCall[]>();
  /** By what a tool's call was sent with. */
  readonly #tools = new WeakMap<object, AskingTool>();
  /** Runs that were answered before their last hook was. */
  readonly #unfinished = new Map<string, RunCall>();

  constructor(parts: AskedServicesParts) {
    this.#parts = parts;
  }

  serve(port: MessagePort, lane: Lane, number: number): void {
    const { name, placedAt, links, host } = this.#parts;
    const service = {
      host: async ({ call, at = 0, method, args }, signal: AbortSignal) => {
        const run = this.#unfinished.get(nameOf([number, call]));
        const waiting = lane.waiting(call) ?? (run && { method: "run", payload: run });
        const asker = waiting && askerOf(waiting.method as keyof HookLane, waiting.payload, at);
        const placed = asker && placedAt(asker.slot);
        const link = placed && links[placed.member];
        if (waiting === undefined || asker === undefined || placed === undefined || link === undefined)
          throw hostCallOver(name, method);
        const { sessionId } = placed.slot;
        const pluginId = link.manifest.id;
        const granted = grantedTo(link, placed, waiting, asker);
        const asking = this.#askingIn(waiting, asker, { sessionId, pluginId });
        return host({ sessionId, pluginId, granted, method, args, signal, asking, tool: this.#toolIn(waiting) });
      },
    } satisfies Served<HostService>;
    serve(port, service);
    port.on("messageerror", () => lane.lose(workerLost(name)));
  }

  /** A call is made again: it asks from its beginning. */
  again(method: string, payload: unknown): void {
    for (const asking of this.#asking.get(keyOf(method, payload)) ?? []) asking?.again();
  }

  /** A run was answered while a hook of it is under way: that one may still ask. */
  goesOn(run: RunName, payload: RunCall): void {
    this.#unfinished.set(nameOf(run), payload);
  }

  /** The hook that a run was at is a call of its own now, and was given what it was given there. */
  isRest(run: RunName, at: number, hook: HookCall): void {
    const payload = this.#unfinished.get(nameOf(run));
    const asking = payload && this.#asking.get(payload)?.[at];
    if (asking !== undefined) this.#asking.set(hook, [asking]);
  }

  over(run: RunName): void {
    this.#unfinished.delete(nameOf(run));
  }

  #toolIn({ method, payload }: { readonly method: string; readonly payload: unknown }): AskingTool | undefined {
    if (method !== "tool") return undefined;
    const call = payload as HookLane["tool"]["call"];
    const known = this.#tools.get(call) ?? new AskingTool(call[3]);
    this.#tools.set(call, known);
    return known;
  }

  #askingIn(
    waiting: { readonly method: string; readonly payload: unknown },
    { hook, at }: Asker,
    { sessionId, pluginId }: { readonly sessionId: string; readonly pluginId: string },
  ): AskingCall | undefined {
    if (hook === undefined) return undefined;
    const key = keyOf(waiting.method, waiting.payload);
    let all = this.#asking.get(key);
    if (all === undefined) {
      all = [];
      this.#asking.set(key, all);
    }
    const known = all[at];
    if (known !== undefined) return known;
    const ref = hookOf(hook.number);
    const facts = {};
    unpackFacts(facts, ref.kind, sessionId, hook.payload, hook.from);
    const asking = new AskingCall(placeOf(pluginId, ref, facts));
    all[at] = asking;
    return asking;
  }
}

function nameOf([lane, call]: RunName): string {
  return `${lane}:${call}`;
}

function keyOf(method: string, payload: unknown): object {
  return method === "rest" ? (payload as HookLane["rest"]["call"])[3] : (payload as object);
}

/** `at` comes from a plugin's thread: one that no run has is nobody's. */
function askerOf(method: keyof HookLane, payload: unknown, at: number): Asker | undefined {
  if (method === "run") {
    const run = payload as RunCall;
    const [slot, number] = Number.isInteger(at) ? run[0].slice(at * RUN_WIDTH) : [];
    if (slot === undefined || number === undefined) return undefined;
    return { method, slot, hook: { number, payload: run, from: 1 }, at };
  }
  const [slot] = payload as readonly [number, ...unknown[]];
  if (method !== "hook" && method !== "rest") return { method, slot, at: 0 };
  const hook = keyOf(method, payload) as HookCall;
  return { method, slot, hook: { number: hook[1], payload: hook, from: 3 }, at: 0 };
}

function grantedTo(
  link: PluginLink,
  { slot }: Placed,
  { payload }: { readonly payload: unknown },
  { method, hook }: Asker,
): readonly HostInterface[] {
  if (hook !== undefined) return HOOK_HOSTS[hookOf(hook.number).kind];
  if (method === "tool") return TOOL_HOOK_HOST;
  if (method !== "operation") return NO_HOST;
  const [, name] = payload as HookLane["operation"]["call"];
  const { operations } = slot.registered ?? link.manifest.contributions;
  const kind = operations.find((spec) => spec.name === name)?.kind;
  return kind === undefined ? NO_HOST : OPERATION_HOSTS[kind];
}
