import { type MessagePort, workerData } from "node:worker_threads";
import * as Comlink from "comlink";
import nodeEndpoint from "comlink/dist/esm/node-adapter.mjs";
import { systemClock } from "../../src/async/index.js";
import { Lane, serve } from "../../src/wire/index.js";
import type { GuardFacts } from "../measuring/contexts.js";

/** The guard of `plugins/guard.ts`, as somebody would write it with Comlink alone; and the same by our two routes. */
const calls = new Map<string, number>();
const guard = {
  beforeToolCall({ sessionId, call }: GuardFacts) {
    const count = (calls.get(sessionId) ?? 0) + 1;
    calls.set(sessionId, count);
    return count > Number.MAX_SAFE_INTEGER ? { deny: call.toolName } : undefined;
  },
};
export type Guard = typeof guard;

export type GuardPorts = Readonly<Record<"comlink" | "wrapped" | "lane", MessagePort>>;

const { comlink, wrapped, lane } = workerData as GuardPorts;
Comlink.expose(guard, nodeEndpoint(comlink));
serve(wrapped, guard);
new Lane(lane, {
  name: "The measuring thread",
  clock: systemClock,
  serve: (_method, facts) => guard.beforeToolCall(facts as GuardFacts),
});
