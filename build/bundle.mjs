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
const LMDB = "shared/lmdb.cjs";
const KEPT = "shared/session-thread";

/** ajv is required when a schema first needs it, so it is a file of its own; one file loads four times as fast as 60. */
const requireBundledAjv = {
  name: "require-bundled-ajv",
  transform: {
    filter: { id: /plugin\/schema\/json-schema\.ts$/ },
    // Lines stay where they are, so the source map still holds.
    handler: (code) => ({ code: code.replaceAll(/load\("ajv[^"]*"\)/g, `load("./${basename(AJV)}")`), map: null }),
  },
};

/**
 * Likewise lmdb, but only for the store's thread: where other people's code runs it may load lmdb itself, and two of lmdb's
 * JavaScript on one thread would share its native part.
 */
const requireBundledLmdb = {
  name: "require-bundled-lmdb",
  transform: {
    filter: { id: /store\/lmdb\/file\/root\.ts$/ },
    handler: (code) => ({ code: code.replace('("lmdb")', `("../${LMDB}")`), map: null }),
  },
};

/** Comlink's "main" is a UMD file, of which nothing can be left out; "module" is the same as an ES module. */
const resolve = { mainFields: ["module", "main"] };
/** lmdb has native parts, Piscina starts threads from its own files, the AI SDK and croner are the host's. */
const external = [/^node:/, "lmdb", "piscina", "croner", /^@ai-sdk\//];

const library = await rolldown({
  cwd: root,
  input: {
    index: "src/index.ts",
    plugin: "src/plugin/authors.ts",
    model: "src/model/authors.ts",
    subagents: "src/subagents/index.ts",
    testing: "src/testing/index.ts",
    "workers/plugin": "workers/plugin.ts",
    "workers/tool": "workers/tool.ts",
  },
  platform: "node",
  tsconfig: false,
  transform: { target: "node20" },
  resolve,
  external,
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

/** What `workers/kept-code.ts` loads imports by what it is given. Lines stay where they are, as above. */
const importHere = {
  name: "import-here",
  transform: {
    filter: { id: /\/src\/.*\.ts$/, code: /\bawait import\(/ },
    handler: (code) => ({ code: code.replaceAll(/\bawait import\(/g, "await importHere("), map: null }),
  },
};
const IMPORT_HERE = "const importHere = module.importHere ?? ((name) => import(name));";

// A thread starts sooner from CommonJS, and from one file. What session workers load besides (models, inline plugins) has
// the package's other files for itself: `TroupeError` knows its instances whichever copy they are of. On the threads of the
// store and of child processes there is no code but Troupe's own.
for (const { name, entry = `${name}.ts`, plugins = [], banner } of [
  { name: "workers/session" },
  { name: KEPT, entry: "workers/session-thread.ts", plugins: [requireBundledAjv, importHere], banner: IMPORT_HERE },
  { name: "workers/store", plugins: [requireBundledLmdb] },
  { name: "workers/processes" },
]) {
  const own = await rolldown({
    cwd: root,
    input: { [name]: entry },
    platform: "node",
    tsconfig: false,
    transform: { target: "node20" },
    resolve,
    external,
    plugins,
  });
  const options = {
    dir: folder,
    format: "cjs",
    sourcemap: true,
    comments: false,
    banner,
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

// The native part stays where npm puts it, and is found there by lmdb's own means.
const lmdb = await rolldown({
  cwd: root,
  input: { lmdb: "node_modules/lmdb/node-index.js" },
  platform: "node",
  external: [/^node:/],
  plugins: [
    {
      name: "lmdb-without-msgpackr",
      // For values that are not bytes; ours are.
      load: (id) => (id === "\0msgpackr" ? "export const Encoder = undefined;" : null),
      resolveId: (id) => (id === "msgpackr" ? "\0msgpackr" : null),
      transform: {
        filter: { id: /node_modules\/lmdb\/native\.js$/ },
        handler: (code) => ({
          code: code.replace("fileURLToPath(import.meta.url)", 'require.resolve("lmdb")'),
          map: null,
        }),
      },
    },
  ],
  // ordered-binary makes its fastest reader of strings by `eval`.
  checks: { eval: false },
});
output.push(
  ...(await lmdb.generate({ dir: folder, format: "cjs", exports: "named", comments: false, entryFileNames: LMDB }))
    .output,
);
await lmdb.close();

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
