import { workerData } from "node:worker_threads";
import { pinnedClock } from "../src/async/index.js";
import { poolThread } from "../src/tools/pool/pool-thread.js";
import { boundOutput } from "../src/wire/index.js";

// Piscina imports this on each thread of the tool pool. It names the file directly, not the room's door: a pool thread
// needs neither ajv nor Piscina itself, and starts sooner without them.
const clock = pinnedClock();
boundOutput(clock);
export default poolThread(workerData ?? {}, clock);
