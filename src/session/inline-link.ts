import type { RecordableHistogram } from "node:perf_hooks";
import { aborted, TroupeError } from "../kernel/index.js";
import type { HookKind, LoadedPlugin, PluginManifest, ToolContext } from "../plugin/index.js";
import { runHere } from "../tools/index.js";
import type { PhaseProbe } from "../trace/index.js";
import { Deadlines, ServedCall } from "../wire/index.js";
import { PluginInstance } from "./plugin-instance.js";
import {
  type HookOptions,
  keep,
  type OperationCall,
  type PluginLink,
  type PluginSlot,
  probesOf,
} from "./plugin-link.js";

export interface InlineLinkOptions {
  readonly plugin: LoadedPlugin;
  readonly deadlineMs: number;
  readonly probe: PhaseProbe;
}

/** A trusted plugin in the session worker itself: no hop, and no protection from its loops. */
export class InlineLink implements PluginLink {
  readonly manifest: PluginManifest;
  readonly probes: ReadonlyMap<HookKind, RecordableHistogram>;
  readonly #plugin: LoadedPlugin;
  readonly #deadlineMs: number;
  readonly #deadlines = new Deadlines();
  readonly #instances = new Map<string, PluginInstance>();

  constructor(options: InlineLinkOptions) {
    this.manifest = options.plugin.manifest;
    this.probes = probesOf(this.manifest, options.probe);
    this.#plugin = options.plugin;
    this.#deadlineMs = options.deadlineMs;
  }

  hook(slot: PluginSlot, kind: HookKind, facts: object, options: HookOptions): unknown {
    const instance = this.#instance(slot);
    slot.touched = true;
    const waiting = new ServedCall();
    const value = instance.hook(kind, (context) => Object.assign(context, facts), waiting);
    // State that is at hand is captured by the commit itself; `options.capture` saves a hop that is not there.
    return value instanceof Promise ? this.#within(value, waiting, kind, options.signal) : value;
  }

  tool(slot: PluginSlot, toolName: string, args: unknown, tool: ToolContext): unknown {
    const definition = this.#plugin.tools.get(toolName);
    if (definition === undefined)
      throw new TroupeError("tool_unavailable", `Plugin ${this.manifest.id} has no tool ${toolName}.`);
    slot.touched = true;
    const { sessionId, turnId, callId } = tool;
    // The context itself is what is waiting: its signal is made only when the tool looks at it.
    const context = this.#instance(slot).toolContext({ sessionId, turnId, callId }, tool);
    const result = runHere(definition as never, args as never, context as never);
    return result instanceof Promise ? result.then(detached) : detached(result);
  }

  operation(slot: PluginSlot, { name, args, sessionId, signal }: OperationCall): Promise<unknown> {
    slot.touched = true;
    return this.#instance(slot).operation(name, args, sessionId, { signal });
  }

  async capture(slot: PluginSlot): Promise<void> {
    keep(slot, this.#instances.get(slot.sessionId)?.capture());
    slot.touched = false;
  }

  closeSession({ sessionId }: PluginSlot): void {
    this.#instances.delete(sessionId);
  }

  close(): void {
    this.#deadlines.clear();
    this.#instances.clear();
  }

  #instance(slot: PluginSlot): PluginInstance {
    let instance = this.#instances.get(slot.sessionId);
    if (instance === undefined) {
      instance = new PluginInstance(this.#plugin, slot.sessionId, slot.captured);
      this.#instances.set(slot.sessionId, instance);
    }
    return instance;
  }

  #within<T>(promise: Promise<T>, waiting: ServedCall, kind: HookKind, signal: AbortSignal | undefined): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const giveUp = (error: TroupeError) => {
        waiting.cancel();
        end(reject)(error);
      };
      const onAbort = () => giveUp(aborted(signal as AbortSignal));
      const end =
        <V>(settle: (value: V) => void) =>
        (value: V) => {
          this.#deadlines.cancel(deadline);
          signal?.removeEventListener("abort", onAbort);
          settle(value);
        };
      const deadline = this.#deadlines.add(this.#deadlineMs, () => {
        const message = `Plugin ${this.manifest.id}: ${kind} did not answer within ${this.#deadlineMs} ms.`;
        giveUp(new TroupeError("hook_timeout", message, { retryable: true }));
      });
      signal?.addEventListener("abort", onAbort, { once: true });
      promise.then(end(resolve), end(reject));
    });
  }
}

/** A tool may return a piece of its plugin's state: what is recorded must not change with it. */
function detached(result: unknown): unknown {
  return typeof result === "object" && result !== null ? structuredClone(result) : result;
}
