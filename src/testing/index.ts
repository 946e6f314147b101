export { type Script, type ScriptStep, scriptedModel } from "../model/index.js";
export { storeConformance } from "./store/conformance.js";
export { type OwnershipStore, storeOwnership } from "./store/ownership.js";
export type { ConformanceCase, ConformanceStore, TestedBackend } from "./store/samples.js";
