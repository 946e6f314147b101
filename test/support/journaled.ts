import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { createTroupe, type Troupe, type TroupeOptions } from "troupe";
import { onTestFinished } from "vitest";
import { EMPTY_OBJECT, fixture, tempFolder } from "./runtime.js";

/** A gate for each tool call, so that a test knows where the turn is. */
export function gates() {
  const open = new Map<string, (value: string) => void>();
  const calls: string[] = [];
  const tool = (name: string) => ({
    description: name,
    inputSchema: EMPTY_OBJECT,
    execute: () => {
      calls.push(name);
      return new Promise<string>((resolve) => open.set(name, resolve));
    },
  });
  const quick = (name: string) => ({
    description: name,
    inputSchema: EMPTY_OBJECT,
    execute: () => {
      calls.push(name);
      return name;
    },
  });
  return { tool, quick, calls, open: (name: string) => open.get(name)?.("through") };
}

/** Runtimes over one store and a model that counts its calls in a file. */
export async function counted(options: TroupeOptions = {}) {
  const folder = await tempFolder();
  const file = join(folder, "calls");
  const model = new URL(`${fixture("models/counts.mjs")}?file=${encodeURIComponent(file)}`);
  const all: TroupeOptions = {
    sessionWorkers: 1,
    drainMs: 100,
    store: { path: join(folder, "store") },
    model,
    ...options,
  };
  const lines = async () => (await readFile(file, "utf8").catch(() => "")).split("\n").filter(Boolean);
  const start = async (): Promise<Troupe> => {
    const troupe = await createTroupe(all);
    onTestFinished(() => troupe.close());
    return troupe;
  };
  return { start, lines, options: all };
}
