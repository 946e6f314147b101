import type { JsonObject } from "../../kernel/index.js";
import { jsonSchemaOf, type ToolDefinition, type ToolPolicy, toolPolicy } from "../../plugin/index.js";

/** A tool definition without its code: what crosses threads when a tool is registered. */
export interface ToolDescription extends ToolPolicy {
  readonly description: string;
  readonly inputSchema: JsonObject;
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
export function describeTool(what: string, definition: ToolDefinition): ToolDescription {
  const inputSchema = jsonSchemaOf(definition.inputSchema, what);
  return { description: definition.description, inputSchema, ...toolPolicy(what, definition) };
}
