import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { NODE_ARGS } from "../support/runtime.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

test("the example of retries and fallbacks runs against its own providers and prints what it should", async () => {
  const { stdout, stderr } = await run(process.execPath, [...NODE_ARGS, join(root, "dist/examples/host/retrying.js")]);
  expect({ stdout, stderr }).toEqual({
    stdout: `attempt 1: model_server_error
Hello. (2 attempts)
attempt 1: model_server_error
the next model is asked
Hello from the second. (3 attempts)
`,
    stderr: "",
  });
});

describe("docs/models.md", async () => {
  const guide = await readFile(join(root, "docs/models.md"), "utf8");
  const shown = [...guide.matchAll(/```ts\n\/\/ (examples\/host\/\S+\.ts)\n([\s\S]*?)```/g)];

  test.each(shown.map(([, file, code]) => [file as string, code as string]))(
    "shows %s as it stands there",
    async (file, code) => {
      expect(await readFile(join(root, file), "utf8")).toContain(code);
    },
  );

  test("shows the examples there are", () => {
    expect(new Set(shown.map(([, file]) => file))).toEqual(
      new Set(["examples/host/retrying.ts", "examples/host/models/local.ts"]),
    );
  });
});
