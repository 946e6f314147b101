import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));

const SOURCES = ["src", "workers"].flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => join(root, folder, name)),
);

/** Files in which a line says this, with comments left out. */
function filesWith(pattern: RegExp): string[] {
  return SOURCES.filter((file) =>
    readFileSync(file, "utf8")
      .split("\n")
      .some((line) => !/^\s*(\*|\/[/*])/.test(line) && pattern.test(line)),
  ).map((file) => relative(root, file));
}

test("every thread is made in one place, and so is every child process", () => {
  expect(filesWith(/new Worker\(/)).toEqual(["src/runtime/threads/threads.ts"]);
  // Piscina makes the threads of tools by itself.
  expect(filesWith(/new Piscina\b/)).toEqual(["src/tools/pool/pool-threads.ts"]);
  expect(filesWith(/from "(node:)?(child_process|cluster)"|import\("(node:)?(child_process|cluster)"\)/)).toEqual([
    "src/processes/spawn.ts",
  ]);
});
