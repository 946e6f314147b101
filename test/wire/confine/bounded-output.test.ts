import { expect, test } from "vitest";
import { BoundedOutput } from "../../../src/wire/confine/bounded-output.js";
import { ManualClock } from "../../support/manual-clock.js";

const LINE = Buffer.from(`${"x".repeat(1_023)}\n`);

function output(write?: (bytes: Uint8Array) => number) {
  const clock = new ManualClock();
  const lines: string[] = [];
  const keep = (bytes: Uint8Array) => {
    lines.push(Buffer.from(bytes).toString().trimEnd());
    return bytes.length;
  };
  return { clock, lines, bounded: new BoundedOutput(clock, write ?? keep) };
}

test("output within its pace leaves as it is written", () => {
  const { bounded, lines } = output();
  for (let line = 0; line < 256; line++) bounded.write(LINE);
  expect(lines).toHaveLength(256);
});

test("output beyond its pace is left out, is said to be at once, and is counted when there is room again", () => {
  const { bounded, lines, clock } = output();
  for (let line = 0; line < 1_000; line++) bounded.write(LINE);
  expect(lines).toHaveLength(257);
  expect(lines.at(-1)).toMatch(/output is left out/);
  clock.advance(1_000);
  bounded.write(LINE);
  expect(lines.slice(-2)).toEqual([
    "[troupe] 744 writes of a plugin or tool were left out.",
    LINE.toString().trimEnd(),
  ]);
});

test("output that nobody reads is given up, and the writer is not failed", () => {
  let tries = 0;
  const { bounded } = output(() => {
    tries++;
    throw Object.assign(new Error("full"), { code: "EAGAIN" });
  });
  bounded.write(LINE);
  bounded.write(LINE);
  // Waited for once: 20 tries, then one for each further write and for each attempt to say what was left out.
  expect(tries).toBe(20 + 1 + 2 + 1);
});

test("output that is taken piece by piece leaves whole", () => {
  const pieces: Buffer[] = [];
  const { bounded } = output((bytes) => {
    pieces.push(Buffer.from(bytes.subarray(0, 100)));
    return Math.min(100, bytes.length);
  });
  bounded.write(LINE);
  expect(Buffer.concat(pieces).equals(LINE)).toBe(true);
});
