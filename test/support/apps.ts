import { cpSync, mkdirSync, realpathSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { scriptedModel, type TroupeOptions } from "troupe";
import { fixture, startTroupe, tempFolder } from "./runtime.js";

const troupe = fileURLToPath(new URL("../..", import.meta.url));

/** Writes files, by their paths beneath a folder. An object is written as JSON. */
function writeFiles(folder: string, files: Readonly<Record<string, string | object>>): void {
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), typeof content === "string" ? content : JSON.stringify(content));
  }
}

/** Puts a link at `path` beneath a folder. */
export function link(folder: string, path: string, target: string): void {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  symlinkSync(target, join(folder, path));
}

/** An application with Troupe installed and these files; its folder has no links in its path. */
export async function makeApp(files: Readonly<Record<string, string | object>> = {}): Promise<string> {
  const app = realpathSync(await tempFolder());
  writeFiles(app, { "package.json": { name: "app", type: "module" }, ...files });
  link(app, "node_modules/troupe", troupe);
  return app;
}

/** Puts the plugin that tries what it is asked to, or another module, into an application. */
export function addPlugin(app: string, path = "plugin.mjs", module = fixture("attempts/plugin.mjs")): string {
  mkdirSync(dirname(join(app, path)), { recursive: true });
  cpSync(module, join(app, path));
  cpSync(fixture("attempts/acts.mjs"), join(app, dirname(path), "acts.mjs"));
  return join(app, path);
}

/** Puts the tool that tries what it is asked to into an application. */
export const addTool = (app: string): string => addPlugin(app, "tool.mjs", fixture("attempts/tool.mjs"));

export type Attempt = readonly [act: string, on?: string];

/** What comes of these attempts, made by the tool `attempt` in one turn and in their order. */
export async function attempt(options: TroupeOptions, attempts: readonly Attempt[]): Promise<unknown[]> {
  const steps = attempts.map(([act, on = ""]) => ({ toolCalls: [{ tool: "attempt", args: { act, on } }] }));
  const troupe = await startTroupe({
    sessionWorkers: 1,
    model: scriptedModel({ turns: [[...steps, { text: "done" }]] }),
    ...options,
  });
  const { toolCalls } = await (await troupe.session("s")).turn("try");
  return toolCalls.map(({ output }) => (output.status === "success" ? output.value : output));
}
