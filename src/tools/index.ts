export { SessionTools } from "./catalog/session-tools.js";
export {
  type ArgumentChecks,
  executeTool,
  failureOf,
  type HomeContext,
  type ToolAbsence,
  type ToolExecution,
  type ToolHome,
  type ToolHomes,
  type ToolLookup,
} from "./dispatch/dispatch.js";
export { inForm, outputMisfit } from "./dispatch/output.js";
export {
  type RegisteredTool,
  registerTool,
  type ToolHomeRef,
  ToolRegistry,
} from "./dispatch/registry.js";
export { Slots, ToolLimits } from "./dispatch/slots.js";
export {
  checkSpawn,
  type JobAnswer,
  type JobAsk,
  type JobCall,
  type JobProgress,
  SLEEP,
  serveJobs,
} from "./jobs/index.js";
export { ToolPool } from "./pool/pool.js";
export { SchemaChecks } from "./pool/schema-checks.js";
export { type PoolTool, ToolPools } from "./pool/tool-pools.js";
export { plainResult } from "./tool-code/plain-result.js";
export { askHere, type CallContext, describeTool, runHere } from "./tool-code/run-here.js";
export {
  CallNotes,
  type NoteSink,
  type NoteTaker,
  noteValue,
  type PackedNote,
  packNote,
  readNote,
  type ToolNote,
} from "./tool-code/tool-notes.js";
