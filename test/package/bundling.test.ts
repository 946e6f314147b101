import { execFile } from "node:child_process";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import module from "node:module";
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

/** A plugin that runs in the session worker says what it is refused with, and by an error of its own. */
const INLINE = `
import { definePlugin, TroupeError } from "troupe/plugin";
export default definePlugin({ id: "test.inline", version: "1.0.0", hooks: { async beforeTurn({ host }) {
  const refused = await host.createSession({ sessionId: "" }).catch((error) => error);
  throw new TroupeError("over_quota", [refused instanceof TroupeError, refused.code].join());
} } });`;
const REFUSED = `
import { createTroupe, TroupeError } from "troupe";
const troupe = await createTroupe({ plugins: [{ module: new URL("inline.mjs", import.meta.url), tier: "inline" }] });
const session = await troupe.session("s");
await session.turn("hi").catch(({ cause }) => console.log(cause instanceof TroupeError, cause.code, cause.message));
await troupe.close();`;

/** A plugin that may write to the temporary folder could write what the next session worker runs. */
const WRITES = `
import { tmpdir } from "node:os";
import { createTroupe } from "troupe";
const plugin = { module: new URL("inline.mjs", import.meta.url), permissions: { write: [GRANT] } };
const troupe = await createTroupe({ plugins: [plugin] });
await (await troupe.session("s")).turn("hi").catch(({ code }) => console.log(code));
await troupe.close();`;

const STACK = `
import { createTroupe } from "troupe";
await createTroupe({ model: new URL("file:///nowhere/model.js") }).catch((error) => console.log(error.stack));`;

/** Runs the program twice, with a temporary folder of its own; answers what it printed and what is left there. */
async function twice(
  program: string,
  { args = [], env = {} }: { readonly args?: readonly string[]; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<[said: string[], left: string[]]> {
  const folder = await mkdtemp(join(root, "test/.docs-"));
  const temporary = await mkdtemp(join(tmpdir(), "troupe-kept-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  onTestFinished(() => rm(temporary, { recursive: true, force: true }));
  await writeFile(join(folder, "inline.mjs"), INLINE);
  await writeFile(join(folder, "refused.mjs"), REFUSED);
  await writeFile(join(folder, "stack.mjs"), STACK);
  for (const [name, grant] of Object.entries(GRANTS))
    await writeFile(join(folder, `${name}.mjs`), WRITES.replace("GRANT", grant));
  const once = () =>
    run(process.execPath, [...args, join(folder, program)], {
      env: { ...process.env, ...env, TMPDIR: temporary },
    });
  const said = [(await once()).stdout, (await once()).stdout];
  return [said, (await readdir(temporary)).map((name) => name.replace(/-\d+$/, ""))];
}

const SAID = "true over_quota true,invalid_session_id\n";
const FAILED = "plugin_prepare_turn\n";
const KEEPS = "enableCompileCache" in module ? "node-compile-cache" : "troupe-compile-cache";
const KEPT = KEEPS === "node-compile-cache" ? KEEPS : `${KEEPS}-${process.getuid?.()}`;
/** What a plugin may write, as its program says it. */
const GRANTS = {
  whole: "tmpdir()",
  star: 'tmpdir() + "/*"',
  within: `tmpdir() + "/${KEPT}/x"`,
  elsewhere: 'tmpdir() + "/mine"',
};

test("what a session worker's code was compiled to is kept for the next start, where its plugins run as in the first", async () => {
  expect(await twice("refused.mjs")).toEqual([[SAID, SAID], [KEEPS]]);
});

test("no compiled code is kept when Node is told to keep none", async () => {
  expect(await twice("refused.mjs", { env: { NODE_DISABLE_COMPILE_CACHE: "1" } })).toEqual([[SAID, SAID], []]);
});

test.each([
  ["the temporary folder", "whole"],
  ["whatever begins as compiled code does", "star"],
  ["a file of compiled code", "within"],
])("compiled code is neither kept nor run where a plugin may write %s", async (_, program) => {
  expect(await twice(`${program}.mjs`)).toEqual([[FAILED, FAILED], []]);
});

test("compiled code is kept where a plugin may write elsewhere in the temporary folder", async () => {
  expect(await twice("elsewhere.mjs")).toEqual([[FAILED, FAILED], [KEEPS]]);
});

test("a session worker's stacks name the lines of the source when source maps are asked for", async () => {
  const [said] = await twice("stack.mjs", { args: ["--enable-source-maps"] });
  for (const stack of said) {
    expect(stack).toMatch(/^TroupeError: There is no model module at file:/);
    expect(stack).toContain(join(root, "src/wire/import-module.ts"));
  }
});
