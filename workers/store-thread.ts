import type { MessagePort } from "node:worker_threads";
import { systemClock } from "../src/async/index.js";
import { storeService } from "../src/store/index.js";
import { serve } from "../src/wire/index.js";

export function startStore(port: MessagePort): void {
  // With its port closed nothing keeps the thread alive; the answer to `close` has left by the next turn.
  serve(port, storeService({ clock: systemClock, onClosed: () => systemClock.soon(() => port.close()) }));
}
