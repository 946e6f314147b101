import { fileURLToPath } from "node:url";
import { configDefaults, defineConfig } from "vitest/config";
import { needsBuild } from "./test/support/needs-build.js";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const built = (name: string) => here(`./dist/lib/${name}.js`);
/** Every runtime of the suite parks its sessions after each message, or its rows are written down; see docs/sessions.md. */
const wrapped = process.env.TROUPE_TEST_RESIDENCY === "one" || process.env.TROUPE_TEST_ROWS !== undefined;

// Integration tests import "troupe" as a user does: the built package, whose worker entries are real files.
export default defineConfig({
  resolve: {
    alias: [
      { find: /^troupe$/, replacement: wrapped ? here("./test/fixtures/parked/troupe.mjs") : built("index") },
      { find: /^troupe\/plugin$/, replacement: built("plugin") },
      { find: /^troupe\/testing$/, replacement: built("testing") },
    ],
  },
  test: {
    include: ["test/**/*.test.ts"],
    exclude: [...configDefaults.exclude, ...(process.env.TROUPE_TEST_UNIT === "1" ? needsBuild(here(".")) : [])],
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    server: { deps: { external: [/\/dist\//] } },
  },
});
