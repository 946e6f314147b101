export {
  type AiSdkLanguageModel,
  type AiSdkModelOptions,
  createAiSdkModel,
  isAiSdkLanguageModel,
} from "./ai-sdk/ai-sdk.js";
export { type Model, type ModelSource, type ReportReplayDrops, routeOf } from "./boundary/model.js";
export type { Script, ScriptDirectAnswer, ScriptFailure, ScriptStep, ScriptToolCall } from "./boundary/script.js";
export {
  type CompletionRequest,
  completeOnce,
  type RetryNotice,
  type RetryOptions,
  streamWithRetry,
} from "./calling/call-model.js";
export { loadModel } from "./load.js";
export { createScriptedModel, defaultModel, scriptedModel } from "./scripted/scripted.js";
