export { type Script, type ScriptStep, scriptedModel } from "../model/index.js";
export { storeConformance } from "./store-conformance.js";
