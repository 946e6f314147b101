import { expect, test } from "vitest";
import { deferred } from "../../src/async/index.js";

test("a deferred promise takes the first value it is given from outside", async () => {
  const { promise, resolve } = deferred<string>();
  resolve("first");
  resolve("second");
  expect(await promise).toBe("first");
});

test("a deferred promise can be rejected from outside", async () => {
  const { promise, reject } = deferred();
  reject(new Error("no"));
  await expect(promise).rejects.toThrow("no");
});
