import { parentPort } from "node:worker_threads";
import { keepCompiled } from "./compile-cache.js";

if (parentPort === null) throw new Error("workers/store.js is the entry of a worker thread.");
keepCompiled();
// This thread's own environment. lmdb brings msgpackr for values that are not bytes; ours are, and looking for its native
// part is a fifth of the time that loading lmdb takes.
process.env.MSGPACKR_NATIVE_ACCELERATION_DISABLED ??= "true";
const { startStore } = await import("./store-thread.js");
startStore(parentPort);
