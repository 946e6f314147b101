import type { MessagePort } from "node:worker_threads";
import { systemClock } from "../src/async/index.js";
import { serveSessions, threadHeap } from "../src/session/worker/index.js";

export function startSessions(port: MessagePort, toolEntry: URL): void {
  serveSessions(port, { toolEntry, clock: systemClock, heap: threadHeap });
}
