import { mkdirSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { addPlugin, attempt, link, makeApp } from "../../support/apps.js";
import { plugin, tempFolder } from "../../support/runtime.js";

const DENIED = "ERR_ACCESS_DENIED";

test("a plugin in the application's own package reads what lies beside it, and neither dotfiles nor the store", async () => {
  const app = await makeApp({
    "notes.txt": "notes",
    "lib/deep/data.txt": "data",
    ".env": "SECRET=1",
    ".git/config": "[core]",
    "lib/.env": "beneath an entry",
  });
  const store = join(app, "data");
  const outcome = await attempt({ plugins: [{ module: addPlugin(app) }], store: { path: store } }, [
    ["read", join(app, "notes.txt")],
    ["read", join(app, "lib/deep/data.txt")],
    ["read", join(app, ".env")],
    ["read", join(app, ".git/config")],
    ["read", join(store, "data.mdb")],
    ["list", store],
    ["write", join(app, "notes.txt")],
    ["write", join(store, "data.mdb")],
  ]);
  expect(outcome).toEqual(["notes", "data", DENIED, DENIED, DENIED, DENIED, DENIED, DENIED]);
});

test("what contains the store is not readable, and a store that is made later is not either", async () => {
  const app = await makeApp({ "var/report.txt": "report", "src/notes.txt": "notes" });
  const plugins = [{ module: addPlugin(app, "src/plugin.mjs") }];
  const outcome = await attempt({ plugins, store: { path: join(app, "var/later/store") } }, [
    ["read", join(app, "src/notes.txt")],
    ["read", join(app, "var/report.txt")],
    ["read", join(app, "var/later/store/data.mdb")],
  ]);
  expect(outcome).toEqual(["notes", DENIED, DENIED]);
});

test("a plugin that lies in the same folder as the store reads its own side of it only", async () => {
  const app = await makeApp({ "var/notes.txt": "notes" });
  const plugins = [{ module: addPlugin(app, "var/plugin.mjs") }];
  const outcome = await attempt({ plugins, store: { path: join(app, "var/store") } }, [
    ["read", join(app, "var/notes.txt")],
    ["read", join(app, "var/store/data.mdb")],
  ]);
  expect(outcome).toEqual(["notes", DENIED]);
});

test.each(["outside of the package", "in it"])(
  "a store behind a link that leads to a place %s is readable by neither name",
  async (where) => {
    const app = await makeApp({ "notes.txt": "notes", "place/notes.txt": "notes" });
    const elsewhere = where === "in it" ? join(app, "place") : realpathSync(await tempFolder());
    link(app, "data", elsewhere);
    const outcome = await attempt({ plugins: [{ module: addPlugin(app) }], store: { path: join(app, "data") } }, [
      ["read", join(app, "data/data.mdb")],
      ["read", join(elsewhere, "data.mdb")],
      ["read", join(app, "notes.txt")],
    ]);
    expect(outcome).toEqual([DENIED, DENIED, "notes"]);
  },
);

test("a link in the package that leads out of it, or to a dotfile, is not followed", async () => {
  const app = await makeApp({ ".env": "SECRET=1", "lib/notes.txt": "notes" });
  link(app, "root", "/");
  link(app, "environment", join(app, ".env"));
  link(app, "library", join(app, "lib"));
  const outcome = await attempt({ plugins: [{ module: addPlugin(app) }] }, [
    ["read", join(app, "root/etc/hostname")],
    ["read", join(app, "environment")],
    ["read", join(app, "library/notes.txt")],
  ]);
  expect(outcome).toEqual([DENIED, DENIED, "notes"]);
});

test("a plugin named by a link, or in a folder with a dot, is loaded from where it really is", async () => {
  const app = await makeApp({ ".plugins/notes.txt": "notes", ".env": "SECRET=1" });
  addPlugin(app, ".plugins/real.mjs");
  link(app, "linked/plugin.mjs", join(app, ".plugins/real.mjs"));
  const outcome = await attempt({ plugins: [{ module: join(app, "linked/plugin.mjs") }] }, [
    ["read", join(app, ".plugins/notes.txt")],
    ["read", join(app, ".env")],
  ]);
  expect(outcome).toEqual(["notes", DENIED]);
});

test("a plugin imports the packages of its workspace that it depends on, and reads no other", async () => {
  const repo = await makeApp({
    "packages/plugin/package.json": { name: "@acme/plugin", dependencies: { "@acme/shared": "*" } },
    "packages/shared/package.json": {
      name: "@acme/shared",
      type: "module",
      exports: "./index.js",
      peerDependencies: { "@acme/deep": "*" },
    },
    "packages/shared/index.js": 'export { default } from "@acme/deep";',
    "packages/shared/.env": "SECRET=1",
    "packages/deep/package.json": { name: "@acme/deep", type: "module", exports: "./index.js" },
    "packages/deep/index.js": 'export default "deep";',
    "packages/other/package.json": { name: "@acme/other" },
    "packages/other/notes.txt": "notes",
  });
  for (const name of ["shared", "deep", "other"])
    link(repo, `node_modules/@acme/${name}`, join(repo, "packages", name));
  const outcome = await attempt({ plugins: [{ module: addPlugin(repo, "packages/plugin/plugin.mjs") }] }, [
    ["import", "@acme/shared"],
    ["read", join(repo, "packages/shared/.env")],
    ["read", join(repo, "packages/other/notes.txt")],
  ]);
  expect(outcome).toEqual(["deep", DENIED, DENIED]);
});

test("plugins of one group in two packages are both loaded", async () => {
  const [first, second] = [await makeApp({ "notes.txt": "first" }), await makeApp({ "notes.txt": "second" })];
  const plugins = [
    { module: addPlugin(first), group: "ours" },
    { module: addPlugin(second, "counter.mjs", plugin("counter")), group: "ours" },
  ];
  const outcome = await attempt({ plugins }, [
    ["read", join(first, "notes.txt")],
    ["read", join(second, "notes.txt")],
  ]);
  expect(outcome).toEqual(["first", "second"]);
});

test("a store in node_modules is readable as little as one elsewhere, and its neighbours are packages as before", async () => {
  const app = await makeApp({
    "node_modules/left/package.json": { name: "left", type: "module", exports: "./index.js" },
    "node_modules/left/index.js": 'export default "left";',
  });
  mkdirSync(join(app, "node_modules/.cache"));
  const store = join(app, "node_modules/.cache/troupe");
  const outcome = await attempt({ plugins: [{ module: addPlugin(app) }], store: { path: store } }, [
    ["import", "left"],
    ["read", join(store, "data.mdb")],
  ]);
  expect(outcome).toEqual(["left", DENIED]);
});
