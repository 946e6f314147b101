import { getEventListeners } from "node:events";
import { expect, test } from "vitest";
import { abortWith, deferred, onAbort, Stop, untilAborted } from "../../src/async/index.js";

test("onAbort calls its listener when the signal aborts, and at once when it has", () => {
  const controller = new AbortController();
  const log: string[] = [];
  onAbort(controller.signal, () => log.push("before"));
  controller.abort();
  onAbort(controller.signal, () => log.push("after"));
  expect(log).toEqual(["before", "after"]);
});

test("what onAbort returns takes the listener off the signal", () => {
  const { signal } = new AbortController();
  const letGo = onAbort(signal, () => {});
  expect(getEventListeners(signal, "abort")).toHaveLength(1);
  letGo();
  expect(getEventListeners(signal, "abort")).toHaveLength(0);
});

test("onAbort without a signal never calls its listener", () => {
  expect(() => onAbort(undefined, () => expect.unreachable())()).not.toThrow();
});

test("untilAborted rejects with the signal's reason while the promise still waits", async () => {
  const controller = new AbortController();
  const waiting = untilAborted(deferred().promise, controller.signal);
  controller.abort(new Error("enough"));
  await expect(waiting).rejects.toThrow("enough");
});

test("untilAborted rejects with the error that is made of the signal", async () => {
  const waiting = untilAborted(
    deferred().promise,
    AbortSignal.abort("why"),
    ({ reason }) => new Error(`made: ${reason}`),
  );
  await expect(waiting).rejects.toThrow("made: why");
});

test("untilAborted gives the promise's value and lets go of the signal", async () => {
  const { signal } = new AbortController();
  expect(await untilAborted(Promise.resolve(1), signal)).toBe(1);
  await undefined;
  expect(getEventListeners(signal, "abort")).toHaveLength(0);
});

test("a controller aborts with the signal it follows, for the same reason, until it is let go", () => {
  const [given, stop, left] = [new AbortController(), new AbortController(), new AbortController()];
  abortWith(stop, given.signal);
  abortWith(left, given.signal)();
  given.abort("why");
  expect(stop.signal.reason).toBe("why");
  expect(left.signal.aborted).toBe(false);
});

test("whoever listens to a stop is told once that it aborts, behind its signal's own listeners, unless it has let go", () => {
  const stop = new Stop();
  const log: string[] = [];
  onAbort(stop.signal, () => log.push("first"));
  const letGo = onAbort(stop.signal, () => log.push("gone"));
  onAbort(stop.signal, () => log.push(`second: ${stop.signal.reason}`));
  stop.signal.addEventListener("abort", () => log.push("signal"));
  letGo();
  stop.abort("why");
  stop.abort("again");
  onAbort(stop.signal, () => log.push("late"));
  expect(log).toEqual(["signal", "first", "second: why", "late"]);
});

test("listening to a stop adds no listener to its signal, however often", () => {
  const { signal } = new Stop();
  for (let n = 0; n < 20; n++) onAbort(signal, () => {});
  expect(getEventListeners(signal, "abort")).toHaveLength(0);
});

test("a listener of a stop that throws takes nothing from the others, and whoever aborts is told", () => {
  const stop = new Stop();
  const log: string[] = [];
  onAbort(stop.signal, () => {
    throw new Error("mine");
  });
  onAbort(stop.signal, () => log.push("told"));
  expect(() => stop.abort("why")).toThrow("mine");
  expect(log).toEqual(["told"]);
});
