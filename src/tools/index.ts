export { SessionTools, type SessionToolsOptions, type ToolRebinding } from "./catalog/session-tools.js";
export type { ToolOverlay } from "./catalog/tool-edits.js";
export type { ToolCatalogRecord } from "./catalog/tool-view.js";
export {
  executeTool,
  failureOf,
  type HomeContext,
  type ToolAbsence,
  type ToolExecution,
  type ToolHome,
  type ToolHomes,
  type ToolLookup,
  type ToolRequest,
} from "./dispatch/dispatch.js";
export {
  DEFAULT_CANCEL_GRACE_MS,
  DEFAULT_TOOL_TIMEOUT_MS,
  type RegisteredTool,
  registerTool,
  type ToolHomeRef,
  ToolRegistry,
} from "./dispatch/registry.js";
export { ToolLimits } from "./dispatch/slots.js";
export { ToolPool, type ToolPoolOptions, type ToolPoolStats } from "./pool/pool.js";
export { describeTool, plainResult, runHere, type ToolDescription } from "./tool-code/run-here.js";
