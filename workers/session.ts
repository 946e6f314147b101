import { parentPort } from "node:worker_threads";
import { keepCompiled } from "./compile-cache.js";

if (parentPort === null) throw new Error("workers/session.js is the entry of a worker thread.");
keepCompiled();
const { startSessions } = await import("./session-thread.js");
startSessions(parentPort, new URL("./tool.js", import.meta.url));
