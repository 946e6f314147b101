/** Which thread serves a plugin of a session, the lanes to those threads, and what becomes of calls when one goes. */
export { PluginGroup } from "./plugin-group.js";
export * from "./worker-link.js";
