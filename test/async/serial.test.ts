import { expect, test } from "vitest";
import { deferred, Serial } from "../../src/async/index.js";

test("tasks of a Serial run one at a time in the order they were asked for", async () => {
  const serial = new Serial();
  const first = deferred<string>();
  const log: string[] = [];
  const one = serial.run(() => first.promise.then((value) => log.push(value)));
  const two = serial.run(() => log.push("two"));
  expect(serial.size).toBe(2);
  first.resolve("one");
  await Promise.all([one, two]);
  expect(log).toEqual(["one", "two"]);
  expect(serial.size).toBe(0);
});

test("a task that fails rejects for its caller only, and the next one runs", async () => {
  const serial = new Serial();
  const failed = serial.run(() => {
    throw new Error("no");
  });
  const next = serial.run(() => "yes");
  await expect(failed).rejects.toThrow("no");
  expect(await next).toBe("yes");
});

test("ended() of a Serial waits for the tasks known so far and does not tell their errors", async () => {
  const serial = new Serial();
  const task = deferred();
  const failed = serial.run(() => task.promise);
  const ended = serial.ended();
  task.reject(new Error("no"));
  await ended;
  await expect(failed).rejects.toThrow("no");
});
