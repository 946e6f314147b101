import { type Clock, ignore, onAbort, untilAborted } from "../../async/index.js";
import { aborted, asTroupeError, TroupeError } from "../../kernel/index.js";
import {
  type Contributions,
  type LoadedPlugin,
  operationDeadline,
  operationTimeout,
  type PluginManifest,
  type Protocol,
  type ToolContext,
} from "../../plugin/index.js";
import { runHere } from "../../tools/index.js";
import type { PhaseProbe } from "../../trace/index.js";
import { Deadlines, ServedCall } from "../../wire/index.js";
import { type HostAccess, PluginInstance, placeOf, type Waiting } from "../plugin-thread/index.js";
import { AskingCall } from "./asking-call.js";
import {
  type HookOptions,
  HookProbes,
  type HookRef,
  type HostGate,
  hostCallOver,
  type OperationCall,
  type PluginLink,
  type PluginSlot,
} from "./plugin-link.js";

export interface InlineLinkOptions {
  readonly clock: Clock;
  readonly plugin: LoadedPlugin;
  readonly deadlineMs: number;
  readonly probe: PhaseProbe;
  readonly host: HostGate;
  readonly development: boolean;
  readonly optionalInChildren: boolean;
}

/** A call whose plugin can ask for host services until it is over. */
interface InlineCall extends Waiting {
  over: boolean;
  /** Set when the call may be made again. */
  readonly asking?: AskingCall;
}

/** Plain fields: one of these is made for every hook call. */
class InlineHook extends ServedCall implements InlineCall {
  over = false;
  readonly pluginId: string;
  readonly hook: HookRef;
  readonly facts: object;
  #asking: AskingCall | undefined;

  constructor(pluginId: string, hook: HookRef, facts: object) {
    super();
    this.pluginId = pluginId;
    this.hook = hook;
    this.facts = facts;
  }

  /** Made when it first asks for something. */
  get asking(): AskingCall {
    this.#asking ??= new AskingCall(placeOf(this.pluginId, this.hook, this.facts));
    return this.#asking;
  }
}

class InlineOperation extends ServedCall implements InlineCall {
  over = false;
}

/** A trusted plugin in the session worker itself: no hop, and no protection from its loops. */
export class InlineLink implements PluginLink {
  readonly manifest: PluginManifest;
  readonly probes: HookProbes;
  readonly optionalInChildren: boolean;
  readonly #options: InlineLinkOptions;
  readonly #deadlines: Deadlines;
  readonly #instances = new Map<string, PluginInstance>();

  constructor(options: InlineLinkOptions) {
    this.manifest = options.plugin.manifest;
    this.probes = new HookProbes(this.manifest.id, options);
    this.#deadlines = new Deadlines(options.clock);
    this.optionalInChildren = options.optionalInChildren;
    this.#options = options;
  }

  async register(slot: PluginSlot): Promise<Contributions> {
    const { contributions, stateful } = this.#instance(slot);
    slot.stateful = stateful;
    return contributions;
  }

  protocol(slot: PluginSlot): Protocol | undefined {
    const { protocol, register } = this.#options.plugin;
    // Most plugins have none: no instance is made to find that out.
    if (protocol === undefined && register === undefined) return undefined;
    const pieces = this.#instance(slot).protocol;
    if (pieces !== undefined) slot.touched = true;
    return pieces;
  }

  hook(slot: PluginSlot, hook: HookRef, facts: object, options: HookOptions): unknown {
    const instance = this.#instance(slot);
    slot.touched = true;
    const waiting = new InlineHook(this.manifest.id, hook, facts);
    let value: unknown;
    try {
      value = instance.hook(hook.kind, hook.nth, (context) => Object.assign(context, facts), waiting);
    } finally {
      waiting.over = !(value instanceof Promise);
    }
    // State that is at hand is captured by the commit itself; `options.capture` saves a hop that is not there.
    return value instanceof Promise ? this.#within(value, waiting, hook, options.signal) : value;
  }

  tool(slot: PluginSlot, toolId: string, args: unknown, tool: ToolContext): unknown {
    slot.touched = true;
    const { sessionId, turnId, callId } = tool;
    // The signal is made only when the tool looks at it.
    const waiting: InlineCall = {
      get signal() {
        return tool.signal;
      },
      over: false,
    };
    let result: unknown;
    try {
      const { definition, context } = this.#instance(slot).tool(toolId, { sessionId, turnId, callId }, waiting);
      result = runHere(definition, args as never, context);
    } finally {
      waiting.over = !(result instanceof Promise);
    }
    return result instanceof Promise ? untilOver(waiting, result) : detached(result);
  }

  operation(slot: PluginSlot, { spec, args, sessionId, signal }: OperationCall): Promise<unknown> {
    slot.touched = true;
    const waiting = new InlineOperation();
    const letGo = onAbort(signal, () => waiting.cancel());
    const settled = untilOver(waiting, this.#instance(slot).operation(spec.name, args, sessionId, waiting)).finally(
      letGo,
    );
    const deadlineMs = operationDeadline(spec, this.#options.deadlineMs);
    if (deadlineMs === undefined) return settled;
    return new Promise((resolve, reject) => {
      const deadline = this.#deadlines.add(deadlineMs, () => {
        waiting.over = true;
        waiting.cancel();
        this.renew(slot);
        reject(operationTimeout(spec, { pluginId: this.manifest.id, deadlineMs }));
      });
      settled.then(resolve, reject).finally(() => this.#deadlines.cancel(deadline));
    });
  }

  async capture(slot: PluginSlot): Promise<void> {
    const instance = this.#instances.get(slot.sessionId);
    const captured = instance?.capture();
    if (captured !== undefined) slot.keep(captured);
    // The session calls the pieces of its protocol directly, so their plugin may change at any time.
    slot.touched = instance?.protocol !== undefined;
  }

  revisionNow(slot: PluginSlot): bigint | undefined {
    return this.#instances.get(slot.sessionId)?.revisionNow();
  }

  restoreState(slot: PluginSlot, state: Uint8Array): void {
    if (this.#holdsProtocol(slot)) return;
    slot.adopt(state);
    this.renew(slot);
  }

  renew(slot: PluginSlot): void {
    if (this.#holdsProtocol(slot)) return;
    this.#instances.delete(slot.sessionId);
    slot.renewed();
  }

  /** The session holds its protocol's instance, so that one stays. */
  #holdsProtocol({ sessionId }: PluginSlot): boolean {
    return this.#instances.get(sessionId)?.protocol !== undefined;
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
      const options = { sessionId, captured, init, development, host: this.#hostFor(sessionId) };
      try {
        instance = new PluginInstance(plugin, options);
      } catch (error) {
        throw asTroupeError(error, "plugin_state_failed");
      }
      this.#instances.set(slot.sessionId, instance);
    }
    return instance;
  }

  #hostFor(sessionId: string): HostAccess {
    const { host } = this.#options;
    const pluginId = this.manifest.id;
    // As it is across a thread: nothing is shared, nothing is served for a call that has ended or was given up.
    return {
      call: async ({ granted, waiting, method, args, signal }) => {
        const { over, asking } = waiting as InlineCall;
        if (over) throw hostCallOver(pluginId, method);
        if (signal?.aborted) throw aborted(signal);
        const answer = host({ sessionId, pluginId, granted, method, args: copied(args, method), signal, asking });
        return copied(await untilAborted(answer, signal, aborted), method);
      },
    };
  }

  #within<T>(promise: Promise<T>, waiting: InlineHook, { kind }: HookRef, signal: AbortSignal | undefined): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const giveUp = (error: TroupeError) => {
        waiting.cancel();
        end(reject)(error);
      };
      let letGo = ignore;
      const end =
        <V>(settle: (value: V) => void) =>
        (value: V) => {
          this.#deadlines.cancel(deadline);
          letGo();
          waiting.over = true;
          settle(value);
        };
      const { deadlineMs } = this.#options;
      const deadline = this.#deadlines.add(deadlineMs, () => {
        const message = `Plugin ${this.manifest.id}: ${kind} did not answer within ${deadlineMs} ms.`;
        giveUp(new TroupeError("hook_timeout", message, { retryable: true }));
      });
      letGo = onAbort(signal, () => giveUp(aborted(signal as AbortSignal)));
      promise.then(end(resolve), end(reject));
    });
  }
}

async function untilOver(waiting: InlineCall, result: Promise<unknown>): Promise<unknown> {
  try {
    return detached(await result);
  } finally {
    waiting.over = true;
  }
}

function copied<T>(value: T, method: string): T {
  try {
    return detached(value) as T;
  } catch (cause) {
    throw new TroupeError("unserialisable", `What ${method} was called with, or answers, is not plain data.`, {
      cause,
    });
  }
}

/** A tool or operation may return a piece of its plugin's state: what is recorded must not change with it. */
function detached(result: unknown): unknown {
  return typeof result === "object" && result !== null ? structuredClone(result) : result;
}
