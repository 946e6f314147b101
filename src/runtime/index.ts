export { all, type RaceResult, race } from "./fan-out.js";
export type { PluginEntry, PoolToolEntry, TroupeOptions } from "./options.js";
export type { Permissions } from "./permissions.js";
export { PluginStack } from "./plugin-stack.js";
export type { ForkOptions, OperationOptions, Session, SteerOptions, TurnOptions } from "./session-handle.js";
export type { TroupeStats } from "./stats.js";
export { createTroupe, type SessionOptions, type ToolAnswer, type Troupe } from "./troupe.js";
export type { Turn } from "./turn.js";
export type { DeleteOptions } from "./upkeep.js";
