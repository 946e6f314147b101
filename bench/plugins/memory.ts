import { getHeapStatistics } from "node:v8";
import { definePlugin } from "troupe/plugin";

/** Says how much the thread it runs in holds, after a collection: it must be inline, in a process with `--expose-gc`. */
export default definePlugin({
  id: "bench.memory",
  version: "1.0.0",
  queries: {
    "memory.held": { description: "Bytes held by this thread", input: { type: "object" }, run: () => heldHere() },
  },
});

export function heldHere(): number {
  const { gc } = globalThis;
  if (gc === undefined) throw new Error("There is no gc(): start node with --expose-gc.");
  for (let n = 0; n < 3; n++) gc();
  const { used_heap_size, external_memory } = getHeapStatistics();
  return used_heap_size + external_memory;
}
