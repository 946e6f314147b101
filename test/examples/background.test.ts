import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { NODE_ARGS } from "../support/runtime.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

/** What each example of docs/background.md prints, to the letter. */
const EXAMPLES: Readonly<Record<string, string>> = {
  triggers: `{ matched: 1, replayed: false }
{ matched: 1, replayed: true }
{ matched: 0, replayed: false }
Bob wrote. Sum it up.
{"from":"bob","subject":"Lunch?"}
`,
  monitors: `I will tell you when something happens.
user: Monitor "The log":
ERROR no space left on device
assistant: The deploy failed: the disk is full.
`,
  processes: `4:export default definePlugin({

`,
  tasks: `I have begun.
user: The task example.indexer:index (Index) is done. Its result:
{"pages":2,"words":6}
assistant: The index is there.
completed { pages: 2, words: 6 }
`,
  schedules: `I will look.
Heard: You asked to be woken with this message: Is the cake done?
active 0
ran
Heard: What is for lunch?
`,
};

test.each(Object.entries(EXAMPLES))(
  "the example %s of docs/background.md prints what it should",
  async (name, printed) => {
    const program = join(root, `dist/examples/host/${name}.js`);
    const { stdout, stderr } = await run(process.execPath, [...NODE_ARGS, program]);
    expect({ stdout, stderr }).toEqual({ stdout: printed, stderr: "" });
  },
);

test("docs/background.md shows its programs as they stand in the examples", async () => {
  const guide = await readFile(join(root, "docs/background.md"), "utf8");
  const blocks = [...guide.matchAll(/```ts\n\/\/ examples\/host\/(\S+)\.ts\n([\s\S]*?)```/g)];
  const programs = blocks.map(([, name]) => name).filter((name) => !name?.startsWith("plugins/"));
  expect([...new Set(programs)].sort()).toEqual(Object.keys(EXAMPLES).sort());
  for (const [, name, code] of blocks)
    expect(await readFile(join(root, `examples/host/${name}.ts`), "utf8")).toContain(code);
});
