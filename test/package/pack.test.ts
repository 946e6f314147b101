import { execFile } from "node:child_process";
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { tempFolder } from "../support/runtime.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

const PLUGIN = `
import { definePlugin, emitEvents } from "troupe/plugin";
export default definePlugin({
  id: "packed.greeter", version: "1.0.0", state: () => ({ greeted: 0 }),
  hooks: { beforeTurn: ({ state }) => emitEvents({ name: "greeted", payload: ++state.greeted }) },
});`;

const PROGRAM = `
import { createTroupe } from "troupe";
import { scriptedModel } from "troupe/testing";
const troupe = await createTroupe({
  model: scriptedModel({ turns: [[{ toolCalls: [{ tool: "double", args: { n: 21 } }] }, { text: "{tool_result}" }]] }),
  plugins: [{ module: new URL("./greeter.mjs", import.meta.url) }],
  tools: { double: { module: new URL("./double.mjs", import.meta.url) } },
  store: { path: "./data" },
});
const session = await troupe.session("packed");
const events = [];
const turn = session.turn("hi");
for await (const activity of turn) if (activity.type === "plugin_event") events.push(activity.event);
const { text, revision } = await turn;
await troupe.close();
console.log(JSON.stringify({ text, revision, events }));`;

const TOOL = `
import { defineTool } from "troupe";
export default defineTool({ description: "Doubles", inputSchema: { type: "object", properties: { n: { type: "number" } } }, execute: ({ n }) => n * 2 });`;

const TYPES = `
import { createTroupe, type Activity, TroupeError } from "troupe";
import { definePlugin } from "troupe/plugin";
import { httpFetch, type Model } from "troupe/model";
import { storeConformance } from "troupe/testing";
export const plugin = definePlugin({ id: "a", version: "1", state: () => ({ n: 0 }), hooks: { beforeTurn: ({ state }) => { state.n++; } } });
export const seen = (activity: Activity): string => activity.type;
export const named = ({ id }: Model): string => id;
export { createTroupe, httpFetch, storeConformance, TroupeError };`;

/** `npm test` has built dist already; the package is what npm would publish, installed into an empty folder. */
test("the published package runs a session with a plugin, a pool tool and the embedded store from an empty folder", async () => {
  const packed = await tempFolder();
  const folder = await tempFolder();
  await run("npm", ["pack", "--ignore-scripts", "--pack-destination", packed], { cwd: root });
  const [tarball] = await readdir(packed);
  await writeFile(join(folder, "package.json"), JSON.stringify({ name: "host", private: true, type: "module" }));
  await run("npm", ["install", "--no-audit", "--no-fund", "--prefer-offline", join(packed, tarball as string)], {
    cwd: folder,
  });
  await writeFile(join(folder, "greeter.mjs"), PLUGIN);
  await writeFile(join(folder, "double.mjs"), TOOL);
  await writeFile(join(folder, "program.mjs"), PROGRAM);
  const { stdout, stderr } = await run(process.execPath, ["program.mjs"], { cwd: folder });
  expect(stderr).toBe("");
  expect(JSON.parse(stdout)).toEqual({ text: "42", revision: 1, events: [{ name: "greeted", payload: 1 }] });

  await writeFile(join(folder, "types.ts"), TYPES);
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  const flags = [
    "--noEmit",
    "--strict",
    "--module",
    "nodenext",
    "--target",
    "es2022",
    "--lib",
    "es2023,esnext.disposable",
    "--types",
    "node",
    "--typeRoots",
    join(root, "node_modules/@types"),
  ];
  await run(process.execPath, [tsc, ...flags, "types.ts"], { cwd: folder });
}, 240_000);
