import { spawnSync } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const LINES = [
  'import { randomUUID } from "node:crypto";',
  'import { setTimeout as sleep } from "node:timers/promises";',
  "export const found = [",
  "  Date.now(),",
  "  new Date(),",
  "  Math.random(),",
  "  process.nextTick(sleep),",
  "  setTimeout(sleep, 1),",
  "  setImmediate(sleep),",
  "  performance.now(),",
  "  randomUUID(),",
  "];",
];

test("the linter refuses time and chance in src/ and workers/, but for the clock itself", async () => {
  const folder = await realpath(await mkdtemp(join(tmpdir(), "troupe-lint-")));
  try {
    const { vcs: _, ...config } = JSON.parse(await readFile(join(root, "biome.json"), "utf8"));
    await writeFile(join(folder, "biome.json"), JSON.stringify(config));
    await cp(join(root, "lint"), join(folder, "lint"), { recursive: true });
    for (const file of ["src/wire/lane.ts", "workers/store.ts", "src/async/clock.ts"]) {
      await mkdir(join(folder, file, ".."), { recursive: true });
      await writeFile(join(folder, file), `${LINES.join("\n")}\n`);
    }
    const biome = join(root, "node_modules/.bin/biome");
    const { stdout } = spawnSync(biome, ["lint", "--reporter=github", "."], { cwd: folder, encoding: "utf8" });
    const told = [...stdout.matchAll(/file=([^,]+),line=(\d+)/g)].map(
      ([, file, line]) => `${relative(folder, file as string)}:${line}`,
    );
    const refused = [1, 2, 4, 5, 6, 7, 8, 9, 10];
    expect(told.sort()).toEqual(
      ["src/wire/lane.ts", "workers/store.ts"].flatMap((file) => refused.map((line) => `${file}:${line}`)).sort(),
    );
  } finally {
    await rm(folder, { recursive: true });
  }
});
