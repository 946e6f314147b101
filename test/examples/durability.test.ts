import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));
const guide = await readFile(join(root, "docs/durability.md"), "utf8");
const blocks = [...guide.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, code = ""]) => code);

test("the example of docs/durability.md runs and prints what it should", async () => {
  const { stdout, stderr } = await run(process.execPath, [join(root, "dist/examples/host/keeping.js")]);
  expect({ stdout, stderr }).toEqual({
    stdout: `troupe-session
chat-1-again 2
1 gone, 4 kept
3 sessions, all whole
`,
    stderr: "",
  });
});

test("docs/durability.md shows pieces of it", () => {
  expect(blocks.length).toBeGreaterThan(4);
});

test.each(blocks.map((code) => [code]))("as they stand there: %s", async (code) => {
  expect(await readFile(join(root, "examples/host/keeping.ts"), "utf8")).toContain(code);
});
