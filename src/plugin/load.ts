import { type ToolSpec, TroupeError } from "../kernel/index.js";
import type { PluginTool } from "./define.js";
import { HOOK_KINDS, type HookContext, type HookKind, type HookName } from "./hooks.js";
import { schemaIssues } from "./json-schema.js";
import type { LoadedOperation, OperationSpec, SessionParam } from "./operations.js";
import { isStandardSchema, jsonSchemaOf, type Parsed, parseWith, type Schema } from "./schema.js";
import { checkToolName } from "./tool.js";

/** What the rest of the runtime knows of a plugin: enough to call only the hooks that exist. */
export interface PluginManifest {
  readonly id: string;
  readonly version: string;
  readonly hooks: readonly HookKind[];
  /** Tools a hook is for; a kind that is not here is for all. */
  readonly matchers: { readonly [K in HookKind]?: readonly string[] };
  readonly stateful: boolean;
  /** It can read state of other major versions. */
  readonly migrates: boolean;
  readonly operations: readonly OperationSpec[];
  readonly tools: readonly { readonly spec: ToolSpec; readonly timeoutMs?: number }[];
}

export type AnyHook = (context: HookContext<HookKind, unknown, unknown>) => unknown;
export type AnyPluginTool = PluginTool<Schema, unknown, unknown>;

/** A plugin that was checked and given its options; makes one instance per session. */
export interface LoadedPlugin {
  readonly manifest: PluginManifest;
  readonly options: unknown;
  readonly hooks: ReadonlyMap<HookKind, AnyHook>;
  readonly tools: ReadonlyMap<string, AnyPluginTool>;
  readonly operations: ReadonlyMap<string, LoadedOperation>;
  readonly migrate: ((state: unknown, fromVersion: string) => unknown) | undefined;
  readonly initialState: ((init: { sessionId: string; options: unknown }) => unknown) | undefined;
}

const ID = /^[A-Za-z0-9][A-Za-z0-9._\-/@]{0,127}$/;

/** Checks a module's default export and the host's options for it. `source` names the module in errors. */
export async function loadPlugin(exported: unknown, options: unknown, source: string): Promise<LoadedPlugin> {
  if (typeof exported !== "object" || exported === null) {
    throw invalid(source, "its default export is not a plugin. Write `export default definePlugin({ … })`");
  }
  const definition = exported as Record<string, unknown>;
  const { id, version } = definition;
  if (typeof id !== "string" || !ID.test(id))
    throw invalid(source, 'it has no usable id. Give it one like "acme.budget"');
  if (typeof version !== "string" || version === "")
    throw invalid(source, `plugin ${id} has no version. Give it one like "1.0.0"`);
  const { state } = definition;
  if (state !== undefined && typeof state !== "function")
    throw invalid(source, `the state of plugin ${id} is not a function that makes it`);
  const { migrate } = definition;
  if (migrate !== undefined && typeof migrate !== "function") {
    throw invalid(source, `the migrate of plugin ${id} is not a function`);
  }
  const { hooks, matchers } = hooksOf(definition.hooks, id, source);
  const tools = toolsOf(definition.tools, id, source);
  const operations = operationsOf(definition, id, source);
  return {
    manifest: {
      id,
      version,
      hooks: [...hooks.keys()],
      matchers,
      stateful: state !== undefined,
      migrates: migrate !== undefined,
      operations: [...operations.values()].map(({ spec }) => spec),
      tools: [...tools].map(([name, tool]) => ({
        spec: {
          name,
          description: tool.description,
          inputSchema: jsonSchemaOf(tool.inputSchema, `tool ${name} of plugin ${id}`),
        },
        ...(tool.timeoutMs !== undefined && { timeoutMs: tool.timeoutMs }),
      })),
    },
    options: await optionsOf(definition.options, options, id),
    hooks,
    tools,
    operations,
    migrate: migrate as LoadedPlugin["migrate"],
    initialState: state as LoadedPlugin["initialState"],
  };
}

const MATCHED: readonly HookKind[] = ["before_tool_call", "after_tool_call", "tool_result_projector"];

function hooksOf(
  hooks: unknown,
  id: string,
  source: string,
): { hooks: Map<HookKind, AnyHook>; matchers: PluginManifest["matchers"] } {
  const found = new Map<HookKind, AnyHook>();
  const matchers: { [K in HookKind]?: readonly string[] } = {};
  if (hooks === undefined) return { hooks: found, matchers };
  if (typeof hooks !== "object" || hooks === null) throw invalid(source, `the hooks of plugin ${id} are not an object`);
  for (const [name, given] of Object.entries(hooks)) {
    if (given === undefined) continue;
    if (!Object.hasOwn(HOOK_KINDS, name)) {
      throw invalid(source, `plugin ${id} has a hook "${name}"; the hooks are ${Object.keys(HOOK_KINDS).join(", ")}`);
    }
    const kind = HOOK_KINDS[name as HookName];
    const matched = typeof given === "object" && given !== null && MATCHED.includes(kind) ? given : undefined;
    const hook = matched === undefined ? given : matched.run;
    if (typeof hook !== "function") throw invalid(source, `hook ${name} of plugin ${id} is not a function`);
    if (matched !== undefined) {
      if (!Array.isArray(matched.tools) || !matched.tools.every((tool: unknown) => typeof tool === "string")) {
        throw invalid(source, `hook ${name} of plugin ${id} needs a list of tool names in "tools"`);
      }
      matchers[kind] = matched.tools;
    }
    found.set(kind, hook as AnyHook);
  }
  return { hooks: found, matchers };
}

function toolsOf(tools: unknown, id: string, source: string): Map<string, AnyPluginTool> {
  const found = new Map<string, AnyPluginTool>();
  if (tools === undefined) return found;
  if (typeof tools !== "object" || tools === null) throw invalid(source, `the tools of plugin ${id} are not an object`);
  for (const [name, tool] of Object.entries(tools as Record<string, Partial<AnyPluginTool> | null>)) {
    checkToolName(name);
    if (typeof tool?.description !== "string" || typeof tool.execute !== "function" || tool.inputSchema === undefined) {
      throw invalid(source, `tool ${name} of plugin ${id} needs a description, an inputSchema and an execute function`);
    }
    found.set(name, tool as AnyPluginTool);
  }
  return found;
}

const SESSION_PARAMS: readonly unknown[] = ["required", "optional", "forbidden"] satisfies SessionParam[];

function operationsOf(definition: Record<string, unknown>, id: string, source: string): Map<string, LoadedOperation> {
  const found = new Map<string, LoadedOperation>();
  for (const [field, kind] of [
    ["queries", "query"],
    ["commands", "command"],
    ["tasks", "task"],
  ] as const) {
    const given = definition[field];
    if (given === undefined) continue;
    if (typeof given !== "object" || given === null)
      throw invalid(source, `the ${field} of plugin ${id} are not an object`);
    for (const [name, operation] of Object.entries(given as Record<string, Record<string, unknown> | null>)) {
      const { description, input, output, session = "optional", run } = operation ?? {};
      if (
        typeof description !== "string" ||
        typeof run !== "function" ||
        input === undefined ||
        !SESSION_PARAMS.includes(session)
      ) {
        throw invalid(
          source,
          `${kind} ${name} of plugin ${id} needs a description, an input schema and a run function`,
        );
      }
      if (found.has(name)) throw duplicateOperation(name, id, id);
      const inputSchema = jsonSchemaOf(input as Schema, `${kind} ${name} of plugin ${id}`);
      found.set(name, {
        spec: { name, kind, description, session: session as SessionParam, inputSchema },
        input: input as Schema,
        output: output as Schema | undefined,
        run: run as LoadedOperation["run"],
      });
    }
  }
  return found;
}

export function duplicateOperation(name: string, first: string, second: string): TroupeError {
  const owners =
    first === second ? `Plugin ${first} has two operations` : `Plugins ${first} and ${second} both have an operation`;
  return new TroupeError("duplicate_operation", `${owners} called ${name}.`, {
    details: { name, plugins: [first, second] },
  });
}

async function optionsOf(schema: unknown, options: unknown, id: string): Promise<unknown> {
  if (schema === undefined) return options ?? {};
  const parsed = await parseAny(schema as Schema, options ?? {}, `the options of plugin ${id}`);
  if (parsed.ok) return parsed.value;
  throw new TroupeError(
    "plugin_options_invalid",
    `The options of plugin ${id} are not valid: ${parsed.issues.join("; ")}.`,
    {
      details: { pluginId: id, issues: parsed.issues },
    },
  );
}

/** A value as a schema of either sort reads it. */
export async function parseAny(schema: Schema, value: unknown, what: string): Promise<Parsed> {
  if (isStandardSchema(schema)) return parseWith(schema, value);
  const issues = schemaIssues(schema, value, what);
  return issues.length === 0 ? { ok: true, value } : { ok: false, issues: [...issues] };
}

function invalid(source: string, why: string): TroupeError {
  return new TroupeError("plugin_invalid", `${source} cannot be used as a plugin: ${why}.`, {
    details: { module: source },
  });
}
