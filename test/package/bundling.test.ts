import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { rolldown } from "rolldown";
import { expect, onTestFinished, test } from "vitest";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

const PROGRAM = `
import { createTroupe, TroupeError } from "troupe";
try {
  const troupe = await createTroupe();
  const session = await troupe.session("bundled");
  console.log((await session.turn("hi")).text);
  await troupe.close();
} catch (error) {
  console.log(error instanceof TroupeError, error.code, error.message);
}`;

/** Bundles the program as an application would, into a folder that knows nothing of Troupe but what is in the bundle. */
async function bundled({ external }: { external: readonly string[] }): Promise<string> {
  const source = await mkdtemp(join(root, "test/.docs-"));
  onTestFinished(() => rm(source, { recursive: true, force: true }));
  await writeFile(join(source, "program.mjs"), PROGRAM);
  const bundle = await rolldown({
    input: join(source, "program.mjs"),
    platform: "node",
    external: [...external, "lmdb", "piscina"],
  });
  const folder = external.length > 0 ? source : await mkdtemp(join(tmpdir(), "troupe-bundled-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await bundle.write({ dir: join(folder, "out"), format: "esm", entryFileNames: "app.mjs" });
  await bundle.close();
  const { stdout, stderr } = await run(process.execPath, [join(folder, "out/app.mjs")], { cwd: folder });
  expect(stderr).toBe("");
  return stdout;
}

test("an application bundled with Troupe left outside runs", async () => {
  expect(await bundled({ external: ["troupe"] })).toBe("You said: hi\n");
});

test("22: an application that has Troupe in its bundle, without the files of its threads, is told what to do, and ends", async () => {
  expect(await bundled({ external: [] })).toMatch(
    /^true installation_broken Troupe cannot start its threads: \S+\/dist\/lib\/workers\/\w+\.c?js is not a file of Troupe\. .*--external:troupe.*docs\/bundling\.md\.\n$/,
  );
});

test("errors of the package name the lines of its source", async () => {
  const program = `
    import { createTroupe } from "troupe";
    await createTroupe({ sessionWorkers: "many" }).catch((error) => console.log(error.stack));`;
  const { stdout } = await run(process.execPath, ["--enable-source-maps", "--input-type=module", "--eval", program], {
    cwd: root,
  });
  expect(stdout).toContain(join(root, "src/runtime/options/options.ts"));
});
