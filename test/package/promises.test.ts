import { expect, test } from "vitest";
import { shownBy, textOf, unshown } from "../support/shown-by.js";

const page = textOf("docs/promises.md") ?? "";

interface Promised {
  readonly number: number;
  readonly shownBy: string;
  readonly notYet: string;
}

const promises = [...page.matchAll(/^\| (\d+) \| [^|]+ \| ([^|]*) ?\| ([^|]*) ?\|$/gm)].map(
  ([, number, shownBy = "", notYet = ""]): Promised => ({
    number: Number(number),
    shownBy: shownBy.trim(),
    notYet: notYet.trim(),
  }),
);

const shown = promises.map(({ shownBy: cell }) => cell).flatMap(shownBy);

test("docs/promises.md has the 37 promises in their order, each shown by something or not yet", () => {
  expect(promises.map(({ number }) => number)).toEqual(Array.from({ length: 37 }, (_, n) => n + 1));
  expect(promises.filter(({ shownBy, notYet }) => shownBy === "" && notYet === "")).toEqual([]);
});

test("every test and figure that docs/promises.md quotes stands in the file it is quoted from", () => {
  expect(shown.length).toBeGreaterThan(50);
  expect(shown.flatMap(({ names }) => names).length).toBeGreaterThan(60);
  expect(unshown(shown)).toEqual([]);
});
