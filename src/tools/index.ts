export { SessionTools } from "./catalog/session-tools.js";
export {
  executeTool,
  failureOf,
  type HomeContext,
  type ToolAbsence,
  type ToolExecution,
  type ToolHome,
  type ToolHomes,
  type ToolLookup,
} from "./dispatch/dispatch.js";
export {
  type RegisteredTool,
  registerTool,
  type ToolHomeRef,
  ToolRegistry,
} from "./dispatch/registry.js";
export { ToolLimits } from "./dispatch/slots.js";
export { ToolPool } from "./pool/pool.js";
export { describeTool, plainResult, runHere } from "./tool-code/run-here.js";
