import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { ERROR_CODES } from "../../src/kernel/codes/index.js";
import { EVENT_TYPES } from "../../src/trace/index.js";
import { textOf } from "../support/shown-by.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));
const PAGES = ["docs/events.md", "docs/troubleshooting.md"];
const types = Object.keys(EVENT_TYPES);
const codes = Object.values(ERROR_CODES).flatMap((table) => Object.keys(table));

/** What a page writes as code and as events and error codes are written. */
const namedIn = (page: string) => [
  ...new Set([...(textOf(page) ?? "").matchAll(/`([a-z]+(?:_[a-z]+)+)`/g)].map(([, name]) => name as string)),
];

test.each(PAGES)("%s names every type of event, and nothing that is neither an event nor an error's code", (page) => {
  const named = namedIn(page);
  expect(types.filter((type) => !named.includes(type))).toEqual([]);
  // `turn_failed` is an outcome of a hook that failed.
  expect(named.filter((name) => ![...types, ...codes, "turn_failed"].includes(name))).toEqual([]);
});

test("docs/events.md has each event in the table of its area, with its level", () => {
  const sections = (textOf("docs/events.md") ?? "").split(/^### /m).slice(1);
  const rows = sections.flatMap((section) => {
    const area = /^`(\w+)`/.exec(section)?.[1];
    return [...section.matchAll(/^\| `(\w+)` \| (\w+) \|/gm)].map(([, type, level]) => [type, { level, area }]);
  });
  expect(Object.fromEntries(rows)).toEqual(EVENT_TYPES);
  expect(rows).toHaveLength(types.length);
});

test("the README leads to the pages about events and troubleshooting", () => {
  for (const page of PAGES) expect(textOf("README.md")).toContain(`(${page})`);
});

test("the program in docs/events.md prints what the page says", async () => {
  const blocks = [...(textOf("docs/events.md") ?? "").matchAll(/```(\w*)\n([\s\S]*?)```/g)];
  const at = blocks.findIndex(([, , text]) => text?.startsWith("// program:"));
  const [program, printed] = [blocks[at]?.[2] as string, blocks[at + 1]?.[2] as string];
  // Inside the package, so that "troupe" is this package itself.
  const folder = await mkdtemp(join(root, "test/.events-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, "watching.mjs"), program);
  const { stdout, stderr } = await run(process.execPath, ["watching.mjs"], { cwd: folder });
  expect({ stdout: stdout.split("\n").sort(), stderr }).toEqual({ stdout: printed.split("\n").sort(), stderr: "" });
});
