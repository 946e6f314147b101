import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const dist = (path: string) => here(`./dist/src/${path}`);
/** Every runtime of the suite parks its sessions after each message, or its rows are written down; see docs/sessions.md. */
const wrapped = process.env.TROUPE_TEST_RESIDENCY === "one" || process.env.TROUPE_TEST_ROWS !== undefined;

// Integration tests import "troupe" as a user does: the built package, whose worker entries are real files.
export default defineConfig({
  resolve: {
    alias: [
      { find: /^troupe$/, replacement: wrapped ? here("./test/fixtures/parked/troupe.mjs") : dist("index.js") },
      { find: /^troupe\/plugin$/, replacement: dist("plugin/index.js") },
      { find: /^troupe\/testing$/, replacement: dist("testing/index.js") },
    ],
  },
  test: {
    include: ["test/**/*.test.ts"],
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    server: { deps: { external: [/\/dist\//] } },
  },
});
