import { fileURLToPath } from "node:url";
import { parentPort } from "node:worker_threads";
import { keepCompiled, keepsOwnCode } from "./compile-cache.js";
import { load, loadKept } from "./kept-code.js";
import type { startSessions } from "./session-thread.js";

if (parentPort === null) throw new Error("workers/session.js is the entry of a worker thread.");
keepCompiled();
// A file of the build, in which session-thread.ts is with all it needs.
const file = fileURLToPath(new URL("../shared/session-thread.cjs", import.meta.url));
const { exports, keep } = (keepsOwnCode() ? loadKept : load)<{ readonly startSessions: typeof startSessions }>(file);
exports.startSessions(parentPort, { toolEntry: new URL("./tool.js", import.meta.url), onShutdown: keep });
