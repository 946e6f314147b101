import { type FieldsOf, invalidTool, toolOptionsInvalid } from "../../kernel/index.js";
import { checkToolDefinition, jsonSchemaOf, type ToolDefinition, toolPolicy } from "../../plugin/index.js";
import type { WorkerSettings } from "../../session/index.js";
import { checkFields, invalid, kindOf, moduleUrl, positive } from "./option-checks.js";
import { type Permissions, resolvePermissions, type ThreadPermissions } from "./permissions.js";

/** A tool whose body runs in the tool pool: the module default-exports what `defineTool` returns. */
export interface PoolToolEntry {
  readonly module: URL | string;
  readonly timeoutMs?: number;
  /** How long loading it may take: importing its module, with every top-level await, and checking it. Default 30,000. */
  readonly loadMs?: number;
  /** Plain data for the tool, checked against its `options` schema when it is loaded; it has them as `context.options`. */
  readonly options?: unknown;
  /** Environment variables of the tool's threads, beside those that `permissions.env` names. Default: none. */
  readonly env?: Readonly<Record<string, string>>;
  /** What the tool may do beyond computing; default nothing. `"all"` takes the seat belt off. */
  readonly permissions?: Permissions | "all";
}

/** Which there are: one that is forgotten here does not compile, and any other is refused. */
const POOL_TOOL_OPTIONS: FieldsOf<PoolToolEntry> = {
  module: true,
  timeoutMs: true,
  loadMs: true,
  options: true,
  env: true,
  permissions: true,
};

/** By name: closures of the host, or modules for the pool. */
// biome-ignore lint/suspicious/noExplicitAny: each tool's arguments have their own type
export type ToolEntries = Readonly<Record<string, ToolDefinition<any> | PoolToolEntry>>;

/** `own`: the runtime's own, unless the host has one of that name. */
export function resolveTools(tools: ToolEntries, permissions: ThreadPermissions, own: ToolEntries = {}) {
  const definitions = new Map<string, ToolDefinition>();
  const hostTools: WorkerSettings["hostTools"][number][] = [];
  const poolTools: WorkerSettings["poolTools"][number][] = [];
  const granted: (Permissions | "all")[] = [];
  if (typeof tools !== "object" || tools === null || Array.isArray(tools))
    throw invalid(`tools must be an object of tools by name, not ${kindOf(tools)}`);
  for (const [name, tool] of Object.entries({ ...own, ...tools })) {
    if (typeof tool === "object" && tool !== null && "module" in tool) {
      granted.push(resolvePermissions(tool.permissions, `the permissions of tool ${name}`));
      poolTools.push(resolvePoolTool(name, tool, permissions));
      continue;
    }
    checkToolDefinition(name, tool);
    if (tool.options !== undefined)
      throw invalidTool(
        `Tool ${name}`,
        "it is a closure of the host, which has what it needs at hand; options are for tools in the pool, { module, options }",
      );
    definitions.set(name, tool);
    const spec = { name, description: tool.description, inputSchema: jsonSchemaOf(tool.inputSchema, `tool ${name}`) };
    hostTools.push({ spec, ...toolPolicy(`Tool ${name}`, tool) });
  }
  return { definitions, granted, hostTools, poolTools };
}

function resolvePoolTool(name: string, entry: PoolToolEntry, threads: ThreadPermissions) {
  checkFields(entry, POOL_TOOL_OPTIONS, `tool ${name}`);
  const { options } = entry;
  try {
    structuredClone(options);
  } catch (cause) {
    throw toolOptionsInvalid(`tool ${name}`, "they must be plain data, because they cross to another thread", {
      cause,
    });
  }
  const { env = {} } = entry;
  if (typeof env !== "object" || env === null || Object.values(env).some((value) => typeof value !== "string"))
    throw invalid(`the env of tool ${name} must be an object of strings, such as { API_URL: "https://…" }`);
  const module = moduleUrl(entry.module, `tool ${name}`);
  const permissions = resolvePermissions(entry.permissions, `the permissions of tool ${name}`);
  const rights = threads.rights({ name: `the tool ${name}`, modules: [module], permissions });
  return {
    name,
    module,
    options,
    loadMs: positive(entry.loadMs, 30_000, `the loadMs of tool ${name}`),
    rights: { ...rights, env: { ...rights.env, ...env } },
    ...limit(entry.timeoutMs, name),
  };
}

function limit(timeoutMs: number | undefined, name: string): { timeoutMs?: number } {
  return timeoutMs === undefined ? {} : { timeoutMs: positive(timeoutMs, timeoutMs, `the timeoutMs of tool ${name}`) };
}
