import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const dist = (path: string) => fileURLToPath(new URL(`./dist/src/${path}`, import.meta.url));

// Integration tests import "troupe" as a user does: the built package, whose worker entries are real files.
export default defineConfig({
  resolve: {
    alias: [
      { find: /^troupe$/, replacement: dist("index.js") },
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
