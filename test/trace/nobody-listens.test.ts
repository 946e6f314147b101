import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

const src = new URL("../../src/", import.meta.url);
const files = readdirSync(src, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));
/** Somebody listens: what makes the event is an argument of `?.emit`, stands behind a look, or in a function with a sink. */
const SOMEBODY = /\?\.emit\(|(events|hub) === undefined|(events|hub) !== undefined|events: EventSink,/;

test("an error is made into an event's error only where somebody listens", () => {
  const made = files
    .filter((file) => !file.startsWith("trace"))
    .flatMap((file) => {
      const text = readFileSync(new URL(file, src), "utf8");
      return [...text.matchAll(/\beventError\(/g)].map(({ index }) => ({
        file,
        before: text.slice(index - 800, index),
      }));
    });
  expect(made.length).toBeGreaterThan(15);
  expect(made.filter(({ before }) => !SOMEBODY.test(before)).map(({ file }) => file)).toEqual([]);
});
