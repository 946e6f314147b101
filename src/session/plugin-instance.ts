import { TroupeError } from "../kernel/index.js";
import { type HookKind, type LoadedPlugin, type OperationOutcome, parseAny } from "../plugin/index.js";
import { decode, encodeState } from "../wire/index.js";

/** Whoever waits for a hook or tool; the signal is made only when it is looked at. */
export interface Waiting {
  readonly signal: AbortSignal;
}

/** What a captured component holds. */
interface CapturedState {
  readonly version: string;
  readonly state: unknown;
}

/** One plugin for one session: its state, and the calls that see it. Lives on the thread that runs the plugin. */
export class PluginInstance {
  readonly #plugin: LoadedPlugin;
  readonly #state: unknown;
  #captured: Uint8Array | undefined;

  constructor(plugin: LoadedPlugin, sessionId: string, captured: Uint8Array | undefined) {
    this.#plugin = plugin;
    this.#captured = captured;
    if (captured !== undefined) this.#state = stateOf(plugin, decode<CapturedState>(captured));
    else this.#state = plugin.initialState?.({ sessionId, options: plugin.options });
  }

  /** Calls a hook; the answer is as the plugin gave it, perhaps a promise. `fill` writes the kind's facts. */
  hook(kind: HookKind, fill: (context: object) => void, waiting: Waiting): unknown {
    const hook = this.#plugin.hooks.get(kind);
    if (hook === undefined) {
      throw new TroupeError("unknown_hook", `Plugin ${this.#plugin.manifest.id} has no ${kind} hook.`);
    }
    const context = this.#context(waiting);
    fill(context);
    // The context is made of what this kind sends; its type is checked where the facts are written.
    return hook(context as never);
  }

  /** The context a tool of this plugin runs with: what every tool gets, and the session's state. */
  toolContext(facts: object, waiting: Waiting): object {
    return Object.assign(this.#context(waiting), facts);
  }

  /** Runs an operation: arguments in, outcome out, both checked against its schemas. */
  async operation(name: string, args: unknown, sessionId: string | undefined, waiting: Waiting): Promise<unknown> {
    const operation = this.#plugin.operations.get(name);
    if (operation === undefined) throw new TroupeError("operation_unknown", `There is no operation ${name}.`);
    const { spec, input, output, run } = operation;
    const parsed = await parseAny(input, args ?? {}, spec.name);
    if (!parsed.ok) throw operationFailed(`the arguments of ${name} are not valid: ${parsed.issues.join("; ")}`);
    const context = Object.assign(this.#context(waiting), { sessionId });
    const returned = await run(parsed.value, context as never);
    const outcome = spec.kind === "query" ? { output: returned } : readOutcome(returned, name);
    if (output === undefined) return outcome;
    const checked = await parseAny(output, outcome.output, spec.name);
    if (!checked.ok) throw operationFailed(`the output of ${name} is not valid: ${checked.issues.join("; ")}`);
    return { ...outcome, output: checked.value };
  }

  /** The state as bytes when it changed since the last capture (or restore); undefined when it did not, unless it is wanted in any case. */
  capture(inAnyCase = false): Uint8Array | undefined {
    const { manifest } = this.#plugin;
    if (!manifest.stateful) return undefined;
    const record: CapturedState = { version: manifest.version, state: this.#state };
    const bytes = encodeState(record, `The state of plugin ${manifest.id}`);
    if (!inAnyCase && this.#captured !== undefined && Buffer.compare(this.#captured, bytes) === 0) return undefined;
    this.#captured = bytes;
    return bytes;
  }

  #context(waiting: Waiting): Context {
    return new Context(this.#state, this.#plugin.options, waiting);
  }
}

function readOutcome(returned: unknown, name: string): OperationOutcome {
  if (typeof returned === "object" && returned !== null && "output" in returned) return returned as OperationOutcome;
  throw operationFailed(`${name} must return { output, events?, directives? }`);
}

function operationFailed(why: string): TroupeError {
  return new TroupeError("operation_failed", `The operation failed: ${why}.`);
}

function stateOf({ manifest, migrate }: LoadedPlugin, { version, state }: CapturedState): unknown {
  if (version === manifest.version || migrate === undefined) return state;
  return migrate(state, version);
}

/** The version that captured some state; checked before anything is opened with it. */
export function versionOfCaptured(captured: Uint8Array): string {
  return decode<CapturedState>(captured).version;
}

/** State, options and a signal on demand; the facts are added to it. */
class Context {
  readonly state: unknown;
  readonly options: unknown;
  readonly #waiting: Waiting;

  constructor(state: unknown, options: unknown, waiting: Waiting) {
    this.state = state;
    this.options = options;
    this.#waiting = waiting;
  }

  get signal(): AbortSignal {
    return this.#waiting.signal;
  }
}
