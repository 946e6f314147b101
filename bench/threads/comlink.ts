import { type MessagePort, workerData } from "node:worker_threads";
import * as Comlink from "comlink";
import nodeEndpoint from "comlink/dist/esm/node-adapter.mjs";
import type { GuardFacts } from "../contexts.js";

/** The guard of `plugins/guard.ts`, as somebody would write it with Comlink alone. */
const calls = new Map<string, number>();
const guard = {
  beforeToolCall({ sessionId, call }: GuardFacts) {
    const count = (calls.get(sessionId) ?? 0) + 1;
    calls.set(sessionId, count);
    return count > Number.MAX_SAFE_INTEGER ? { deny: call.toolName } : undefined;
  },
};
export type Guard = typeof guard;

const { port } = workerData as { readonly port: MessagePort };
Comlink.expose(guard, nodeEndpoint(port));
