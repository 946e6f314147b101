import type { JsonObject } from "../kernel/index.js";
import { jsonSchemaOf, type ToolDefinition } from "../plugin/index.js";

/** A tool definition without its code: what crosses threads when a tool is registered. */
export interface ToolDescription {
  readonly description: string;
  readonly inputSchema: JsonObject;
  readonly timeoutMs?: number;
  /** Its identity when that is not its name. */
  readonly id?: string;
  /** In no catalog until an overlay names it by id. */
  readonly onDemand?: boolean;
}

/**
 * The data of a tool definition. `what` names the tool in the error when its schema cannot be said as JSON Schema.
 *
 * @example
 * describeTool("tool weather", weather); // { description, inputSchema: { type: "object", … } }
 */
export function describeTool(what: string, { description, inputSchema, timeoutMs }: ToolDefinition): ToolDescription {
  const schema = jsonSchemaOf(inputSchema, what);
  return { description, inputSchema: schema, ...(timeoutMs === undefined ? {} : { timeoutMs }) };
}
