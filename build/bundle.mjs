// Bundles what `tsc` has checked: the package's doors and the entries of its threads, with the code they share in chunks
// of their own. A thread then loads some ten files instead of two hundred, and a class such as TroupeError is one class
// for a worker and for the plugin it runs. Files that did not change are left alone: tests and programs may be running.
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { rolldown } from "rolldown";

const root = fileURLToPath(new URL("..", import.meta.url));
const folder = join(root, "dist/lib");
const AJV = "shared/ajv.cjs";

/** ajv is required when a schema first needs it, so it is a file of its own; one file loads four times as fast as 60. */
const requireBundledAjv = {
  name: "require-bundled-ajv",
  transform: {
    filter: { id: /plugin\/schema\/json-schema\.ts$/ },
    // Lines stay where they are, so the source map still holds.
    handler: (code) => ({ code: code.replaceAll(/load\("ajv[^"]*"\)/g, `load("./${basename(AJV)}")`), map: null }),
  },
};

const library = await rolldown({
  cwd: root,
  input: {
    index: "src/index.ts",
    plugin: "src/plugin/authors.ts",
    model: "src/model/authors.ts",
    subagents: "src/subagents/index.ts",
    testing: "src/testing/index.ts",
    "workers/session": "workers/session.ts",
    "workers/plugin": "workers/plugin.ts",
    "workers/tool": "workers/tool.ts",
  },
  platform: "node",
  tsconfig: false,
  transform: { target: "node20" },
  // Comlink's "main" is a UMD file, of which nothing can be left out; "module" is the same as an ES module.
  resolve: { mainFields: ["module", "main"] },
  // lmdb has native parts, Piscina starts threads from its own files, the AI SDK and croner are the host's.
  external: [/^node:/, "lmdb", "piscina", "croner", /^@ai-sdk\//],
  plugins: [requireBundledAjv],
});
const { output } = await library.generate({
  dir: folder,
  format: "esm",
  sourcemap: true,
  // The sources, comments included, are in the source maps.
  comments: false,
  entryFileNames: "[name].js",
  chunkFileNames: "shared/[name].js",
  // Every file costs a thread about a millisecond, and so do 30 KB that V8 reads. All threads need `core`; a plugin's needs
  // nothing else until it is called, and `calls` from then on.
  codeSplitting: {
    groups: [
      {
        name: "core",
        test: /src\/(plugin\/|wire\/calls|async\/clock|wire\/confine|session\/plugin-thread\/(serve-plugin|confine-thread|thread-limits))/,
        priority: 2,
      },
      { name: "calls", test: /src\/(session\/plugin-thread\/|tools\/tool-code\/|wire\/)/, priority: 1 },
    ],
  },
});
await library.close();

// No code but Troupe's own runs on the store's thread and on that of child processes, so their classes need not be one with
// anybody's: each is a file of its own, and CommonJS, which a thread starts sooner from.
for (const name of ["workers/store", "workers/processes"]) {
  const own = await rolldown({
    cwd: root,
    input: { [name]: `${name}.ts` },
    platform: "node",
    tsconfig: false,
    transform: { target: "node20" },
    external: [/^node:/, "lmdb"],
  });
  const options = {
    dir: folder,
    format: "cjs",
    sourcemap: true,
    comments: false,
    entryFileNames: "[name].cjs",
  };
  output.push(...(await own.generate(options)).output);
  await own.close();
}

const ajv = await rolldown({
  cwd: root,
  input: "ajv",
  platform: "node",
  plugins: [
    {
      name: "ajv-of-both-drafts",
      load: (id) => (id === "\0ajv" ? 'export { Ajv } from "ajv"; export { Ajv2020 } from "ajv/dist/2020.js";' : null),
      resolveId: (id, importer) => (id === "ajv" && importer === undefined ? "\0ajv" : null),
    },
  ],
});
output.push(...(await ajv.generate({ dir: folder, format: "cjs", entryFileNames: AJV })).output);
await ajv.close();

const files = new Map(output.map((file) => [file.fileName, file.type === "chunk" ? inAscii(file.code) : file.source]));
files.set("LICENSES.md", await licenses(output.flatMap((file) => (file.type === "chunk" ? file.moduleIds : []))));
for (const [name, content] of files) {
  const path = join(folder, name);
  if ((await readFile(path, "utf8").catch(() => undefined)) === content) continue;
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, content);
}
for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
  const path = join(entry.parentPath, entry.name);
  if (entry.isFile() && !files.has(path.slice(folder.length + 1))) await rm(path);
}

/**
 * One character beyond Latin-1, in some message's text, makes V8 keep and read the whole file at two bytes a character
 * (some 5 ms of processor at a start). The comments are gone, so every such character stands in a text or a pattern, where
 * its escape means the same.
 */
function inAscii(code) {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: all that is not ASCII is meant.
  return code.replaceAll(/[^\x00-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** The licences of the packages that were bundled. */
async function licenses(modules) {
  const names = modules.map((id) => /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1]);
  const texts = [...new Set(names)].filter((name) => name !== undefined).sort();
  const pages = texts.map(async (name) => {
    const [file] = (await readdir(join(root, "node_modules", name))).filter((entry) => /^licen[cs]e/i.test(entry));
    if (file === undefined) return `## ${name}\n\nSee the package ${name}.\n`;
    return `## ${name}\n\n${await readFile(join(root, "node_modules", name, file), "utf8")}`;
  });
  return `# Packages bundled into these files\n\n${(await Promise.all(pages)).join("\n")}`;
}
