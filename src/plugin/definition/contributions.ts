import {
  duplicateTool,
  type FieldsOf,
  type JsonObject,
  sentence,
  TroupeError,
  unknownField,
  unknownName,
} from "../../kernel/index.js";
import {
  type Action,
  type Contributions,
  type FinalHook,
  HOOK_KINDS,
  type HookContext,
  type HookKind,
  type HookName,
  type HookSpec,
  type LoadedOperation,
  MATCHED_KINDS,
  type MatchedHook,
  type OperationKind,
  type PluginToolSpec,
  PRIORITISED_KINDS,
  type PrioritisedHook,
  type Protocol,
  type ReplacingHook,
  type SessionParam,
  type TriggerSpec,
  triggerSource,
} from "../kinds/index.js";
import { jsonSchemaOf, type Schema } from "../schema/index.js";
import { checkToolName, type PluginTool, toolPolicy } from "../tool/index.js";

export type AnyHook = (context: HookContext<HookKind, unknown, unknown>) => unknown;
export type AnyPluginTool = PluginTool<Schema, unknown, unknown>;

type Fields = Record<string, unknown>;

const SESSION_PARAMS: readonly unknown[] = ["required", "optional", "forbidden"] satisfies SessionParam[];

const HOOK_FIELDS: FieldsOf<
  | MatchedHook<"before_tool_call", unknown, unknown>
  | PrioritisedHook<"context_compactor", unknown, unknown>
  | FinalHook<"assistant_stream", unknown, unknown>
  | ReplacingHook<unknown, unknown>
> = {
  run: true,
  tools: true,
  priority: true,
  final: true,
  replacesInput: true,
};

const TOOL_FIELDS: FieldsOf<AnyPluginTool> = {
  id: true,
  onDemand: true,
  execute: true,
  description: true,
  inputSchema: true,
  timeoutMs: true,
  cancelGraceMs: true,
  retry: true,
  maxConcurrent: true,
  argumentProjection: true,
  approval: true,
};

const OPERATION_FIELDS: FieldsOf<Action<Schema, unknown, unknown>> = {
  description: true,
  input: true,
  output: true,
  session: true,
  deadlineMs: true,
  acts: true,
  run: true,
};

/** What a plugin contributes, with its code. Collected once for a declared plugin, per session for one that registers. */
export class ContributionSet {
  readonly #owner: string;
  readonly #source: string;
  readonly #hooks: { readonly spec: HookSpec; readonly run: AnyHook }[] = [];
  readonly #byKind = new Map<HookKind, AnyHook[]>();
  readonly #tools = new Map<string, { readonly tool: AnyPluginTool; readonly spec: PluginToolSpec }>();
  readonly #operations = new Map<string, LoadedOperation>();
  readonly #triggers: TriggerSpec[] = [];
  /** What payloads are checked with, by trigger: as the plugin has it, which JSON Schema may say only in part. */
  readonly #payloads = new Map<string, Schema>();
  #protocol: Protocol | undefined;

  /** `source` names the module in errors. */
  constructor(owner: string, source: string) {
    this.#owner = owner;
    this.#source = source;
  }

  /** Another set with what is in this one. */
  copy(): ContributionSet {
    const copy = new ContributionSet(this.#owner, this.#source);
    for (const { spec, run } of this.#hooks) copy.#push(spec, run);
    for (const [key, tool] of this.#tools) copy.#tools.set(key, tool);
    for (const [name, operation] of this.#operations) copy.#operations.set(name, operation);
    copy.#triggers.push(...this.#triggers);
    for (const [source, schema] of this.#payloads) copy.#payloads.set(source, schema);
    copy.#protocol = this.#protocol;
    return copy;
  }

  get protocol(): Protocol | undefined {
    return this.#protocol;
  }

  /** Hook number `nth` of a kind. */
  hook(kind: HookKind, nth: number): AnyHook | undefined {
    return this.#byKind.get(kind)?.[nth];
  }

  /** A tool by its id. */
  tool(id: string): AnyPluginTool | undefined {
    return this.#tools.get(id)?.tool;
  }

  /** The JSON Schema of a tool's arguments, by the tool's id. */
  toolSchema(id: string): JsonObject | undefined {
    return this.#tools.get(id)?.spec.spec.inputSchema;
  }

  operation(name: string): LoadedOperation | undefined {
    return this.#operations.get(name);
  }

  /** What the payload of a trigger is checked with, by the name it goes by. */
  payloadSchema(source: string): Schema | undefined {
    return this.#payloads.get(source);
  }

  specs(): Contributions {
    return {
      hooks: this.#hooks.map(({ spec }) => spec),
      tools: [...this.#tools.values()].map(({ spec }) => spec),
      operations: [...this.#operations.values()].map(({ spec }) => spec),
      triggers: this.#triggers,
    };
  }

  addHook(name: string, given: unknown): void {
    if (!Object.hasOwn(HOOK_KINDS, name)) {
      const why = unknownName(name, Object.keys(HOOK_KINDS), `plugin ${this.#owner}`, "hook");
      throw pluginInvalid(this.#source, why);
    }
    const kind = HOOK_KINDS[name as HookName];
    if (typeof given === "function") {
      this.#push({ kind }, given as AnyHook);
      return;
    }
    const { run, tools, priority, final, replacesInput } = (given ?? {}) as Fields;
    const hook = `hook ${name}`;
    this.#checkFields(given, HOOK_FIELDS, hook);
    if (typeof run !== "function") throw this.#invalid(hook, "is not a function");
    if (MATCHED_KINDS.includes(kind)) {
      if (!Array.isArray(tools) || !tools.every((tool) => typeof tool === "string"))
        throw this.#invalid(hook, 'needs a list of tool names in "tools"');
      this.#push({ kind, tools }, run as AnyHook);
    } else if (PRIORITISED_KINDS.includes(kind)) {
      if (!Number.isSafeInteger(priority)) throw this.#invalid(hook, "needs a whole number as its priority");
      this.#push({ kind, priority: priority as number }, run as AnyHook);
    } else if (kind === "assistant_stream") {
      if (final !== true) throw this.#invalid(hook, "needs final: true, or to be a function");
      this.#push({ kind, final }, run as AnyHook);
    } else if (kind === "before_turn") {
      if (replacesInput !== true) throw this.#invalid(hook, "needs replacesInput: true, or to be a function");
      this.#push({ kind, replacesInput }, run as AnyHook);
    } else throw this.#invalid(hook, "is not a function");
  }

  addTool(name: string, given: unknown): void {
    checkToolName(name);
    const tool = given as Partial<AnyPluginTool> | null;
    if (typeof tool?.description !== "string" || typeof tool.execute !== "function" || tool.inputSchema === undefined)
      throw this.#invalid(`tool ${name}`, "needs a description, an inputSchema and an execute function");
    this.#checkFields(tool, TOOL_FIELDS, `tool ${name}`);
    const { id = name, description, inputSchema, onDemand } = tool as AnyPluginTool;
    const taken = this.#tools.has(id) || (onDemand !== true && this.#advertises(name));
    if (taken) throw twoTools(name, this.#owner);
    const schema = jsonSchemaOf(inputSchema, `tool ${name} of plugin ${this.#owner}`);
    this.#tools.set(id, {
      tool: tool as AnyPluginTool,
      spec: {
        spec: { name, description, inputSchema: schema, ...(id !== name && { id }) },
        ...toolPolicy(`tool ${name} of plugin ${this.#owner}`, tool),
        ...(onDemand === true && { onDemand }),
      },
    });
  }

  addOperation(kind: OperationKind, name: string, given: unknown): void {
    const { description, input, output, session = "optional", run, acts, deadlineMs } = (given ?? {}) as Fields;
    const complete = typeof description === "string" && typeof run === "function" && input !== undefined;
    if (!complete || !SESSION_PARAMS.includes(session))
      throw this.#invalid(`${kind} ${name}`, "needs a description, an input schema and a run function");
    this.#checkFields(given, OPERATION_FIELDS, `${kind} ${name}`);
    if (deadlineMs !== undefined && !(Number.isSafeInteger(deadlineMs) && (deadlineMs as number) > 0))
      throw this.#invalid(`the deadlineMs of ${kind} ${name}`, "is no whole number from 1");
    if (this.#operations.has(name)) throw duplicateOperation(name, this.#owner, this.#owner);
    const inputSchema = jsonSchemaOf(input as Schema, `${kind} ${name} of plugin ${this.#owner}`);
    const outputSchema =
      output === undefined ? undefined : jsonSchemaOf(output as Schema, `the output of ${name} of ${this.#owner}`);
    this.#operations.set(name, {
      spec: {
        name,
        kind,
        description: description as string,
        session: session as SessionParam,
        inputSchema,
        ...(outputSchema !== undefined && { outputSchema }),
        ...(kind === "action" && { acts: acts === "command" ? "command" : "query" }),
        ...(deadlineMs !== undefined && { deadlineMs: deadlineMs as number }),
      },
      input: input as Schema,
      output: output as Schema | undefined,
      run: run as LoadedOperation["run"],
    });
  }

  addTrigger(given: unknown): void {
    const { resourceType, alias, event, payloadSchema = {} } = (given ?? {}) as Fields;
    if (![resourceType, alias, event].every((part) => typeof part === "string" && part !== ""))
      throw this.#invalid("a trigger", "needs a resourceType, an alias and an event");
    const named = { resourceType, alias, event } as Omit<TriggerSpec, "payloadSchema">;
    const schema = jsonSchemaOf(payloadSchema as Schema, `trigger ${named.alias}.${named.event}`);
    this.#triggers.push({ ...named, payloadSchema: schema });
    this.#payloads.set(triggerSource(named), payloadSchema as Schema);
  }

  /** The pieces of a protocol; each can be given once. */
  addProtocol(pieces: Protocol): void {
    for (const slot of Object.keys(pieces) as (keyof Protocol)[]) {
      if (this.#protocol?.[slot] !== undefined) throw duplicateSingleton(`protocol ${slot}`, this.#owner, this.#owner);
    }
    this.#protocol = { ...this.#protocol, ...pieces };
  }

  #push(spec: HookSpec, run: AnyHook): void {
    this.#hooks.push({ spec, run });
    const same = this.#byKind.get(spec.kind);
    if (same === undefined) this.#byKind.set(spec.kind, [run]);
    else same.push(run);
  }

  #advertises(name: string): boolean {
    return [...this.#tools.values()].some(({ spec }) => spec.spec.name === name && spec.onDemand !== true);
  }

  #checkFields(given: unknown, known: Readonly<Record<string, true>>, what: string): void {
    const unknown = unknownField(Object(given), known, `${what} of plugin ${this.#owner}`);
    if (unknown !== undefined) throw pluginInvalid(this.#source, unknown);
  }

  #invalid(what: string, why: string): TroupeError {
    return pluginInvalid(this.#source, `${what} of plugin ${this.#owner} ${why}`);
  }
}

export function pluginInvalid(source: string, why: string): TroupeError {
  const message = `${source} cannot be used as a plugin: ${sentence(why)}`;
  return new TroupeError("plugin_invalid", message, { details: { module: source } });
}

export function duplicateOperation(name: string, first: string, second: string): TroupeError {
  const owners =
    first === second ? `Plugin ${first} has two operations` : `Plugins ${first} and ${second} both have an operation`;
  return new TroupeError("duplicate_operation", `${owners} called ${name}.`, {
    details: { name, plugins: [first, second] },
  });
}

export function duplicateSingleton(slot: string, first: string, second: string): TroupeError {
  return new TroupeError(
    "duplicate_singleton",
    first === second
      ? `Plugin ${first} has two of ${slot}; there can be one.`
      : `Plugins ${first} and ${second} both have a ${slot}; there can be one.`,
    { details: { kind: slot, plugins: [first, second] } },
  );
}

function twoTools(name: string, owner: string): TroupeError {
  const details = { tool: name, plugins: [owner, owner] };
  return duplicateTool(`Plugin ${owner} has two tools called ${name}`, details);
}
