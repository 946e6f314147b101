import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

test("the README's first example runs as it stands there", async () => {
  const readme = await readFile(join(root, "README.md"), "utf8");
  const [program, plugin] = [...readme.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, code]) => code as string);
  // Inside the package, so that "troupe" is this package itself.
  const folder = await mkdtemp(join(root, "test/.readme-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, "program.mjs"), program as string);
  await writeFile(join(folder, "budget.js"), plugin as string);
  const { stdout, stderr } = await run(process.execPath, ["program.mjs"], { cwd: folder });
  expect({ stdout, stderr }).toEqual({ stdout: "It is sunny in Oslo.", stderr: "" });
});
