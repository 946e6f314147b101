import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const page = await readFile(join(root, "docs/ARCHITECTURE.md"), "utf8");

test("every path that docs/ARCHITECTURE.md names is there", () => {
  const named = [...page.matchAll(/`((?:src|workers|test)\/[^`\s]*)`/g)].map(([, path = ""]) => path);
  expect(named.length).toBeGreaterThan(100);
  expect(named.filter((path) => !existsSync(join(root, path)))).toEqual([]);
});

test("the walks of docs/ARCHITECTURE.md are as long as its table says", () => {
  const lengthOf = (heading: string) => {
    const [, section = ""] = page.split(`### ${heading}\n`);
    const [walk = ""] = section.split("\n### ");
    return [...walk.matchAll(/^\d+\. `src\//gm)].length;
  };
  const said = (row: string) => Number(new RegExp(`^\\| ${row}[^|]*\\| \\d+ \\| (\\d+) \\|`, "m").exec(page)?.[1]);
  expect([
    lengthOf("A plain turn"),
    lengthOf("A durable commit"),
    lengthOf("A fork to another worker"),
    lengthOf("An isolated `beforeToolCall`"),
  ]).toEqual([said("a plain turn"), said("a durable commit"), said("a fork to another worker"), said("an isolated")]);
});

test("docs/ARCHITECTURE.md tells of every sub-room", async () => {
  const { default: rules } = await import(join(root, ".dependency-cruiser.cjs"));
  const subRooms = (rules.forbidden as { name: string; from: { path: string } }[]).flatMap(({ name, from }) =>
    /^\w+-.+-imports-below$/.test(name) ? [from.path.replace(/^\^/, "").replace(/\(\?:(.*)\)\/$/, "$1")] : [],
  );
  expect(subRooms.length).toBeGreaterThan(30);
  expect(subRooms.filter((room) => !page.includes(`\`${room}\``))).toEqual([]);
});
