export { type Script, type ScriptStep, scriptedModel } from "../model/index.js";
export { type ConformanceCase, storeConformance } from "./store/conformance.js";
export { type OwnershipStore, storeOwnership } from "./store/ownership.js";
export type { ConformanceStore, TestedBackend } from "./store/samples.js";
