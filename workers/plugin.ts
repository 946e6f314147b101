import { isMainThread } from "node:worker_threads";
import { pinnedClock } from "../src/async/index.js";
import { confineThread, servePlugins } from "../src/session/plugin-thread/index.js";
import { boundOutput, ownMeasures } from "../src/wire/index.js";

if (isMainThread) throw new Error("workers/plugin.js is the entry of a worker thread.");
const clock = pinnedClock();
boundOutput(clock);
const measures = ownMeasures();
servePlugins(confineThread(), clock, measures);
