import { beforeEach, describe, expect, test } from "vitest";
import { BREAKER, Breaker } from "../../../src/session/plugins/breaker.js";

const WALL = 1_000_000;

describe("a breaker", () => {
  let now: number;
  let breaker: Breaker;
  beforeEach(() => {
    now = 0;
    breaker = new Breaker({ now: () => now, wallNow: () => WALL + now });
  });

  const miss = (times: number, sessionId: string) => {
    for (let n = 0; n < times; n++) breaker.timedOut(sessionId);
  };
  const isRefused = (sessionId: string) => breaker.refuses(sessionId) !== undefined;

  test("a breaker opens after five timeouts in a row and for five seconds", () => {
    expect(BREAKER).toEqual({ timeouts: 5, openMs: 5_000 });
  });

  test("four timeouts in a row leave a breaker closed", () => {
    miss(4, "a");
    expect(isRefused("a")).toBe(false);
  });

  test("the fifth timeout in a row opens a breaker, which says since when and for how long", () => {
    now = 70;
    miss(5, "a");
    now = 1_070;
    expect(breaker.refuses("a")).toEqual({ since: WALL + 70, retryInMs: 4_000 });
  });

  test("one answer between timeouts starts their count anew", () => {
    miss(4, "a");
    breaker.answered();
    miss(4, "a");
    expect(isRefused("a")).toBe(false);
  });

  test("a breaker that one session's timeouts opened refuses that session and no other", () => {
    miss(5, "a");
    expect([isRefused("a"), isRefused("b")]).toEqual([true, false]);
  });

  test("a breaker that timeouts of two sessions opened refuses every session", () => {
    miss(4, "a");
    miss(1, "b");
    expect([isRefused("a"), isRefused("b"), isRefused("c")]).toEqual([true, true, true]);
  });

  test("when its time is over a breaker lets one trial call through and refuses the others until that has ended", () => {
    miss(5, "a");
    now = 5_000;
    expect(breaker.refuses("a")).toBeUndefined();
    expect(breaker.refuses("a")).toEqual({ since: WALL, retryInMs: 0 });
  });

  test("a trial that is answered closes the breaker", () => {
    miss(5, "a");
    now = 5_000;
    breaker.refuses("a");
    breaker.answered();
    expect([isRefused("a"), isRefused("a")]).toEqual([false, false]);
  });

  test("a trial that times out opens the breaker for another five seconds, since its first opening", () => {
    miss(5, "a");
    now = 5_000;
    breaker.refuses("a");
    now = 5_100;
    breaker.timedOut("a");
    expect(breaker.refuses("a")).toEqual({ since: WALL, retryInMs: 5_000 });
  });

  test("a trial that ends without a word of the hook leaves the trial to the next call", () => {
    miss(5, "a");
    now = 5_000;
    breaker.refuses("a");
    breaker.undecided();
    expect([isRefused("a"), isRefused("a")]).toEqual([false, true]);
  });

  test("a timeout of a call made before the breaker opened does not prolong its time", () => {
    miss(5, "a");
    now = 4_000;
    breaker.timedOut("a");
    now = 5_000;
    expect(isRefused("a")).toBe(false);
  });
});
