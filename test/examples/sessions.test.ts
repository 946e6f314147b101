import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { NODE_ARGS } from "../support/runtime.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

test("the example of inspecting runs and prints what it should", async () => {
  const program = join(root, "dist/examples/host/inspecting.js");
  const { stdout, stderr } = await run(process.execPath, [...NODE_ARGS, program]);
  expect({ stdout, stderr }).toEqual({
    stdout: `posted → running
turn.begun → running
turn.stored → running
work.done → idle
park → parking
saved → parked
`,
    stderr: "",
  });
});

test("docs/sessions.md shows inspecting as it stands in the example", async () => {
  const guide = await readFile(join(root, "docs/sessions.md"), "utf8");
  const [, code = "nothing"] = /```ts\n\/\/ examples\/host\/inspecting\.ts\n([\s\S]*?)```/.exec(guide) ?? [];
  expect(await readFile(join(root, "examples/host/inspecting.ts"), "utf8")).toContain(code);
});

test("the example of rewinding runs and prints what it should", async () => {
  const program = join(root, "dist/examples/host/rewinding.js");
  const { stdout, stderr } = await run(process.execPath, [...NODE_ARGS, program]);
  expect(stderr).toBe("");
  expect(stdout).toBe(`4
[
  [ { type: 'text', text: 'Find me a hotel.' } ],
  [ { type: 'text', text: 'You said: Find me a hotel.' } ]
]
`);
});

test("docs/sessions.md shows rewinding as it stands in the example", async () => {
  const guide = await readFile(join(root, "docs/sessions.md"), "utf8");
  const [, code = "nothing"] = /```ts\n\/\/ examples\/host\/rewinding\.ts\n([\s\S]*?)```/.exec(guide) ?? [];
  expect(await readFile(join(root, "examples/host/rewinding.ts"), "utf8")).toContain(code);
});
