import { expect, test } from "vitest";
import { ReaderQueue } from "../../src/async/index.js";

async function all<T>(queue: AsyncIterable<T>): Promise<T[]> {
  const read: T[] = [];
  for await (const item of queue) read.push(item);
  return read;
}

test("a reader gets what was pushed before and after it began to wait, in order, and the end", async () => {
  const queue = new ReaderQueue<number>();
  queue.push(1);
  const reading = all(queue);
  await undefined;
  queue.push(2);
  queue.push(3);
  queue.end();
  queue.push(4);
  expect(await reading).toEqual([1, 2, 3]);
});

test("an error is thrown once behind what is unread; then the iteration is over", async () => {
  const queue = new ReaderQueue<number>();
  queue.push(1);
  queue.end(new Error("lost"));
  expect(await queue.next()).toEqual({ done: false, value: 1 });
  await expect(queue.next()).rejects.toThrow("lost");
  expect(await queue.next()).toEqual({ done: true, value: undefined });
});

test("of several reads that wait the first one gets the error and the others the end", async () => {
  const queue = new ReaderQueue<number>();
  const [first, second] = [queue.next(), queue.next()];
  queue.end(new Error("lost"));
  await expect(first).rejects.toThrow("lost");
  expect(await second).toEqual({ done: true, value: undefined });
});

test("a reader that leaves drops what is unread, and its leaving is told", async () => {
  let left = 0;
  const queue = new ReaderQueue<number>({ onReturn: () => left++ });
  queue.push(1);
  queue.push(2);
  for await (const _ of queue) break;
  expect(left).toBe(1);
  expect(await queue.next()).toEqual({ done: true, value: undefined });
});

test("a queue can keep its unread items in a buffer that joins them", async () => {
  let kept = "";
  const queue = new ReaderQueue<string>({
    unread: {
      push: (item) => {
        kept += item;
      },
      shift: () => {
        const item = kept;
        kept = "";
        return item === "" ? undefined : item;
      },
    },
  });
  queue.push("a");
  queue.push("b");
  expect(await queue.next()).toEqual({ done: false, value: "ab" });
});
