export { type AiSdkLanguageModel, type AiSdkModelOptions, createAiSdkModel, isAiSdkLanguageModel } from "./ai-sdk.js";
export { type CompletionRequest, completeOnce } from "./complete.js";
export { loadModel } from "./load.js";
export { type Model, type ModelSource, type ReportReplayDrops, routeOf } from "./model.js";
export { type RetryNotice, type RetryOptions, streamWithRetry } from "./retry.js";
export type { Script, ScriptDirectAnswer, ScriptFailure, ScriptStep, ScriptToolCall } from "./script.js";
export { createScriptedModel, defaultModel, scriptedModel } from "./scripted.js";
