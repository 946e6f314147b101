import { expect, test } from "vitest";
import { shownBy, textOf, unshown } from "../support/shown-by.js";

/** The rows of the page's tables whose last column is "shown by", as their cells. */
function claims(page: string): string[][] {
  const rows: string[][] = [];
  let counts = false;
  for (const line of page.split("\n")) {
    const cells = line.startsWith("| ")
      ? line
          .slice(1, -1)
          .split("|")
          .map((cell) => cell.trim())
      : undefined;
    if (cells === undefined) counts = counts && line.startsWith("|---");
    else if (cells.at(-1) === "shown by") counts = true;
    else if (counts) rows.push(cells);
  }
  return rows;
}

const rows = claims(textOf("docs/isolation.md") ?? "");

test("each row of docs/isolation.md says what all tiers contain, and names a test", () => {
  expect(rows.length).toBeGreaterThan(15);
  expect(rows.filter((cells) => cells.length !== 5 || shownBy(cells[4] ?? "").length === 0)).toEqual([]);
});

test("the tests that docs/isolation.md names are there", () => {
  expect(unshown(rows.flatMap((cells) => shownBy(cells[4] ?? "")))).toEqual([]);
});

test("every test that runs an attack of docs/isolation.md is in the part of the suite that .ci/run has on Node 24", () => {
  const attacks = (textOf("docs/isolation.md") ?? "").split("## The attacks that were tried")[1] ?? "";
  const onNode24 =
    /NODE24=\(([^)]*)\)/
      .exec(textOf(".ci/run") ?? "")?.[1]
      ?.trim()
      .split(/\s+/) ?? [];
  const files = [...new Set([...attacks.matchAll(/`(test\/[^`]*\.ts)`/g)].map(([, file]) => file as string))];
  expect(files.length).toBeGreaterThan(20);
  expect(files.filter((file) => !onNode24.some((part) => file === part || file.startsWith(`${part}/`)))).toEqual([]);
});

test("SECURITY.md, the README and docs/plugins.md lead to docs/isolation.md", () => {
  expect(textOf("SECURITY.md")).toContain("(docs/isolation.md)");
  expect(textOf("README.md")).toContain("(docs/isolation.md)");
  expect(textOf("README.md")).toContain("(SECURITY.md)");
  expect(textOf("docs/plugins.md")).toContain("(isolation.md)");
});
