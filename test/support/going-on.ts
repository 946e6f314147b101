import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Troupe, TroupeOptions, Turn } from "troupe";
import { expect } from "vitest";
import { openLmdbReader } from "../../dist/src/store/index.js";
import { fixture, plugin, refusalOf, tempFolder, until } from "./runtime.js";

/** What the model was asked with, as it wrote it down. */
export interface Asked {
  readonly step: number;
  readonly system: string;
  readonly tools: readonly string[];
  readonly history: readonly string[];
  readonly turn: readonly string[];
  readonly options?: Readonly<Record<string, unknown>>;
  readonly direct?: string;
}

/** A store, a model that writes down what it is asked with, and a plugin whose hooks say something else each time. */
export async function asking(tier: "inline" | "worker" = "inline", pluginOptions: object = {}, module = "prepares") {
  const folder = await tempFolder();
  const [file, hooks] = [join(folder, "asked"), join(folder, "hooks")];
  const linesOf = (path: string) => (existsSync(path) ? readFileSync(path, "utf8").split("\n").filter(Boolean) : []);
  const options: TroupeOptions = {
    sessionWorkers: 1,
    store: { path: join(folder, "store") },
    model: new URL(`${fixture("models/asked.mjs")}?file=${encodeURIComponent(file)}`),
    plugins: [
      {
        module: plugin(module),
        tier,
        options: { file: hooks, ...pluginOptions },
        ...(tier === "worker" && { permissions: "all" as const, blockedMs: 600_000 }),
      },
    ],
  };
  const path = join(folder, "store");
  return {
    options,
    path,
    model: (id: string) => new URL(`${fixture("models/asked.mjs")}?id=${id}&file=${encodeURIComponent(file)}`),
    asked: () => linesOf(file).map((line) => JSON.parse(line) as Asked),
    hooks: () => linesOf(hooks),
    /** What the journal of session "s" has, by key, of a store that nobody has open. */
    journal: () => {
      const reader = openLmdbReader(path);
      try {
        return reader?.journal("s").map(({ key, bytes }) => ({ key, bytes: bytes.length })) ?? [];
      } finally {
        reader?.close();
      }
    },
  };
}

/** Closes a runtime under a turn. */
export async function closedUnder(troupe: Troupe, turn: Turn): Promise<void> {
  const closed = troupe.close();
  expect(await refusalOf(turn)).toMatchObject({ code: "turn_suspended" });
  await closed;
}

/** Session "s", when so many turns of it are stored. */
export async function stored(troupe: Troupe, turns = 1) {
  const session = await troupe.session("s");
  await until("the turn is stored", async () => (await session.info()).turns === turns);
  return session;
}
