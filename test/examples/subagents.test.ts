import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { NODE_ARGS } from "../support/runtime.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

test("the program of docs/subagents.md stands there as it is, and prints what it should", async () => {
  const guide = await readFile(join(root, "docs/subagents.md"), "utf8");
  const [, code = "missing"] = /```ts\n\/\/ examples\/host\/agents\.ts\n([\s\S]*?)```/.exec(guide) ?? [];
  expect(await readFile(join(root, "examples/host/agents.ts"), "utf8")).toContain(code);
  const { stdout, stderr } = await run(process.execPath, [...NODE_ARGS, join(root, "dist/examples/host/agents.js")]);
  expect(stderr).toBe("");
  // The agent works beside the session's turn: which of the two is over first is chance.
  const [first, second, ...rest] = stdout.split("\n");
  expect([first, second].sort()).toEqual(["agent: It rains in Oslo.", "session: Somebody looks it up."]);
  expect(rest).toEqual([
    "session: Heard: The task troupe.subagents:… (oslo) is done. Its result:",
    "It rains in Oslo.",
    '{"agent":"oslo","answer":"The sun will shine."}',
    '{"closed":1}',
    "",
  ]);
});
