import { pbkdf2Sync } from "node:crypto";
import { parentPort } from "node:worker_threads";
import { definePlugin } from "troupe/plugin";

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const nextLoop = () => new Promise((resolve) => setImmediate(resolve));
const kept: unknown[] = [];

function spin(ms: number): void {
  for (const until = performance.now() + ms; performance.now() < until; );
}

/** What a plugin can do to the thread it runs on. A deed is named by the input of the turn that does it. */
const DEEDS = {
  throw() {
    throw new Error("A deed of the bench.");
  },
  recursion() {
    const deeper = (n: number): number => deeper(n + 1) + 1;
    deeper(0);
  },
  never: () => new Promise<void>(() => undefined),
  rejection() {
    void pause(1).then(() => Promise.reject(new Error("A rejection nobody waits for.")));
  },
  exit: () => process.exit(1),
  "spin-200": () => spin(200),
  "spin-400": () => spin(400),
  "spin-900": () => spin(900),
  spin() {
    for (;;);
  },
  wait() {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  },
  async microtasks() {
    for (;;) await undefined;
  },
  regexp: () => void /^(a+)+$/.test(`${"a".repeat(40)}b`),
  timers() {
    for (let n = 0; n < 200_000; n++) setInterval(() => undefined, 10);
  },
  async leak() {
    for (;;) {
      for (let n = 0; n < 5; n++) kept.push(new Array(100_000).fill({}));
      await nextLoop();
    }
  },
  async buffers() {
    for (;;) {
      kept.push(Buffer.alloc(8 * 2 ** 20, 1));
      await pause(1);
    }
  },
  flood() {
    for (let n = 0; n < 200_000; n++) parentPort?.postMessage(n);
  },
  print() {
    for (let n = 0; n < 300_000; n++) console.log(n);
  },
  large: () => ({ message: "x".repeat(300 * 2 ** 20) }),
  native: () => void pbkdf2Sync("a", "b", 6_000_000, 64, "sha512"),
  patch() {
    const broken = () => {
      throw new TypeError("It is broken.");
    };
    Object.assign(Map.prototype, { get: broken, set: broken });
    Object.assign(Array.prototype, { push: broken });
    process.nextTick = broken;
  },
  thenable() {
    // Whatever is awaited from now on is taken for a promise that never settles.
    Reflect.set(Object.prototype, "then", () => undefined);
  },
  // Of these the hook does nothing: the model calls the tool below, or does it itself.
  schema: () => undefined,
  model: () => undefined,
} satisfies Record<string, () => unknown>;

export type Deed = keyof typeof DEEDS;

/** Works honestly for so long, in microseconds, and does what the turn's input says when that names a deed. */
export default definePlugin({
  id: new URL(import.meta.url).searchParams.get("id") ?? "bench.deeds",
  version: "1.0.0",
  state: () => ({ turns: 0 }),
  tools: {
    word: {
      description: "Takes a word that a pattern never ends with.",
      inputSchema: { type: "object", properties: { word: { type: "string", pattern: "^(a+)+$" } } },
      execute: () => "done",
    },
  },
  hooks: {
    async beforeTurn({ input, state }) {
      state.turns++;
      const [, deed] = /deed:([a-z0-9-]+)/.exec(JSON.stringify(input)) ?? [];
      // Whatever a deed returns is the hook's answer, be it one that no hook may give.
      if (deed !== undefined) return (await DEEDS[deed as Deed]?.()) as undefined;
      return undefined;
    },
  },
});
