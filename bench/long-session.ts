import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createTroupe, type Session, scriptedModel, type Troupe, type TroupeOptions } from "../src/index.js";
import { INPUT, SCRIPT } from "./reference-turn.js";

/** A runtime for the reference turn with its hooks inline, in a folder of its own that is gone afterwards. */
export async function withTroupe<T>(options: TroupeOptions, run: (troupe: Troupe) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), "troupe-bench-"));
  try {
    await using troupe = await createTroupe({
      model: scriptedModel(SCRIPT),
      store: { path: folder },
      journal: false,
      ...options,
      plugins: [
        { module: new URL("./plugins/reference.js", import.meta.url), tier: "inline" },
        ...(options.plugins ?? []),
      ],
    });
    return await run(troupe);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Asks for turns until the session has had so many; four messages each. */
export async function grow(session: Session, turns: number, progress: (line: string) => void): Promise<void> {
  const { turns: had } = await session.info();
  for (let n = had; n < turns; n++) {
    if (n % 500 === 0) progress(`${session.id}: ${n} of ${turns} turns`);
    const { outcome } = await session.turn(INPUT);
    if (outcome.type !== "finished") throw new Error(`A turn ended with ${JSON.stringify(outcome)}.`);
  }
}
