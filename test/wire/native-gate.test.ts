import { Worker } from "node:worker_threads";
import { expect, test } from "vitest";
import { readingBehind } from "../../src/store/lmdb/gated.js";
import { behindGate, isInside, newNativeGate, shutGate } from "../../src/wire/index.js";

test("a thread is inside its gate while what it runs there lasts, also when that throws", () => {
  const gate = newNativeGate();
  expect(behindGate(gate, () => isInside(gate))).toBe(true);
  expect(isInside(gate)).toBe(false);
  expect(() =>
    behindGate(gate, () => {
      throw new Error("It is damaged.");
    }),
  ).toThrow("It is damaged.");
  expect(shutGate(gate)).toBe(false);
});

test("every method of a reader behind a gate runs inside of it, with its own private fields", () => {
  const gate = newNativeGate();
  class Reader {
    readonly #name = "reader";
    read(what: string) {
      return { what, by: this.#name, inside: isInside(gate) };
    }
  }
  const reader = readingBehind(gate, new Reader());
  expect(reader.read("a")).toEqual({ what: "a", by: "reader", inside: true });
  expect(reader.read).toBe(reader.read);
  expect(isInside(gate)).toBe(false);
});

test("a thread that finds its gate shut goes no further until it is ended", async () => {
  const gate = newNativeGate();
  shutGate(gate);
  const wire = new URL("../../dist/src/wire/index.js", import.meta.url).href;
  const code = `import(${JSON.stringify(wire)}).then(({ behindGate }) => {
    const { workerData, parentPort } = require("node:worker_threads");
    parentPort.postMessage("before");
    behindGate(workerData, () => parentPort.postMessage("inside"));
    parentPort.postMessage("behind");
  });`;
  const worker = new Worker(code, { eval: true, workerData: gate });
  const said: unknown[] = [];
  worker.on("message", (word) => said.push(word));
  await new Promise((resolve) => worker.once("message", resolve));
  const exit = new Promise((resolve) => worker.once("exit", resolve));
  let ended = false;
  void exit.then(() => {
    ended = true;
  });
  // Only a thread that waits at the gate can be woken there.
  let woken = 0;
  while (woken === 0 && !ended) {
    woken = Atomics.notify(gate, 1);
    await new Promise((resolve) => setImmediate(resolve));
  }
  await exit;
  expect(woken).toBe(1);
  expect(said).toEqual(["before", "inside", "behind"]);
});
