import { describe, expect, test } from "vitest";
import { Backoff } from "../../../src/runtime/threads/plugin-worker.js";

describe("the pause before a replacement", () => {
  test("is short after one death and grows while they go on", () => {
    const backoff = new Backoff();
    const pauses = [0, 100, 200, 300, 400, 500, 600, 700, 800].map((now) => backoff.pauseAfterDeath(now));
    expect(pauses).toEqual([20, 40, 80, 160, 320, 640, 1_280, 2_000, 2_000]);
  });

  test("is short again once the deaths are long ago", () => {
    const backoff = new Backoff();
    for (const now of [0, 1, 2, 3]) backoff.pauseAfterDeath(now);
    expect(backoff.pauseAfterDeath(5_004)).toBe(20);
  });
});
