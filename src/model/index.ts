export type { Model, ModelSource } from "./boundary/model.js";
export type { Script, ScriptDirectAnswer, ScriptStep } from "./boundary/script.js";
export { completeOnce, routeOf, streamWithRetry } from "./calling/call-model.js";
export { loadModel } from "./load.js";
export { createScriptedModel, scriptedModel } from "./scripted/scripted.js";
