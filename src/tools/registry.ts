import { type ToolSpec, TroupeError } from "../kernel/index.js";
import { checkToolName, compileSchema } from "../plugin/index.js";
import type { ToolDescription } from "./describe.js";

export const DEFAULT_TOOL_TIMEOUT_MS = 60_000;

/** Where a tool's code runs: the host application's thread, its plugin's worker, or the tool pool. */
export type ToolHomeRef =
  | { readonly kind: "host" }
  | { readonly kind: "plugin"; readonly pluginId: string }
  | { readonly kind: "pool"; readonly module: string };

export interface RegisteredTool {
  readonly spec: ToolSpec;
  readonly home: ToolHomeRef;
  readonly timeoutMs: number;
}

/**
 * A described tool with its name and its home, ready for a {@link ToolRegistry}.
 *
 * @example
 * registerTool("weather", await pool.describe(url), { kind: "pool", module: url });
 */
export function registerTool(name: string, described: ToolDescription, home: ToolHomeRef): RegisteredTool {
  return {
    spec: { name, description: described.description, inputSchema: described.inputSchema },
    home,
    timeoutMs: described.timeoutMs ?? DEFAULT_TOOL_TIMEOUT_MS,
  };
}

/** Hidden sets come from authorities, of which there are few; a host that mints them per call must not leak. */
const MAX_CATALOGS = 256;

/**
 * The tools of a session, by name. Building one checks every name and compiles every schema, so that a call never
 * meets a broken tool.
 *
 * @example
 * const registry = new ToolRegistry([registerTool("shell", described, { kind: "host" })]);
 * registry.specs(new Set(["shell"])); // what the model may see
 */
export class ToolRegistry {
  readonly #tools = new Map<string, RegisteredTool>();
  readonly #ordered: readonly ToolSpec[];
  readonly #catalogs = new Map<string, readonly ToolSpec[]>();

  constructor(tools: readonly RegisteredTool[]) {
    for (const tool of tools) {
      const name = checkToolName(tool.spec.name);
      const other = this.#tools.get(name);
      if (other !== undefined) throw duplicate(name, other.home, tool.home);
      checkArgumentsAreAnObject(tool.spec);
      compileSchema(tool.spec.inputSchema, name);
      this.#tools.set(name, tool);
    }
    // One order for everybody: providers cache prompts by their exact text.
    this.#ordered = tools.map((tool) => tool.spec).sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  get(name: string): RegisteredTool | undefined {
    return this.#tools.get(name);
  }

  /** The visible tools, ordered by name. The same hidden names give the same array. */
  specs(hidden: ReadonlySet<string>): readonly ToolSpec[] {
    if (hidden.size === 0) return this.#ordered;
    const names = [...hidden].filter((name) => this.#tools.has(name)).sort();
    if (names.length === 0) return this.#ordered;
    const key = names.join(" ");
    let specs = this.#catalogs.get(key);
    if (specs === undefined) {
      specs = this.#ordered.filter((spec) => !hidden.has(spec.name));
      if (this.#catalogs.size >= MAX_CATALOGS) this.#catalogs.clear();
      this.#catalogs.set(key, specs);
    }
    return specs;
  }
}

function duplicate(name: string, first: ToolHomeRef, second: ToolHomeRef): TroupeError {
  return new TroupeError(
    "duplicate_tool",
    `Two tools are called ${name}: one of ${homeName(first)}, one of ${homeName(second)}.`,
    { details: { tool: name, homes: [first, second] } },
  );
}

function homeName(home: ToolHomeRef): string {
  switch (home.kind) {
    case "host":
      return "the host application";
    case "plugin":
      return `plugin ${home.pluginId}`;
    case "pool":
      return `module ${home.module}`;
  }
}

/** Providers refuse anything else, but only when the first request is sent. */
function checkArgumentsAreAnObject({ name, inputSchema }: ToolSpec): void {
  if (inputSchema.type === undefined || inputSchema.type === "object") return;
  throw new TroupeError(
    "invalid_tool_schema",
    `The schema of tool ${name} cannot be used: a tool's arguments must be an object, not ${JSON.stringify(inputSchema.type)}.`,
    { details: { of: `tool ${name}` } },
  );
}
