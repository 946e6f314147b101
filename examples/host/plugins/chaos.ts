import { threadId } from "node:worker_threads";
import { definePlugin } from "troupe/plugin";
import { z } from "zod";
import { randomFrom } from "../random.js";

/** How often, out of a million hook calls, something goes wrong. */
const options = z.object({
  seed: z.number().int(),
  throws: z.number().min(0),
  hangs: z.number().min(0),
  blocks: z.number().min(0),
  crashes: z.number().min(0),
});

/** One per thread; its number is in the seed, or every replacement would repeat what ended the one before. */
let random: (() => number) | undefined;

/** Misbehaves now and then, in every way a plugin can: only the calls that reach it should feel it. */
export default definePlugin({
  id: "chaos",
  version: "1.0.0",
  options,
  state: () => ({ calls: 0 }),
  hooks: {
    beforeTurn({ state, options }) {
      state.calls++;
      misbehave({ ...options, hangs: 0, blocks: 0, crashes: 0 });
    },
    afterToolCall({ state, options }) {
      state.calls++;
      return misbehave(options);
    },
    checkpoint({ state, options }) {
      state.calls++;
      return misbehave(options);
    },
  },
});

function misbehave({ seed, ...chances }: z.infer<typeof options>): Promise<undefined> | undefined {
  random ??= randomFrom(seed + threadId);
  switch (draw(chances, random() * 1_000_000)) {
    case "throws":
      throw new Error("chaos: thrown by a hook");
    case "hangs":
      return new Promise(() => {});
    case "blocks":
      for (;;);
    case "crashes":
      process.nextTick(() => {
        throw new Error("chaos: thrown where nobody catches it");
      });
  }
  return undefined;
}

/** The chances lie side by side; the point falls into one of them or past them all. */
function draw(chances: Readonly<Record<string, number>>, point: number): string | undefined {
  let end = 0;
  for (const [name, chance] of Object.entries(chances)) {
    end += chance;
    if (point < end) return name;
  }
  return undefined;
}
