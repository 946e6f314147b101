import type { MessagePort } from "node:worker_threads";
import { systemClock } from "../src/async/index.js";
import { serveSessions, threadHeap } from "../src/session/worker/index.js";

interface SessionThread {
  readonly toolEntry: URL;
  /** Called when its sessions are stored, and nothing is left to do. */
  readonly onShutdown: () => void;
}

export function startSessions(port: MessagePort, parts: SessionThread): void {
  serveSessions(port, { ...parts, clock: systemClock, heap: threadHeap });
}
