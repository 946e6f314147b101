import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Session } from "troupe";
import { heldHere } from "../plugins/memory.js";

/** The plugin by which a session worker says what it holds. */
export const MEMORY_PLUGIN = { module: new URL("../plugins/memory.js", import.meta.url), tier: "inline" } as const;

/** Bytes of heap and external memory after collecting. */
export interface Held {
  readonly worker: number;
  readonly main: number;
}

/** What this thread holds, and the worker of a session in a runtime with `MEMORY_PLUGIN`. */
export async function heldBy(probe: Session): Promise<Held> {
  return { worker: await probe.query<number>("memory.held"), main: heldHere() };
}

/** For threads that start later too; this one has its global object already. */
export function exposeGc(): void {
  setFlagsFromString("--expose-gc");
  globalThis.gc ??= runInNewContext("gc") as NonNullable<typeof globalThis.gc>;
}

/** Calls for each item, so many at once. */
export async function eachOf<T>(
  items: readonly T[],
  atOnce: number,
  call: (item: T) => Promise<unknown>,
): Promise<void> {
  const left = [...items].reverse();
  const worker = async () => {
    for (let item = left.pop(); item !== undefined; item = left.pop()) await call(item);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}
