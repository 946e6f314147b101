import {
  definedOnly,
  duplicateTool,
  invalidTool,
  type JsonObject,
  type ToolSpec,
  type TroupeError,
  toolIdOf,
} from "../../kernel/index.js";
import { checkToolName, compileSchema, schemaUnusable, type ToolPolicy } from "../../plugin/index.js";
import type { ToolDescription } from "../tool-code/index.js";

export const DEFAULT_TOOL_TIMEOUT_MS = 60_000;
/** How long a tool that was told to stop may still finish. */
export const DEFAULT_CANCEL_GRACE_MS = 50;

/** Where a tool's code runs: the host application's thread, its plugin's worker, or the tool pool. */
export type ToolHomeRef =
  | { readonly kind: "host" }
  /** `isHere`: the plugin runs on the thread of its sessions. */
  | { readonly kind: "plugin"; readonly pluginId: string; readonly isHere?: true }
  /** `entry`: under which name the host's options have it. */
  | { readonly kind: "pool"; readonly module: string; readonly entry?: string };

export interface RegisteredTool extends ToolPolicy {
  readonly spec: ToolSpec;
  readonly home: ToolHomeRef;
  readonly timeoutMs: number;
  readonly cancelGraceMs: number;
  /** In no catalog until an overlay names it by id, wherefore it may share its name with another tool. */
  readonly onDemand?: boolean;
  /** The schema the model was shown when an authority words the tool itself; arguments must fit both. */
  readonly shownSchema?: JsonObject;
}

/**
 * A described tool with its name and its home, ready for a {@link ToolRegistry}.
 *
 * @example
 * registerTool("weather", await pool.describe(url), { kind: "pool", module: url });
 */
export function registerTool(name: string, described: ToolDescription, home: ToolHomeRef): RegisteredTool {
  const { id, description, inputSchema, onDemand, retry, maxConcurrent, argumentProjection, approval } = described;
  return {
    spec: { ...(id !== undefined && { id }), name, description, inputSchema },
    home,
    timeoutMs: described.timeoutMs ?? DEFAULT_TOOL_TIMEOUT_MS,
    cancelGraceMs: described.cancelGraceMs ?? DEFAULT_CANCEL_GRACE_MS,
    ...definedOnly({ retry, maxConcurrent, argumentProjection, approval, onDemand }),
  };
}

/** Hidden sets come from authorities, of which there are few; a host that mints them per call must not leak. */
const MAX_CATALOGS = 256;

/**
 * The tools sessions share, by name and by id; never changed, so thousands of them can. Building one checks every name
 * and compiles every schema, so that a call never meets a broken tool.
 *
 * @example
 * const registry = new ToolRegistry([registerTool("shell", described, { kind: "host" })]);
 * registry.specs(new Set(["shell"])); // what the model may see
 */
export class ToolRegistry {
  /** Every tool but those on demand, ordered by name. */
  readonly tools: readonly RegisteredTool[];
  readonly #byName = new Map<string, RegisteredTool>();
  readonly #byId = new Map<string, RegisteredTool>();
  readonly #ordered: readonly ToolSpec[];
  readonly #catalogs = new Map<string, readonly ToolSpec[]>();

  constructor(tools: readonly RegisteredTool[]) {
    for (const tool of tools) this.#add(tool);
    // One order for everybody: providers cache prompts by their exact text.
    this.tools = [...this.#byName.values()].sort((a, b) => (a.spec.name < b.spec.name ? -1 : 1));
    this.#ordered = this.tools.map((tool) => tool.spec);
  }

  #add(tool: RegisteredTool): void {
    const { name } = checkToolSpec(tool.spec);
    const id = toolIdOf(tool.spec);
    const namesake = tool.onDemand ? undefined : this.#byName.get(name);
    if (namesake !== undefined) throw duplicate(`are called ${name}`, namesake, tool);
    const twin = this.#byId.get(id);
    if (twin !== undefined) throw duplicate(`have the id ${id}`, twin, tool);
    this.#byId.set(id, tool);
    if (!tool.onDemand) this.#byName.set(name, tool);
  }

  get(name: string): RegisteredTool | undefined {
    return this.#byName.get(name);
  }

  /** Also finds tools on demand. */
  byId(id: string): RegisteredTool | undefined {
    return this.#byId.get(id);
  }

  /** The visible tools, ordered by name. The same hidden names give the same array. */
  specs(hidden: ReadonlySet<string>): readonly ToolSpec[] {
    if (hidden.size === 0) return this.#ordered;
    const names = [...hidden].filter((name) => this.#byName.has(name)).sort();
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

function duplicate(what: string, first: RegisteredTool, second: RegisteredTool): TroupeError {
  const why = `Two tools ${what}: one of ${homeName(first.home)}, one of ${homeName(second.home)}`;
  return duplicateTool(why, { tool: second.spec.name, homes: [first.home, second.home] });
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

/** Throws `invalid_tool` or `invalid_tool_schema` unless the model can be shown this and calls can be checked by it. */
export function checkToolSpec(spec: ToolSpec): ToolSpec {
  const name = checkToolName(spec.name);
  if (spec.id !== undefined && (typeof spec.id !== "string" || spec.id === "")) {
    throw invalidTool(`Tool ${name}`, "its id must be a string that is not empty");
  }
  checkArgumentsAreAnObject(spec);
  compileSchema(spec.inputSchema, name);
  return spec;
}

/** Providers refuse anything else, but only when the first request is sent. */
function checkArgumentsAreAnObject({ name, inputSchema }: ToolSpec): void {
  if (inputSchema.type === undefined || inputSchema.type === "object") return;
  const why = `a tool's arguments must be an object, not ${JSON.stringify(inputSchema.type)}`;
  throw schemaUnusable(`tool ${name}`, why);
}
