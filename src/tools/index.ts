export { describeTool, type ToolDescription } from "./describe.js";
export {
  executeTool,
  type HomeContext,
  type ToolAbsence,
  type ToolExecution,
  type ToolHome,
  type ToolHomes,
  type ToolLookup,
  type ToolRequest,
} from "./dispatch.js";
export { failureOf } from "./failure.js";
export { ToolPool, type ToolPoolOptions, type ToolPoolStats } from "./pool.js";
export {
  DEFAULT_CANCEL_GRACE_MS,
  DEFAULT_TOOL_TIMEOUT_MS,
  type RegisteredTool,
  registerTool,
  type ToolHomeRef,
  ToolRegistry,
} from "./registry.js";
export { plainResult } from "./result.js";
export { runHere } from "./run-here.js";
export { SessionTools, type SessionToolsOptions, type ToolRebinding } from "./session-tools.js";
export { ToolLimits } from "./tool-limits.js";
export type { ToolOverlay } from "./tool-overlay.js";
export type { ToolCatalogRecord } from "./tool-view.js";
