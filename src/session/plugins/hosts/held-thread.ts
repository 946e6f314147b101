import { type Clock, within } from "../../../async/index.js";
import { pluginUnavailable, TroupeError, type TroupeErrorCode } from "../../../kernel/index.js";
import { type HookKind, hookNameOf } from "../../../plugin/index.js";
import { type EndedBy, endedBy, whenEndKnown, wordsFor, workerLost } from "../../../wire/index.js";
import { type HookCall, type HookLane, hookOf, type RunCall } from "../../plugin-thread/index.js";

/** How long whoever held a thread waits to be told how that ended. */
const END_KNOWN_MS = 1_000;

/** How a thread ended whose lane is lost: the main thread says so, a moment later. */
export async function reasonOfEnd(clock: Clock, stage: Int32Array): Promise<EndedBy> {
  await within(clock, END_KNOWN_MS, whenEndKnown(stage));
  return endedBy(stage);
}

/** A call that held a thread which is gone, or was under way there. */
export interface LostCall {
  readonly plugin: string;
  /** The hook's kind, or what else was called. */
  readonly call: string;
  readonly sessionId: string | undefined;
  readonly reason: EndedBy;
}

/** The error of that call: by its code a host can tell what the plugin did. */
export function heldThread({ plugin, call, sessionId, reason }: LostCall): TroupeError {
  const [code, message] = ofCall(reason, `Plugin ${plugin}`, nameOf(call));
  return new TroupeError(code, message, { retryable: true, details: { pluginId: plugin, call, sessionId, reason } });
}

function ofCall(reason: EndedBy, plugin: string, call: string): [code: TroupeErrorCode, message: string] {
  if (reason === "blocked")
    return [
      "plugin_blocked",
      `${plugin} blocked its thread in ${call} for longer than its blockedMs, so the thread was replaced. Let long work wait (await) in between, or give the plugin a larger blockedMs.`,
    ];
  if (reason === "heap")
    return [
      "plugin_out_of_memory",
      `${plugin} used more heap in ${call} than its thread may have, so the thread was replaced. Let it keep less, or give the plugin a larger heapMb.`,
    ];
  if (reason === "external")
    return [
      "plugin_out_of_memory",
      `${plugin} held more memory in buffers after ${call} than its thread may have, so the thread was replaced. Let it keep less, or give the plugin a larger externalMb.`,
    ];
  if (reason === "resources")
    return [
      "plugin_too_many_timers",
      `${plugin} had more than 10,000 timers or other waiting resources after ${call}, so the thread was replaced. Let it wait for fewer things at a time.`,
    ];
  if (reason === "patched")
    return [
      "plugin_patched_builtins",
      `${plugin} replaced functions of JavaScript or Node in ${call} that its thread cannot do without, such as Map.prototype.get, so the thread was replaced. Let it change copies of its own instead.`,
    ];
  if (reason === "malformed")
    return [
      "plugin_malformed_message",
      `${plugin} sent messages on its thread's ports in ${call} that are none of Troupe's, so the thread was replaced. Let it talk to the host by its hooks and host services only.`,
    ];
  return ["worker_lost", `${plugin} ended its thread in ${call}.`];
}

/** The error of a call that was under way on threads that were lost, one after the other, by whosever fault. */
export function lostCall({ plugin, call, sessionId, reason }: LostCall, made: number): TroupeError {
  const times = made === 1 ? "once" : `${made} times, each time on a thread that was lost`;
  const how = `${wordsFor(reason)} while this ${nameOf(call)} was under way. The call was made ${times}, and is not made again`;
  return workerLost(`Plugin ${plugin}`, how, { details: { pluginId: plugin, call, sessionId, reason, made } });
}

/** As a plugin's author writes it. */
function nameOf(call: string): string {
  return hookNameOf(call as HookKind) ?? call;
}

/** Calls that are never made twice: nobody knows what a body that had begun has done. */
export const AT_MOST_ONCE: readonly (keyof HookLane)[] = ["tool", "operation"];

/** Which hook a call is for; undefined for a call of another kind. */
export function kindOf(method: string, payload: unknown): string | undefined {
  if (method === "hook") return hookOf((payload as HookCall)[1]).kind;
  if (method === "rest") return hookOf((payload as HookLane["rest"]["call"])[3][1]).kind;
  if (method === "run") return hookOf((payload as RunCall)[0][1] as number).kind;
  return undefined;
}

export function perhapsDone(name: string, method: string): TroupeError {
  const how = `lost its thread while this ${method} was under way. It is not run again, because it may have done its work`;
  return workerLost(name, how, { retryable: false, details: { method } });
}

/** The slots of a run are at different hosts now: its hooks are asked one by one. */
export function runApart(): TroupeError {
  return new TroupeError("run_apart", "The hooks cannot cross together any more.");
}

export function threadsLinger(name: string, sessionId: string, lingering: number): TroupeError {
  return pluginUnavailable(
    `${name} has ${lingering} threads that do not end, because a native call holds them. Session ${sessionId} has blocked it before and is refused until one of them ends.`,
    { retryable: true, details: { sessionId, lingering } },
  );
}
