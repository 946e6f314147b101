export type { PluginEntry, PoolToolEntry, TroupeOptions } from "./options.js";
export type { Permissions } from "./permissions.js";
export type { ForkOptions, OperationOptions, Session } from "./session-handle.js";
export { createTroupe, type Troupe, type TroupeStats } from "./troupe.js";
export type { Turn } from "./turn.js";
