import fc from "fast-check";
import { expect, test } from "vitest";
import { KeptOutput } from "../../src/processes/index.js";

const read = (output: KeptOutput, from = 0, maxBytes = 1_000) => output.read({ from, maxBytes, as: "text" });

test("an output is read by the number of its bytes, and again from the same place", () => {
  const output = new KeptOutput(1_000);
  output.add(Buffer.from("hello "));
  output.add(Buffer.from("world"));
  expect(read(output)).toEqual({ from: 0, next: 11, dropped: 0, ended: false, text: "hello world" });
  expect(read(output, 6)).toEqual({ from: 6, next: 11, dropped: 0, ended: false, text: "world" });
  expect(read(output, 6, 4)).toEqual({ from: 6, next: 10, dropped: 0, ended: false, text: "worl" });
  expect(read(output, 99)).toEqual({ from: 11, next: 11, dropped: 0, ended: false, text: "" });
});

test("the oldest bytes make room, and who comes too late for them is told how many", () => {
  const output = new KeptOutput(4);
  output.add(Buffer.from("abcdef"));
  expect(read(output)).toEqual({ from: 2, next: 6, dropped: 2, ended: false, text: "cdef" });
  expect(read(output, 3)).toEqual({ from: 3, next: 6, dropped: 0, ended: false, text: "def" });
  output.add(Buffer.from("0123456789"));
  expect(read(output, 3)).toEqual({ from: 12, next: 16, dropped: 9, ended: false, text: "6789" });
});

test("a character that is cut off is read with what follows, and at the end as it is", () => {
  const output = new KeptOutput(100);
  const bytes = Buffer.from("a€");
  output.add(bytes.subarray(0, 3));
  expect(read(output)).toMatchObject({ text: "a", next: 1 });
  output.add(bytes.subarray(3));
  expect(read(output, 1)).toMatchObject({ text: "€", next: 4 });
  output.add(Buffer.from([0xe2, 0x82]));
  expect(read(output, 4)).toMatchObject({ text: "", next: 4, ended: false });
  output.end();
  expect(read(output, 4)).toMatchObject({ text: "\ufffd", next: 6, ended: true });
});

test("whatever is added, what is kept are its last bytes, each under its number", () => {
  const chunks = fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 20 });
  fc.assert(
    fc.property(chunks, fc.integer({ min: 1, max: 64 }), fc.nat(200), (added, limit, from) => {
      const output = new KeptOutput(limit);
      for (const chunk of added) output.add(chunk);
      const all = Buffer.concat(added);
      const oldest = Math.max(0, all.length - limit);
      const begin = Math.min(Math.max(from, oldest), all.length);
      const answer = output.read({ from, maxBytes: 1_000, as: "bytes" });
      expect(Buffer.from(answer.bytes as Uint8Array)).toEqual(all.subarray(begin));
      expect(answer).toMatchObject({ from: begin, next: all.length, dropped: Math.max(0, begin - from) });
    }),
  );
});

test("who waits for a byte is told when it comes, or when nothing comes any more", () => {
  const output = new KeptOutput(100);
  const told: string[] = [];
  output.onBehind(0, () => told.push("first"));
  output.onBehind(5, () => told.push("sixth"));
  const forget = output.onBehind(0, () => told.push("forgotten"));
  forget();
  output.add(Buffer.from("abc"));
  expect(told).toEqual(["first"]);
  output.end();
  expect(told).toEqual(["first", "sixth"]);
});
