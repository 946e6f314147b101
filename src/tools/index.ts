export { describeTool, type ToolDescription } from "./describe.js";
export {
  executeTool,
  type HomeContext,
  type ToolExecution,
  type ToolHome,
  type ToolHomes,
  type ToolRequest,
} from "./dispatch.js";
export { failureOf } from "./failure.js";
export { ToolPool, type ToolPoolOptions, type ToolPoolStats } from "./pool.js";
export {
  DEFAULT_TOOL_TIMEOUT_MS,
  type RegisteredTool,
  registerTool,
  type ToolHomeRef,
  ToolRegistry,
} from "./registry.js";
export { plainResult } from "./result.js";
export { runHere } from "./run-here.js";
