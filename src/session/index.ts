export * from "./calls/index.js";
export type { PluginHostService } from "./plugin-thread/plugin-calls.js";
export { QUARANTINE } from "./plugins/hosts/assignment.js";
export { STANDARD_PROTOCOL_ID } from "./protocol/standard-protocol.js";
