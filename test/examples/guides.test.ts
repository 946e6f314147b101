import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const pages = ["README.md", ...(await readdir(join(root, "docs"))).map((name) => `docs/${name}`)];

test.each(pages)("%s links to files and places that are there", async (page) => {
  const text = await readFile(join(root, page), "utf8");
  const links = [...text.matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)/g)];
  const dead: string[] = [];
  for (const [link, path = "", place] of links) {
    const target = path === "" ? join(root, page) : join(root, dirname(page), path);
    const there = existsSync(target);
    if (!there || (place !== undefined && !(await placesIn(target)).includes(place))) dead.push(link);
  }
  expect(dead).toEqual([]);
});

/** The headings of a page, as links name them. */
async function placesIn(file: string): Promise<string[]> {
  const titles = [...(await readFile(file, "utf8")).matchAll(/^#+ (.*)$/gm)];
  return titles.map(([, title = ""]) =>
    title
      .toLowerCase()
      .replace(/[^\w\- ]/g, "")
      .replaceAll(" ", "-"),
  );
}
