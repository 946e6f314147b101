import { ignore } from "../../async/index.js";
import {
  asTroupeError,
  completionKeyOf,
  invalidToolArgs,
  messageOf,
  TroupeError,
  type TroupeErrorCode,
  toolUnavailable,
  unknownMethod,
} from "../../kernel/index.js";
import {
  type ContributionSet,
  type Contributions,
  HOOK_HOSTS,
  type HostInterface,
  type HostMethod,
  hookNameOf,
  hostFacade,
  type LoadedPlugin,
  OPERATION_HOSTS,
  PluginOptions,
  type PluginRegistrar,
  type Protocol,
  pluginInvalid,
  type SessionPlugin,
  SHARED,
  type SharedFacts,
  type SharedState,
  TOOL_HOOK_HOST,
  unknownOperation,
  validateArgs,
} from "../../plugin/index.js";
import { askHere, checkSpawn, type NoteSink, runHere } from "../../tools/index.js";
import { decode, encodeState } from "../../wire/index.js";
import type { Captured, HookRef, InstanceInit, ToolFacts } from "./plugin-calls.js";
import { runOperation } from "./plugin-operations.js";
import { noShared, SharedAccess, type SharedOwner, sharedOwner } from "./shared-state.js";

/** Whoever waits for a hook or tool; the signal is made only when it is looked at. */
export interface Waiting {
  readonly signal: AbortSignal;
}

/** How an instance reaches the host services: in whose name, and for which call. */
export type HostAccess = (request: {
  readonly granted: readonly HostInterface[];
  readonly waiting: Waiting;
  readonly method: HostMethod;
  readonly args: readonly unknown[];
  /** When it aborts, the service was given up and has no answer. */
  readonly signal: AbortSignal | undefined;
}) => Promise<unknown>;

/** What a captured component holds: of a declared plugin its state, of one that registers what it wrote. */
interface CapturedState {
  readonly version: string;
  readonly state?: unknown;
  /** Of one that registers. Decimal: it has 64 bits. */
  readonly revision?: string;
  readonly blobs?: readonly Blob[];
}
type Blob = readonly [name: string, data: Uint8Array];

export interface InstanceOptions {
  readonly sessionId: string;
  readonly captured: Uint8Array | undefined;
  /** For a plugin that registers. */
  readonly init: InstanceInit | undefined;
  /** For a plugin with shared state. */
  readonly facts?: SharedFacts | undefined;
  readonly host: HostAccess;
  /** Look for state that changed under the same revision. */
  readonly development: boolean;
}

/** One plugin for one session: its state, and the calls that see it. Lives on the thread that runs the plugin. */
export class PluginInstance {
  readonly #plugin: LoadedPlugin;
  readonly #options: InstanceOptions;
  readonly #contributed: ContributionSet;
  /** Of a plugin that registers: what it keeps for itself. */
  readonly #own: SessionPlugin | undefined;
  readonly #state: unknown;
  readonly #shared: SharedOwner | null;
  #captured: Uint8Array | undefined;

  constructor(plugin: LoadedPlugin, options: InstanceOptions) {
    const { sessionId, captured } = options;
    this.#plugin = plugin;
    this.#options = options;
    this.#shared = sharedOwner(plugin, options);
    this.#captured = captured;
    const stored = captured === undefined ? undefined : decode<CapturedState>(captured);
    // A plugin that comes to keep its state in the other way still finds what it had.
    if (plugin.initialState !== undefined && stored?.state !== undefined) this.#state = stateOf(plugin, stored);
    else this.#state = plugin.initialState?.({ sessionId, options: plugin.options });
    const { contributed, own } = register(plugin, options);
    this.#contributed = contributed;
    this.#own = own;
    own?.sessionReady?.({ sessionId });
    // A session that was stored may have nothing of this plugin yet, and one that never was has something once its
    // plugin's thread was replaced.
    if (stored !== undefined || options.init?.fresh === false)
      this.#restore(plugin.initialState === undefined ? stored : undefined);
  }

  get contributions(): Contributions {
    return this.#contributed.specs();
  }

  /** Is there anything to capture? */
  get stateful(): boolean {
    return this.#own?.snapshot !== undefined || this.#plugin.initialState !== undefined;
  }

  /** The pieces of a protocol, when the plugin has any. */
  get protocol(): Protocol | undefined {
    return this.#contributed.protocol;
  }

  /** Calls a hook; the answer is as the plugin gave it, perhaps a promise. `fill` writes the kind's facts. */
  hook({ kind, nth }: HookRef, fill: (context: object) => void, waiting: Waiting): unknown {
    const hook = this.#contributed.hook(kind, nth);
    if (hook === undefined) {
      throw unknownMethod(`Plugin ${this.#plugin.manifest.id}`, hookNameOf(kind));
    }
    const shared = kind === "session_restored" ? null : this.#shared;
    const context = this.#context(waiting, HOOK_HOSTS[kind], undefined, shared);
    fill(context);
    // The context is made of what this kind sends; its type is checked where the facts are written.
    return hook(context as never);
  }

  /** Runs a tool with what every tool gets, and the session's state. */
  tool<W extends Waiting>(toolId: string, args: unknown, facts: ToolFacts, waiting: W, notes?: NoteSink<W>): unknown {
    const definition = this.#contributed.tool(toolId);
    if (definition === undefined) throw toolUnavailable(`Plugin ${this.#plugin.manifest.id} has no tool ${toolId}`);
    const { sessionId, turnId, callId, asks } = facts;
    const completionKey = completionKeyOf(sessionId, turnId, callId);
    const context = Object.assign(this.#context(waiting, TOOL_HOOK_HOST), { sessionId, turnId, callId, completionKey });
    // On the plugin's own thread: a pattern that never ends holds nobody else.
    const schema = this.#contributed.toolSchema(toolId);
    const problem = schema && validateArgs(schema, args as never);
    if (problem !== undefined) throw invalidToolArgs(problem);
    // The arguments fit this tool's own schema; its types are the plugin's.
    if (asks) return askHere(definition as never, args as never, context as never);
    return runHere(definition as never, args as never, context as never, notes, waiting);
  }

  /** Runs an operation: arguments in, outcome out, both checked against its schemas. */
  async operation(name: string, args: unknown, sessionId: string | undefined, waiting: Waiting): Promise<unknown> {
    const operation = this.#contributed.operation(name);
    if (operation === undefined) throw unknownOperation("operation", name);
    // An operation that is asked to stop may go on, and so may what it asks the host for.
    const host: HostAccess = (request) => this.#options.host({ ...request, signal: undefined });
    const context = Object.assign(this.#context(waiting, OPERATION_HOSTS[operation.spec.kind], host), {
      sessionId,
    });
    return runOperation(operation, args, context);
  }

  /** The state as bytes when it changed since the last capture (or restore); nothing when it did not, unless it is wanted in any case. */
  capture(inAnyCase = false): Captured {
    const { manifest } = this.#plugin;
    if (this.#own?.snapshot !== undefined) return this.#captureOwn(inAnyCase, this.#options.development);
    if (this.#plugin.initialState === undefined) return NOTHING_CAPTURED;
    const record: CapturedState = { version: manifest.version, state: this.#state };
    const bytes = encodeState(record, `The state of plugin ${manifest.id}`);
    if (!inAnyCase && this.#captured !== undefined && same(this.#captured, bytes)) return NOTHING_CAPTURED;
    this.#captured = bytes;
    return { state: bytes };
  }

  /** The declared state as it is; undefined when the plugin keeps its state itself. */
  get declaredState(): unknown {
    return this.#plugin.initialState === undefined ? undefined : this.#state;
  }

  /** The state as bytes when it changed, for a host that takes over; a commit asks for it by {@link capture}. */
  follow(): Uint8Array | undefined {
    if (this.#own?.snapshot !== undefined) return this.#captureOwn(false, false).state;
    return this.capture().state;
  }

  /** The revision a plugin counts itself. One that fails to is reported by the commit, which asks for it again. */
  revisionNow(): bigint | undefined {
    try {
      return this.#own?.snapshotRevision === undefined ? undefined : this.#revision();
    } catch {
      return undefined;
    }
  }

  /** A plugin that counts its revisions is believed; in development it is also checked. */
  #captureOwn(inAnyCase: boolean, checks: boolean): Captured {
    const { id, version } = this.#plugin.manifest;
    const revision = this.#asked("plugin_capture_failed", "snapshotRevision", () => String(this.#revision()));
    const last = this.#captured === undefined ? undefined : decode<CapturedState>(this.#captured);
    const current = last?.revision === revision && last.version === version;
    if (current && !inAnyCase && !checks) return NOTHING_CAPTURED;
    const blobs: Blob[] = [];
    const written = this.#asked("plugin_capture_failed", "snapshot", () =>
      this.#own?.snapshot?.({ writeBlob: (name, data) => void blobs.push([name, Uint8Array.from(data)]) }),
    );
    // undefined would come back as null and so as a state.
    const record = { version, revision, blobs, ...(written !== undefined && { state: written }) };
    const bytes = encodeState(record, `The state of plugin ${id}`);
    if (current && !inAnyCase) {
      const unrevised = this.#captured === undefined || !same(this.#captured, bytes);
      return unrevised ? { state: undefined, unrevised } : NOTHING_CAPTURED;
    }
    this.#captured = bytes;
    return { state: bytes };
  }

  #restore(stored: CapturedState | undefined): void {
    const own = this.#own;
    if (own?.restore === undefined) return;
    const { id: pluginId, version } = this.#plugin.manifest;
    const { blobs = [] } = stored ?? {};
    this.#asked("plugin_state_failed", "restore", () => {
      const revision = stored?.revision === undefined ? this.#revision() : BigInt(stored.revision);
      const state = stored === undefined ? undefined : stateOf(this.#plugin, stored);
      own.restore?.(
        { pluginId, pluginVersion: stored?.version ?? version, revision, state: state as never },
        { readBlob: (name) => blobs.find(([blob]) => blob === name)?.[1] },
      );
    });
  }

  #revision(): bigint {
    return BigInt(this.#own?.snapshotRevision?.() ?? 0);
  }

  /** What a plugin's own part throws is told in its name. */
  #asked<T>(code: TroupeErrorCode, method: keyof SessionPlugin, ask: () => T): T {
    const { id: pluginId } = this.#plugin.manifest;
    try {
      return ask();
    } catch (cause) {
      const message = `Plugin ${pluginId} failed in ${method}: ${messageOf(cause)}`;
      throw new TroupeError(code, message, { cause, details: { pluginId } });
    }
  }

  #context(
    waiting: Waiting,
    granted: readonly HostInterface[],
    host = this.#options.host,
    shared: SharedOwner | null = this.#shared,
  ): Context {
    return new Context(this.#state, this.#plugin, { waiting, granted, host, shared });
  }
}

const NOTHING_CAPTURED: Captured = { state: undefined };

/** What a plugin contributes to this session. */
function register(
  plugin: LoadedPlugin,
  { sessionId, init }: InstanceOptions,
): { contributed: ContributionSet; own: SessionPlugin | undefined } {
  const { options } = plugin;
  if (plugin.register === undefined && plugin.protocol === undefined)
    return { contributed: plugin.contributed, own: undefined };
  const contributed = plugin.contributed.copy();
  const protocol = plugin.protocol?.({ sessionId, options });
  if (protocol !== undefined) contributed.addProtocol(protocol);
  if (plugin.register === undefined) return { contributed, own: undefined };
  const { authority = {}, parentSessionId, extensions = {} } = init ?? {};
  let open = true;
  const registrar = registrarOf(contributed, () => {
    if (!open) throw pluginInvalid(`plugin ${plugin.manifest.id}`, "it registered something after register()");
  });
  let own: unknown;
  try {
    own = plugin.register(registrar, {
      sessionId,
      parentSessionId,
      isRootSession: parentSessionId === undefined,
      options: options as never,
      pluginOptions: new PluginOptions(authority.pluginOptions),
      toolAccess: {
        ...(authority.tools && { tools: authority.tools }),
        ...(authority.hiddenTools && { hiddenTools: authority.hiddenTools }),
      },
      subagent: authority.subagent,
      extensions,
    });
  } catch (error) {
    const message = `Plugin ${plugin.manifest.id} could not register: ${messageOf(error)}`;
    throw asTroupeError(error, "plugin_register_failed", message);
  }
  open = false;
  return { contributed, own: readSessionPlugin(own, plugin) };
}

/** What a register() returned, checked: it is foreign like any hook's answer. */
function readSessionPlugin(own: unknown, { manifest, initialState }: LoadedPlugin): SessionPlugin | undefined {
  const refuse = (why: string) => pluginInvalid(`plugin ${manifest.id}`, why);
  if (own instanceof Promise) {
    own.catch(ignore);
    throw refuse("its register() is asynchronous; register everything at once");
  }
  if (own === undefined || own === null) return undefined;
  const methods = own as Partial<Record<keyof SessionPlugin, unknown>>;
  const usable =
    typeof own === "object" &&
    SESSION_PLUGIN_METHODS.every((name) => methods[name] === undefined || typeof methods[name] === "function");
  if (!usable) throw refuse(`its register() returns nothing, or an object of ${SESSION_PLUGIN_METHODS.join(", ")}`);
  if (methods.snapshot !== undefined && initialState !== undefined)
    throw refuse("it has both a declared state and a snapshot of its own");
  return own;
}

const SESSION_PLUGIN_METHODS = [
  "snapshotRevision",
  "snapshot",
  "restore",
  "sessionReady",
] as const satisfies readonly (keyof SessionPlugin)[];

function registrarOf(set: ContributionSet, check: () => void): PluginRegistrar<unknown, never> {
  const checked =
    <A extends readonly unknown[]>(add: (...args: A) => void) =>
    (...args: A) => {
      check();
      add(...args);
    };
  return {
    hook: checked((name: string, hook: unknown) => set.addHook(name, hook)),
    tool: checked((name: string, tool: unknown) => set.addTool(name, tool)),
    query: checked((name: string, query: unknown) => set.addOperation("query", name, query)),
    command: checked((name: string, command: unknown) => set.addOperation("command", name, command)),
    task: checked((name: string, task: unknown) => set.addOperation("task", name, task)),
    action: checked((name: string, action: unknown) => set.addOperation("action", name, action)),
    trigger: checked((trigger: unknown) => set.addTrigger(trigger)),
    protocol: checked((pieces: Protocol) => set.addProtocol(pieces)),
  };
}

function stateOf({ manifest, migrate }: LoadedPlugin, { version, state }: CapturedState): unknown {
  if (version === manifest.version || migrate === undefined) return state;
  return migrate(state, version);
}

function same(a: Uint8Array, b: Uint8Array): boolean {
  return Buffer.compare(a, b) === 0;
}

/** The version that captured some state, and its revision when the plugin counts them itself. */
export function describeCaptured(captured: Uint8Array): { version: string; revision: bigint | undefined } {
  const { version, revision } = decode<CapturedState>(captured);
  return { version, revision: revision === undefined ? undefined : BigInt(revision) };
}

/** The call a context is for, and how its host services are reached. */
type ContextCall = Pick<Parameters<HostAccess>[0], "waiting" | "granted"> & {
  readonly host: HostAccess;
  readonly shared: SharedOwner | null;
};

/** State, options, host services and a signal on demand; the facts are added to it. */
class Context {
  readonly state: unknown;
  readonly options: unknown;
  readonly #call: ContextCall;
  readonly #plugin: LoadedPlugin;
  #host: object | undefined;
  #shared: SharedState<unknown> | undefined;

  constructor(state: unknown, plugin: LoadedPlugin, call: ContextCall) {
    this.state = state;
    this.options = plugin.options;
    this.#plugin = plugin;
    this.#call = call;
  }

  get signal(): AbortSignal {
    return this.#call.waiting.signal;
  }

  get host(): object {
    const { waiting, granted, host } = this.#call;
    this.#host ??= hostFacade(granted, (method, args) => {
      const asked = () => host({ granted, waiting, method, args, signal: waiting.signal });
      return this.#plugin.jobs.size === 0 ? asked() : checkSpawn(this.#plugin, method, args).then(asked);
    });
    return this.#host;
  }

  get shared(): SharedState<unknown> {
    const { waiting, granted, host, shared } = this.#call;
    if (shared === null) throw noShared(this.#plugin.manifest.id, this.#plugin.shared !== undefined);
    this.#shared ??= new SharedAccess(shared, (args) =>
      host({ granted, waiting, method: SHARED, args, signal: waiting.signal }),
    );
    return this.#shared;
  }
}
