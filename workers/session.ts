import { parentPort } from "node:worker_threads";
import { systemClock } from "../src/async/index.js";
import { serveSessions, threadHeap } from "../src/session/worker/index.js";

if (parentPort === null) throw new Error("workers/session.js is the entry of a worker thread.");
serveSessions(parentPort, {
  toolEntry: new URL("./tool.js", import.meta.url),
  clock: systemClock,
  heap: threadHeap,
});
