import type { ToolSpec } from "../../src/kernel/index.js";
import { type RegisteredTool, registerTool, type ToolHomeRef, ToolRegistry } from "../../src/tools/index.js";

interface Wording {
  readonly id?: string;
  readonly description?: string;
  readonly home?: ToolHomeRef;
}

/** A tool of the host application that is called `name` and says so. */
export function tool(
  name: string,
  { id, description = `${name}.`, home = { kind: "host" } }: Wording = {},
): RegisteredTool {
  return registerTool(name, { ...(id !== undefined && { id }), description, inputSchema: { type: "object" } }, home);
}

export function onDemand(name: string, id: string): RegisteredTool {
  return { ...tool(name, { id }), onDemand: true };
}

export const registryOf = (...tools: (string | RegisteredTool)[]): ToolRegistry =>
  new ToolRegistry(tools.map((each) => (typeof each === "string" ? tool(each) : each)));

export const names = (specs: readonly Pick<ToolSpec, "name">[]): string[] => specs.map(({ name }) => name);
