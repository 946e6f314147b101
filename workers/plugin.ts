import { parentPort } from "node:worker_threads";
import { systemClock } from "../src/async/index.js";
import { servePlugin } from "../src/session/plugin-thread/index.js";

if (parentPort === null) throw new Error("workers/plugin.js is the entry of a worker thread.");
servePlugin(parentPort, systemClock);
