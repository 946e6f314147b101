import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { afterEach, describe, expect, test } from "vitest";
import { usageOfThread } from "../../../src/runtime/watch/thread-usage.js";

const title = process.title;
afterEach(() => {
  process.title = title;
});

describe.runIf(process.platform === "linux")("What Linux says of a thread", () => {
  test("is the time it was on a processor, which grows while it works, and that it can run", () => {
    const usage = usageOfThread(process.pid);
    const before = usage.usage()?.burntMs ?? 0;
    while ((usage.usage()?.burntMs ?? 0) < before + 5);
    expect(before).toBeGreaterThan(0);
    expect(usage.isRunnable()).toBe(true);
    usage.close();
  });

  test("is read right when the thread's name looks like the end of its name and a state", () => {
    process.title = "x) S (y) S";
    const usage = usageOfThread(process.pid);
    expect(usage.isRunnable()).toBe(true);
    usage.close();
  });

  test("is that it sleeps, in Atomics.wait, and nothing at all once it has ended", async () => {
    const code = `
      const { parentPort } = require("node:worker_threads");
      const { readFileSync } = require("node:fs");
      parentPort.postMessage(Number.parseInt(readFileSync("/proc/thread-self/stat", "latin1"), 10));
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);`;
    const worker = new Worker(code, { eval: true });
    const tid = await new Promise<number>((resolve) => worker.once("message", resolve));
    const usage = usageOfThread(tid);
    while (usage.isRunnable()) await sleep(1);
    expect(usage.usage()?.burntMs).toBeGreaterThan(0);
    await worker.terminate();
    while (usage.usage() !== undefined) await sleep(1);
    expect(usage.isRunnable()).toBe(false);
    usage.close();
  });
});

test("of a thread whose number is not known nothing is said", () => {
  const usage = usageOfThread(undefined);
  expect(usage.usage()).toBeUndefined();
  expect(usage.isRunnable()).toBe(false);
  usage.close();
});
