// npm run test:rows: runs the suite with sessions in memory and with sessions parked after every message, and compares
// what every store is left with. What differs is run again in memory: work that does not leave the same rows twice (races,
// clocks, drawn names) cannot tell. Exits with 1 when something else is left that is not listed below.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Tests that differ for a reason. */
const EXPLAINED = [
  // Their plugins write down what parking is: that the session was brought back.
  /the example opened\.js/,
  /registration\.test\.ts > (before all|.* sessionReady comes)/,
  // Two runtimes at once, in an order of their own; a thread that is killed at any moment; a deadline that passes.
  /crash-matrix\.test\.ts/,
  /store-death\.test\.ts/,
  /a capture whose answer came too late/,
  // Two calls at once: their hooks see whichever is done first.
  /tool-controls\.test\.ts > before all/,
  // Who is served first when several ask at once, and which of them the limit stops.
  /shared-state\.test\.ts > a tenant's limit > is counted over/,
  /child-limits\.test\.ts > .* spend what is left, whoever asks first/,
  // How far the call has come that the turn is stopped in.
  /stopped-after-restart\.test\.ts > .* goes on in the next runtime is stopped by/,
  // As many turns as it takes until the reader has left a thousand times.
  /observe\.test\.ts > .* leaves a thousand times at random/,
  // The number of a thread is the tool's result.
  /tools\.test\.ts > tools > a pool tool/,
  // A plugin writes down the fingerprint of what was last captured of it, before anything of its session was stored.
  /is each kind's composite/,
];

const folder = mkdtempSync(join(tmpdir(), "troupe-rows-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

/** The rows of every store, by test and runtime. */
async function rowsOf(name, files, env = {}) {
  const file = join(folder, name);
  console.log(`${name}: ${files.length === SUITE.length ? "the suite" : `${files.length} files`} …`);
  const started = performance.now();
  const vitest = spawn("npx", ["vitest", "run", "--silent", "--reporter=dot", ...files], {
    env: { ...process.env, ...env, TROUPE_TEST_ROWS: file },
    stdio: "ignore",
  });
  // Tests that are about a store in memory fail with a folder; what they leave is compared all the same.
  await new Promise((resolve) => vitest.on("exit", resolve));
  const stores = new Map();
  for (const line of readFileSync(file, "utf8").trimEnd().split("\n")) {
    const { test, nth, rows } = JSON.parse(line);
    stores.set(`${test} #${nth}`, plain(rows));
  }
  console.log(`  ${stores.size} stores, ${Math.round((performance.now() - started) / 1000)} s`);
  return stores;
}

/** Children that were not named have a name that was drawn, and rows are in the order of their names. */
function plain(rows) {
  const lines = Object.entries(rows).flatMap(([table, of]) =>
    Object.entries(of).map(([key, bytes]) => `${table} ${key} ${bytes}`.replace(/\/[0-9a-f]{8}(?![0-9a-f])/g, "/…")),
  );
  return lines.sort().join("\n");
}

const SUITE = ["test/integration", "test/examples"];
const inMemory = await rowsOf("in memory", SUITE);
const parked = await rowsOf("parked", SUITE, { TROUPE_TEST_RESIDENCY: "one" });
const both = [...inMemory.keys()].filter((store) => parked.has(store));
const differ = both.filter((store) => inMemory.get(store) !== parked.get(store));
const files = [...new Set(differ.map((store) => store.slice(0, store.indexOf(" > "))))];
const again = files.length === 0 ? new Map() : await rowsOf("in memory again", files);
const steady = differ.filter((store) => again.get(store) === inMemory.get(store));
const unexplained = steady.filter((store) => !EXPLAINED.some((known) => known.test(store)));
console.log(`
${both.length} stores compared: ${both.length - differ.length} the same to the byte,
${differ.length - steady.length} not the same twice in memory either,
${steady.length - unexplained.length} different for a reason that test/rows.mjs gives,
${unexplained.length} different${unexplained.map((store) => `\n  ${store}`).join("")}`);
process.exitCode = unexplained.length === 0 ? 0 : 1;
