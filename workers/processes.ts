import { parentPort } from "node:worker_threads";
import { systemClock } from "../src/async/index.js";
import { processThread } from "../src/processes/index.js";
import { serve } from "../src/wire/index.js";

if (parentPort === null) throw new Error("workers/processes.js is the entry of a worker thread.");
const port = parentPort;

// With its port closed nothing keeps the thread alive; the answer to `close` has left by the next turn.
serve(port, processThread({ clock: systemClock, onClosed: () => systemClock.soon(() => port.close()) }));
