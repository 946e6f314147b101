import type { Json, ToolRetry } from "../../kernel/index.js";
import type { ToolHookHost } from "../host/index.js";
import type { InferSchema, Schema } from "../schema/index.js";
import type { ToolContext } from "./tool.js";

/** A tool a plugin brings along: it runs on the plugin's thread, with the session's state at hand. */
export interface PluginTool<S extends Schema, State, Options> {
  readonly description: string;
  readonly inputSchema: S;
  readonly timeoutMs?: number;
  readonly cancelGraceMs?: number;
  readonly retry?: ToolRetry;
  readonly maxConcurrent?: number;
  readonly argumentProjection?: Json;
  /** What stored tool state knows it by, whatever it is called. Default: its name. */
  readonly id?: string;
  /** In no catalog until a context transform names its id; it may then stand before a tool of the same name. */
  readonly onDemand?: boolean;
  execute(
    args: InferSchema<S>,
    context: ToolContext & { readonly state: State; readonly options: Options; readonly host: ToolHookHost },
  ): unknown;
}
