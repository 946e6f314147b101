export * from "./calls/index.js";
export type { PluginWorkerService } from "./plugin-thread/plugin-calls.js";
export { STANDARD_PROTOCOL_ID } from "./protocol/standard-protocol.js";
