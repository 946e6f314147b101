import {
  type JsonObject,
  knownInstead,
  type PluginEvent,
  type ToolOutput,
  type ToolSpec,
  TroupeError,
} from "../../kernel/index.js";
import {
  type HostInterface,
  PLUGIN_ACTION_HOST,
  type PluginActionHost,
  QUERY_HOST,
  type QueryHost,
  type SharedReader,
  type SharedState,
} from "../host/index.js";
import type { InferSchema, Schema } from "../schema/index.js";
import type { ToolPolicy } from "../tool/index.js";
import type { HookKind } from "./hooks.js";

/**
 * A query only reads and is answered while a turn runs; commands and tasks have the session to themselves. An action
 * is the older form: it answers with a tool's output and has no effects beyond the plugin's own state.
 */
export type OperationKind = "query" | "command" | "task" | "action";

/** An operation as a caller names it: one of a kind, or one of a plugin whatever its kind. */
export type NamedOperation = { readonly name: string } & (
  | { readonly kind: OperationKind }
  | { readonly pluginId: string }
);

/** Must, may or must not a session be named? One that is forbidden runs on a session, but is not about it. */
export type SessionParam = "required" | "optional" | "forbidden";

export interface OperationContext<State, Options, Host = PluginActionHost, Shared = SharedState<unknown>> {
  /** The session it is about: the one it was called on unless another was named, and none when forbidden. */
  readonly sessionId: string | undefined;
  readonly state: State;
  readonly options: Options;
  /** Aborts when the caller gives up. A task that ignores it finishes, and its effects count. */
  readonly signal: AbortSignal;
  readonly host: Host;
  /** What sessions of the same key share; only of a plugin that declares `shared`. A query reads it. */
  readonly shared: Shared;
}

/** Which host services an operation is given: a query reads. */
export const OPERATION_HOSTS = {
  query: QUERY_HOST,
  command: PLUGIN_ACTION_HOST,
  task: PLUGIN_ACTION_HOST,
  action: PLUGIN_ACTION_HOST,
} as const satisfies Record<OperationKind, readonly HostInterface[]>;

interface OperationBase<I extends Schema> {
  readonly description: string;
  readonly input: I;
  readonly output?: Schema;
  /** Default `optional`. */
  readonly session?: SessionParam;
  /** How many milliseconds it may take. Default: the plugin's own `deadlineMs`; a task has none. */
  readonly deadlineMs?: number;
}

export interface Query<I extends Schema, State, Options, Shared = unknown> extends OperationBase<I> {
  run(args: InferSchema<I>, context: OperationContext<State, Options, QueryHost, SharedReader<Shared>>): unknown;
}

/** What an action returns becomes a successful output, what it throws a failed one; an output is taken as it is. */
export interface Action<I extends Schema, State, Options, Shared = unknown> extends OperationBase<I> {
  /** `query` (default): answered at once. `command`: in its place between turns. */
  readonly acts?: "query" | "command";
  run(
    args: InferSchema<I>,
    context: OperationContext<State, Options, PluginActionHost, SharedState<Shared>>,
  ): unknown | ToolOutput;
}

/** Asks for a turn once the command is done, behind the turns already asked for. */
export interface QueueTurn {
  readonly kind: "queue_turn";
  readonly input: string;
}

export function queueTurn(input: string): QueueTurn {
  return { kind: "queue_turn", input };
}

/** What a command or task came to. */
export interface OperationOutcome {
  readonly output: unknown;
  readonly events?: readonly PluginEvent[];
  readonly directives?: readonly QueueTurn[];
}

export interface Command<I extends Schema, State, Options, Shared = unknown> extends OperationBase<I> {
  run(
    args: InferSchema<I>,
    context: OperationContext<State, Options, PluginActionHost, SharedState<Shared>>,
  ): OperationOutcome | Promise<OperationOutcome>;
}

/** What is known of an operation without its code. */
export interface OperationSpec {
  readonly name: string;
  readonly kind: OperationKind;
  readonly description: string;
  readonly session: SessionParam;
  readonly inputSchema: JsonObject;
  readonly outputSchema?: JsonObject;
  /** Of an action: how it is called. */
  readonly acts?: "query" | "command";
  /** When it has a deadline of its own. */
  readonly deadlineMs?: number;
}

/** An operation as its plugin runs it. */
export interface LoadedOperation {
  readonly spec: OperationSpec;
  readonly input: Schema;
  readonly output: Schema | undefined;
  readonly run: (args: unknown, context: OperationContext<unknown, unknown>) => unknown;
}

/**
 * The session an operation is about. `given` is what the caller named, `current` the session it was called on.
 *
 * @throws `operation_unexpected_session` when one was named and none is allowed, `operation_missing_session` when one is
 * needed and there is none.
 */
export function operationSession(
  spec: OperationSpec,
  given: string | undefined,
  current: string | undefined,
): string | undefined {
  if (spec.session === "forbidden") {
    if (given === undefined) return undefined;
    throw new TroupeError("operation_unexpected_session", `${spec.name} is not about a session; do not name one.`);
  }
  const effective = given ?? current;
  if (effective === undefined && spec.session === "required") {
    throw new TroupeError("operation_missing_session", `${spec.name} is about a session; name one.`);
  }
  return effective;
}

/** Does an operation need the session to itself? */
export function needsItsTurn({ kind, acts }: Pick<OperationSpec, "kind" | "acts">): boolean {
  return kind === "action" ? acts === "command" : kind !== "query";
}

/** How long an operation may take, in milliseconds; undefined: as long as it wants to. `pluginMs`: its plugin's deadline. */
export function operationDeadline(
  { kind, deadlineMs }: Pick<OperationSpec, "kind" | "deadlineMs">,
  pluginMs: number,
): number | undefined {
  return deadlineMs ?? (kind === "task" ? undefined : pluginMs);
}

export function operationTimeout(
  { kind, name }: Pick<OperationSpec, "kind" | "name">,
  { pluginId, deadlineMs }: { readonly pluginId: string; readonly deadlineMs: number },
): TroupeError {
  return new TroupeError(
    "operation_timeout",
    `Plugin ${pluginId}: ${kind} ${name} did not settle within ${deadlineMs} ms. What it did counts for nothing, and the plugin goes on from its last captured state. Give it a longer deadlineMs, in its definition or in the plugin's entry, or make it a task.`,
    { retryable: true, details: { pluginId, operation: name, deadlineMs } },
  );
}

/** `owner` is the plugin that has an operation of this name, `operations` are the names the asked one has. */
export function notOfPlugin(
  { name, pluginId }: { readonly name: string; readonly pluginId: string },
  { owner, operations }: { readonly owner: string | undefined; readonly operations: readonly string[] },
): TroupeError {
  const whose = owner === undefined ? "" : ` ${name} is an operation of plugin ${owner}.`;
  const others = operations.length === 0 ? "It has none in this session." : `It has: ${operations.join(", ")}.`;
  return operationUnknown(`Plugin ${pluginId} has no operation ${name}.${whose} ${others}`, {
    name,
    pluginId,
    operations,
  });
}

/** `known`: the operations there are; one of the same name is of another kind. */
export function unknownOperation(
  kind: OperationKind | "operation",
  name: string,
  known: readonly Pick<OperationSpec, "kind" | "name">[] = [],
): TroupeError {
  const other = known.find((each) => each.name === name);
  const names = known.filter((each) => each.kind === kind).map((each) => each.name);
  const hint =
    other === undefined ? knownInstead(name, names) : `It is a ${other.kind}: session.${other.kind}("${name}").`;
  return operationUnknown(`There is no ${kind} called ${name}. ${hint}`, { kind, name });
}

function operationUnknown(message: string, details: Readonly<Record<string, unknown>>): TroupeError {
  return new TroupeError("operation_unknown", message, { details });
}

/** A hook as it is known without its code. */
export interface HookSpec {
  readonly kind: HookKind;
  /** The tools it is for; absent: all. */
  readonly tools?: readonly string[];
  readonly priority?: number;
  /** It is told when a block is over. */
  readonly final?: true;
  /** It may replace the input, so nothing of that is written before it. */
  readonly replacesInput?: true;
}

export interface PluginToolSpec extends ToolPolicy {
  readonly spec: ToolSpec;
  readonly onDemand?: boolean;
}

/** An event of the outside world that a plugin knows how to start something with. */
export interface TriggerSpec {
  readonly resourceType: string;
  readonly alias: string;
  readonly event: string;
  readonly payloadSchema: JsonObject;
}

/** The name a trigger goes by. */
export function triggerSource({ alias, event }: Pick<TriggerSpec, "alias" | "event">): string {
  return `${alias}.${event}`;
}

/** What a plugin contributes to a session, as data: enough to call only what exists. */
export interface Contributions {
  readonly hooks: readonly HookSpec[];
  readonly tools: readonly PluginToolSpec[];
  readonly operations: readonly OperationSpec[];
  readonly triggers: readonly TriggerSpec[];
}

export const NO_CONTRIBUTIONS: Contributions = Object.freeze({ hooks: [], tools: [], operations: [], triggers: [] });

/**
 * The triggers of all plugins. Two with one resource type, alias and event are refused, and so are two that would go by
 * one name although their resource types differ.
 */
export class TriggerCatalog {
  readonly all: readonly TriggerSpec[];
  /** Plugins' ids by the names of their triggers. */
  readonly #owners: ReadonlyMap<string, string>;

  constructor(triggers: readonly { readonly pluginId: string; readonly trigger: TriggerSpec }[]) {
    const owners = new Map<string, string>();
    for (const { pluginId, trigger } of triggers) {
      const source = triggerSource(trigger);
      const other = owners.get(source);
      if (other !== undefined) {
        throw new TroupeError("duplicate_trigger", `Plugins ${other} and ${pluginId} both declare trigger ${source}.`, {
          details: { trigger: source, plugins: [other, pluginId] },
        });
      }
      owners.set(source, pluginId);
    }
    this.#owners = owners;
    this.all = triggers.map(({ trigger }) => trigger);
  }

  /** The plugin that declares a trigger, by the name it goes by. */
  ownerOf(source: string): string | undefined {
    return this.#owners.get(source);
  }

  find(resourceType: string, alias: string, event: string): TriggerSpec | undefined {
    return this.all.find(
      (trigger) => trigger.resourceType === resourceType && trigger.alias === alias && trigger.event === event,
    );
  }
}
