import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { kindsOfTests } from "./test/support/kinds-of-tests.js";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const door = (name: string) => here(`./dist/lib/${name}.js`);
/**
 * Every runtime of the suite parks its sessions after each message, or has its plugins in one group, or its rows are
 * written down; see docs/sessions.md.
 */
const wrapped =
  process.env.TROUPE_TEST_RESIDENCY === "one" ||
  process.env.TROUPE_TEST_GROUP === "one" ||
  process.env.TROUPE_TEST_ROWS !== undefined;

const { built, own } = kindsOfTests(here("."));

// Integration tests import "troupe" as a user does: the built package, whose worker entries are real files.
export default defineConfig({
  resolve: {
    alias: [
      { find: /^troupe$/, replacement: wrapped ? here("./test/fixtures/parked/troupe.mjs") : door("index") },
      { find: /^troupe\/plugin$/, replacement: door("plugin") },
      { find: /^troupe\/model$/, replacement: door("model") },
      { find: /^troupe\/subagents$/, replacement: door("subagents") },
      { find: /^troupe\/testing$/, replacement: door("testing") },
    ],
  },
  test: {
    projects: [
      // Nothing but modules: files share a process, which saves loading them again for each.
      {
        extends: true,
        test: { name: "unit", include: ["test/**/*.test.ts"], exclude: [...built, ...own], isolate: false },
      },
      // A process takes a third of a second to start, and runs a runtime's main thread the faster the longer it lives.
      { extends: true, test: { name: "built", include: built, isolate: false } },
      { extends: true, test: { name: "own process", include: own } },
    ],
    pool: "forks",
    // One more than the cores that tests are to need: many of them wait now and then.
    maxWorkers: 3,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    server: { deps: { external: [/\/dist\//] } },
  },
});
