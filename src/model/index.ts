export type { Model, ModelContext, ModelFactory, ModelSource } from "./boundary/model.js";
export type { Script, ScriptDirectAnswer, ScriptStep } from "./boundary/script.js";
export type { Candidate } from "./calling/attempts.js";
export { completeOnce, routeOf, streamWithRetry } from "./calling/call-model.js";
export { presentable, presentableCause, presentableError } from "./calling/presentable.js";
export { ModelInstances, secretsFailed } from "./instances.js";
export { loadModel } from "./load.js";
export { modelLoadTimeout } from "./load-timeout.js";
export { createScriptedModel, scriptedModel } from "./scripted/scripted.js";
