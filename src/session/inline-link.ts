import { aborted, TroupeError } from "../kernel/index.js";
import type { Contributions, LoadedPlugin, PluginManifest, Protocol, ToolContext } from "../plugin/index.js";
import { runHere } from "../tools/index.js";
import type { PhaseProbe } from "../trace/index.js";
import { Deadlines, ServedCall } from "../wire/index.js";
import { type HostAccess, PluginInstance } from "./plugin-instance.js";
import {
  type HookOptions,
  HookProbes,
  type HookRef,
  type HostGate,
  keep,
  type OperationCall,
  type PluginLink,
  type PluginSlot,
} from "./plugin-link.js";

export interface InlineLinkOptions {
  readonly plugin: LoadedPlugin;
  readonly deadlineMs: number;
  readonly probe: PhaseProbe;
  readonly host: HostGate;
  readonly development: boolean;
  readonly optionalInChildren: boolean;
}

/** A trusted plugin in the session worker itself: no hop, and no protection from its loops. */
export class InlineLink implements PluginLink {
  readonly manifest: PluginManifest;
  readonly probes: HookProbes;
  readonly optionalInChildren: boolean;
  readonly #options: InlineLinkOptions;
  readonly #deadlines = new Deadlines();
  readonly #instances = new Map<string, PluginInstance>();

  constructor(options: InlineLinkOptions) {
    this.manifest = options.plugin.manifest;
    this.probes = new HookProbes(this.manifest.id, options.probe);
    this.optionalInChildren = options.optionalInChildren;
    this.#options = options;
  }

  async register(slot: PluginSlot): Promise<Contributions> {
    return this.#instance(slot).contributions;
  }

  protocol(slot: PluginSlot): Protocol | undefined {
    const { protocol, register } = this.#options.plugin;
    // Most plugins have none: no instance is made to find that out.
    return protocol === undefined && register === undefined ? undefined : this.#instance(slot).protocol;
  }

  hook(slot: PluginSlot, hook: HookRef, facts: object, options: HookOptions): unknown {
    const instance = this.#instance(slot);
    slot.touched = true;
    const waiting = new ServedCall();
    const value = instance.hook(hook.kind, hook.nth, (context) => Object.assign(context, facts), waiting);
    // State that is at hand is captured by the commit itself; `options.capture` saves a hop that is not there.
    return value instanceof Promise ? this.#within(value, waiting, hook, options.signal) : value;
  }

  tool(slot: PluginSlot, toolId: string, args: unknown, tool: ToolContext): unknown {
    slot.touched = true;
    const { sessionId, turnId, callId } = tool;
    // The context itself is what is waiting: its signal is made only when the tool looks at it.
    const { definition, context } = this.#instance(slot).tool(toolId, { sessionId, turnId, callId }, tool);
    const result = runHere(definition, args as never, context);
    return result instanceof Promise ? result.then(detached) : detached(result);
  }

  operation(slot: PluginSlot, { name, args, sessionId, signal }: OperationCall): Promise<unknown> {
    slot.touched = true;
    return this.#instance(slot).operation(name, args, sessionId, { signal });
  }

  async capture(slot: PluginSlot): Promise<void> {
    const captured = this.#instances.get(slot.sessionId)?.capture();
    if (captured !== undefined) keep(slot, captured);
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
      const { plugin, development } = this.#options;
      const { sessionId, captured, init } = slot;
      instance = new PluginInstance(plugin, { sessionId, captured, init, development, host: this.#hostFor(sessionId) });
      this.#instances.set(slot.sessionId, instance);
    }
    return instance;
  }

  #hostFor(sessionId: string): HostAccess {
    const { host } = this.#options;
    const pluginId = this.manifest.id;
    return {
      call: (granted, { signal }, method, args) => host({ sessionId, pluginId, granted, method, args, signal }),
    };
  }

  #within<T>(promise: Promise<T>, waiting: ServedCall, { kind }: HookRef, signal: AbortSignal | undefined): Promise<T> {
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
      const { deadlineMs } = this.#options;
      const deadline = this.#deadlines.add(deadlineMs, () => {
        const message = `Plugin ${this.manifest.id}: ${kind} did not answer within ${deadlineMs} ms.`;
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
