import { parentPort } from "node:worker_threads";
import { keepCompiled } from "./compile-cache.js";

if (parentPort === null) throw new Error("workers/store.js is the entry of a worker thread.");
keepCompiled();
const { startStore } = await import("./store-thread.js");
startStore(parentPort);
