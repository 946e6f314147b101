import { availableParallelism } from "node:os";
import { expect, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import type { PluginEntry } from "../../../src/runtime/options/index.js";
import { resolveOptions } from "../../../src/runtime/options/options.js";

const limits = (entry: Partial<PluginEntry>) => {
  const [plugin] = resolveOptions({ plugins: [{ module: "file:///app/p.js", ...entry }] }, systemClock).plugins;
  const { blockedMs, heapMb, externalMb, shards } = plugin as NonNullable<typeof plugin>;
  return { blockedMs, heapMb, externalMb, shards };
};

test("a plugin may hold its thread for 250 ms on Linux and a second elsewhere, and its thread 256 MB in the heap and as much outside", () => {
  expect(limits({})).toEqual({
    blockedMs: process.platform === "linux" ? 250 : 1_000,
    heapMb: 256,
    externalMb: 256,
    shards: availableParallelism(),
  });
});

test("what a plugin's entry says of its limits counts; outside of the heap its threads may hold as much as in it", () => {
  expect(limits({ blockedMs: 60, heapMb: 64, shards: 1 })).toEqual({
    blockedMs: 60,
    heapMb: 64,
    externalMb: 64,
    shards: 1,
  });
  expect(limits({ heapMb: 64, externalMb: 32 })).toMatchObject({ heapMb: 64, externalMb: 32 });
});

test("a plugin's blockedMs under 50 is 50: a thread is not looked at more closely than that", () => {
  expect([49, 50, 51].map((blockedMs) => limits({ blockedMs }).blockedMs)).toEqual([50, 50, 51]);
});
