export { Caller, type CallOptions, moving, type Served, type Service, serve } from "./calls.js";
export { contentHash, damagedRecord, decode, encode, encodeState } from "./codec.js";
export { type Deadline, Deadlines } from "./deadlines.js";
export { decodeError, type ErrorData, encodeError, workerLost } from "./errors.js";
export { importDefault } from "./import-module.js";
export { Lane, type LaneCallOptions, type LaneOptions, ServedCall, type UnstartedCall } from "./lane.js";
