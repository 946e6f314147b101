import { ignore, onAbort, untilAborted } from "../../async/index.js";
import { aborted, asTroupeError, TroupeError, triggerCheckTimeout, unserialisable } from "../../kernel/index.js";
import {
  type Contributions,
  hookNameOf,
  type LoadedPlugin,
  operationDeadline,
  operationTimeout,
  type PluginManifest,
  type Protocol,
} from "../../plugin/index.js";
import type { HomeContext, NoteSink } from "../../tools/index.js";
import { Deadlines, ServedCall } from "../../wire/index.js";
import {
  type HookRef,
  type HostAccess,
  PluginInstance,
  payloadProblem,
  placeOf,
  type ToolFacts,
  type Waiting,
} from "../plugin-thread/index.js";
import { PluginPolicy } from "./failure-policy.js";
import {
  AskingCall,
  AskingTool,
  type HookOptions,
  hookProbes,
  hostCallOver,
  type LinkOptions,
  type OperationCall,
  type PluginLink,
  type PluginSlot,
  type TriggeredEvent,
} from "./plugin-link.js";

interface InlineLinkOptions extends LinkOptions {
  readonly plugin: LoadedPlugin;
  readonly development: boolean;
}

/** A call whose plugin can ask for host services until it is over. Plain fields: one is made for every hook call. */
class InlineCall extends ServedCall {
  over = false;
  readonly #hook: HookRef | undefined;
  readonly #facts: object | undefined;
  readonly #pluginId: string;
  #asking: AskingCall | undefined;

  constructor(pluginId: string, hook?: HookRef, facts?: object) {
    super();
    this.#pluginId = pluginId;
    this.#hook = hook;
    this.#facts = facts;
  }

  /** Of a hook, which may be made again. Made when it first asks for something. */
  get asking(): AskingCall | undefined {
    if (this.#hook === undefined || this.#facts === undefined) return undefined;
    this.#asking ??= new AskingCall(placeOf(this.#pluginId, this.#hook, this.#facts));
    return this.#asking;
  }
}

interface InlineToolCall extends Waiting {
  readonly context: HomeContext;
  readonly facts: ToolFacts;
  readonly tool: AskingTool;
}

/** A trusted plugin in the session worker itself: no hop, and no protection from its loops. */
export class InlineLink implements PluginLink {
  readonly manifest: PluginManifest;
  readonly probes: PluginLink["probes"];
  readonly isHere = true;
  readonly optionalInChildren: boolean;
  readonly policy: PluginPolicy;
  readonly #options: InlineLinkOptions;
  readonly #deadlines: Deadlines;
  readonly #instances = new Map<string, PluginInstance>();
  /** Where its tools say how far they are: the sessions are on this thread. */
  readonly #notes: NoteSink<InlineToolCall>;

  constructor(options: InlineLinkOptions) {
    this.manifest = options.plugin.manifest;
    this.probes = hookProbes(this.manifest.id, options);
    this.#deadlines = new Deadlines(options.clock);
    this.optionalInChildren = options.optionalInChildren;
    this.policy = new PluginPolicy(this.manifest.id, options);
    this.#options = options;
    const { clock, noted } = options;
    this.#notes = {
      clock,
      tell: ({ context, facts }, note) => {
        if (!context.isOver) noted?.(facts, note);
      },
    };
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
    const waiting = new InlineCall(this.manifest.id, hook, facts);
    let value: unknown;
    try {
      value = instance.hook(hook, (context) => Object.assign(context, facts), waiting);
    } finally {
      waiting.over = !(value instanceof Promise);
    }
    // State that is at hand is captured by the commit itself; `options.capture` saves a hop that is not there.
    if (!(value instanceof Promise)) return value;
    const { deadlineMs } = this.#options;
    return this.#within(value, waiting, {
      deadlineMs,
      signal: options.signal,
      expired: () => {
        const message = `Plugin ${this.manifest.id}: ${hookNameOf(hook.kind)} did not answer within ${deadlineMs} ms.`;
        return new TroupeError("hook_timeout", message, { retryable: true });
      },
    });
  }

  tool(slot: PluginSlot, toolId: string, args: unknown, context: HomeContext): unknown {
    slot.touched = true;
    const { sessionId, turnId, callId, asks, attempt } = context;
    const facts = { sessionId, turnId, callId, ...(asks && { asks }), ...(attempt && { attempt }) };
    let asking: AskingTool | undefined;
    // The signal is made only when the tool looks at it.
    const waiting = {
      get signal() {
        return context.signal;
      },
      get tool() {
        asking ??= new AskingTool(facts);
        return asking;
      },
      over: false,
      context,
      facts,
    };
    let result: unknown;
    try {
      result = this.#instance(slot).tool(toolId, args, facts, waiting, this.#notes);
    } finally {
      waiting.over = !(result instanceof Promise);
    }
    return result instanceof Promise ? untilOver(waiting, result) : detached(result);
  }

  operation(slot: PluginSlot, { spec, args, sessionId, signal }: OperationCall): Promise<unknown> {
    slot.touched = true;
    const waiting = new InlineCall(this.manifest.id);
    const letGo = onAbort(signal, () => waiting.cancel());
    const running = this.#instance(slot).operation(spec.name, args, sessionId, waiting);
    const settled = untilOver(waiting, running).finally(letGo);
    const deadlineMs = operationDeadline(spec, this.#options.deadlineMs);
    if (deadlineMs === undefined) return settled;
    const expired = () => {
      waiting.over = true;
      waiting.cancel();
      this.renew(slot);
      return operationTimeout(spec, { pluginId: this.manifest.id, deadlineMs });
    };
    return this.#within(settled, waiting, { deadlineMs, expired });
  }

  payload(_slot: PluginSlot, { source, payload }: TriggeredEvent): Promise<string | undefined> {
    const { plugin, deadlineMs } = this.#options;
    const expired = () => triggerCheckTimeout(source, deadlineMs, { retryable: true });
    const waiting = new InlineCall(this.manifest.id);
    return this.#within(payloadProblem(plugin, source, payload), waiting, { deadlineMs, expired });
  }

  async capture(slot: PluginSlot): Promise<void> {
    const instance = this.#instances.get(slot.sessionId);
    const captured = instance?.capture();
    if (captured !== undefined) slot.keepOwn(captured);
    // The session calls the pieces of its protocol directly, so their plugin may change at any time.
    slot.touched = instance?.protocol !== undefined;
  }

  revisionNow(slot: PluginSlot): bigint | undefined {
    return this.#instances.get(slot.sessionId)?.revisionNow();
  }

  /** The session holds its protocol's instance, so that one stays. */
  renew(slot: PluginSlot, state?: Uint8Array): void {
    if (this.#instances.get(slot.sessionId)?.protocol !== undefined) return;
    this.#instances.delete(slot.sessionId);
    slot.renewed(state);
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
      const { sessionId, captured, init, facts } = slot;
      const options = { sessionId, captured, init, facts, development, host: this.#hostFor(sessionId) };
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
    return async ({ granted, waiting, method, args, signal }) => {
      const { over, asking, tool } = waiting as InlineCall & Partial<InlineToolCall>;
      if (over) throw hostCallOver(`Plugin ${pluginId}`, method);
      if (signal?.aborted) throw aborted(signal);
      const answer = host({ sessionId, pluginId, granted, method, args: copied(args, method), signal, asking, tool });
      return copied(await untilAborted(answer, signal, aborted), method);
    };
  }

  /** Waits for a call until its deadline, or until nobody does any more. */
  #within<T>(
    promise: Promise<T>,
    waiting: InlineCall,
    {
      deadlineMs,
      expired,
      signal,
    }: { deadlineMs: number; expired: () => TroupeError; signal?: AbortSignal | undefined },
  ): Promise<T> {
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
      const deadline = this.#deadlines.add(deadlineMs, () => giveUp(expired()));
      letGo = onAbort(signal, () => giveUp(aborted(signal as AbortSignal)));
      promise.then(end(resolve), end(reject));
    });
  }
}

async function untilOver(waiting: { over: boolean }, result: Promise<unknown>): Promise<unknown> {
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
    throw unserialisable(method, "what it was called with, or answers, is not plain data", cause);
  }
}

/** A tool or operation may return a piece of its plugin's state: what is recorded must not change with it. */
function detached(result: unknown): unknown {
  return typeof result === "object" && result !== null ? structuredClone(result) : result;
}
