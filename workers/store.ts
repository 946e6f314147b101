import { parentPort } from "node:worker_threads";
import { systemClock } from "../src/async/index.js";
import { storeService } from "../src/store/index.js";
import { serve } from "../src/wire/index.js";
import { keepCompiled } from "./compile-cache.js";

if (parentPort === null) throw new Error("workers/store.js is the entry of a worker thread.");
keepCompiled();
// This thread's own environment. lmdb brings msgpackr for values that are not bytes; ours are, and looking for its native
// part is a fifth of the time that loading lmdb takes.
process.env.MSGPACKR_NATIVE_ACCELERATION_DISABLED ??= "true";
const port = parentPort;

// With its port closed nothing keeps the thread alive; the answer to `close` has left by the next turn.
serve(port, storeService({ clock: systemClock, onClosed: () => systemClock.soon(() => port.close()) }));
