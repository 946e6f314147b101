export { SessionTools, type SessionToolsOptions, type ToolRebinding } from "./catalog/session-tools.js";
export type { ToolOverlay } from "./catalog/tool-overlay.js";
export type { ToolCatalogRecord } from "./catalog/tool-view.js";
export {
  executeTool,
  type HomeContext,
  type ToolAbsence,
  type ToolExecution,
  type ToolHome,
  type ToolHomes,
  type ToolLookup,
  type ToolRequest,
} from "./dispatch/dispatch.js";
export { failureOf } from "./dispatch/failure.js";
export {
  DEFAULT_CANCEL_GRACE_MS,
  DEFAULT_TOOL_TIMEOUT_MS,
  type RegisteredTool,
  registerTool,
  type ToolHomeRef,
  ToolRegistry,
} from "./dispatch/registry.js";
export { ToolLimits } from "./dispatch/tool-limits.js";
export { ToolPool, type ToolPoolOptions, type ToolPoolStats } from "./pool/pool.js";
export { describeTool, type ToolDescription } from "./tool-code/describe.js";
export { plainResult } from "./tool-code/result.js";
export { runHere } from "./tool-code/run-here.js";
