import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { openLmdb, sealEnvelope } from "../../../src/store/index.js";
import { commit, component, turn, UNCLAIMED, write } from "../commits.js";

const FIXTURE = fileURLToPath(new URL("../fixtures/open-damaged.mjs", import.meta.url));
/** More places in a longer run: TROUPE_DAMAGE_PLACES=50000 npx vitest run test/store/damage.test.ts */
const PLACES = Number(process.env.TROUPE_DAMAGE_PLACES ?? 1_000);
const SEED = Number(process.env.TROUPE_DAMAGE_SEED ?? 20_261_116);
const PAGE = 4_096;

type Damage =
  | { readonly kind: "flip"; readonly at: number; readonly bit: number }
  | { readonly kind: "zero"; readonly at: number; readonly length: number }
  | { readonly kind: "cut"; readonly at: number };

interface Outcome {
  readonly i: number;
  /** Codes with which the store, or a session of it, was refused. */
  readonly refused: readonly string[];
  /** Sessions that were read as something they never were. */
  readonly wrong: readonly string[];
}

/** A folder in memory where there is one: it is opened thousands of times, and nothing in it has to last. */
function scratchFolder(): string {
  const folder = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "troupe-damage-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A store with trees of several levels, large values, free pages, and a journal. */
function makeStore(): string {
  const path = scratchFolder();
  const backend = openLmdb(path);
  const sessions = Array.from({ length: 24 }, (_, i) => `session-${i}`);
  for (let revision = 1; revision <= 5; revision++) {
    for (const id of sessions) {
      const state = component(...Array.from({ length: 700 }, (_, i) => (i * revision + sessions.indexOf(id)) % 256));
      const large = component(...Array.from({ length: 6_000 }, (_, i) => (i + revision) % 256));
      const one = turn(id, revision, [state, large]);
      const components = { "plugin:test": state.hash, blob: large.hash };
      commit(backend, { ...one, head: { ...one.head, components } });
    }
  }
  const outcome = (key: string) => ({
    kind: "record" as const,
    entry: {
      sessionId: "session-7",
      turnId: "t6",
      key,
      ...sealEnvelope({ key }),
      bytes: new Uint8Array(200).fill(7),
      expectedRevision: 5,
      epoch: UNCLAIMED,
    },
  });
  for (const key of ["model:1", "tool:1", "tool:2"]) write(backend, outcome(key));
  backend.close();
  rmSync(join(path, "lock.mdb"));
  return path;
}

/** The same list for the same seed: anywhere, in the meta pages, and where pages say what is in them. */
function damagesOf(length: number): Damage[] {
  let state = SEED;
  const random = (below: number) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
  const places = [
    () => random(length),
    () => random(length),
    () => PAGE * random(2) + random(192),
    () => PAGE * random(length / PAGE) + random(24),
    () => PAGE * random(length / PAGE) + random(160),
  ];
  return Array.from({ length: PLACES }, (_, i): Damage => {
    const at = places[i % places.length]?.() ?? 0;
    if (i % 10 === 8) return { kind: "zero", at: at - (at % 512), length: 512 };
    if (i % 10 === 9) return { kind: "cut", at };
    return { kind: "flip", at, bit: random(8) };
  });
}

interface Outcomes {
  readonly outcomes: Outcome[];
  readonly died: Damage[];
}

/** Runs the damages in two child processes, half of them each. */
async function outcomesOf(path: string, damages: readonly Damage[]): Promise<Outcomes> {
  const half = Math.ceil(damages.length / 2);
  const [one, other] = await Promise.all([runAll(path, damages.slice(0, half)), runAll(path, damages.slice(half))]);
  const rest = other.outcomes.map((outcome) => ({ ...outcome, i: outcome.i + half }));
  return { outcomes: [...one.outcomes, ...rest], died: [...one.died, ...other.died] };
}

/** A child that dies is named by its last damage, and the rest go on without it. */
async function runAll(path: string, damages: readonly Damage[]): Promise<Outcomes> {
  const scratch = scratchFolder();
  const file = join(scratch, "damages.json");
  writeFileSync(file, JSON.stringify(damages));
  const outcomes: Outcome[] = [];
  const died: Damage[] = [];
  for (let next = 0; next < damages.length; ) {
    const child = spawn(process.execPath, [FIXTURE, path, scratch, file, String(next)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const exited = once(child, "exit");
    for await (const line of createInterface({ input: child.stdout })) outcomes.push(JSON.parse(line) as Outcome);
    const [code] = await exited;
    next = (outcomes.at(-1)?.i ?? -1) + 1;
    if (code !== 0) {
      died.push(damages[next] as Damage);
      outcomes.push({ i: next, refused: ["died"], wrong: [] });
      next++;
    }
    if (died.length > 5) break;
  }
  return { outcomes, died };
}

// quality §3.1: corruption is injected at raw bytes and must be a typed refusal, never a wrong value or a hang
// It takes seconds, but not on a crowded machine.
const PATIENCE = 240_000 * Math.ceil(PLACES / 1_000);
test(
  `of ${PLACES} damages to its file, none makes a store say something wrong, hang, or end the process`,
  async () => {
    const path = makeStore();
    const length = readFileSync(join(path, "data.mdb")).length;
    expect(length).toBeGreaterThan(200_000);
    const damages = damagesOf(length);
    const { outcomes, died } = await outcomesOf(path, damages);
    expect(died).toEqual([]);
    expect(outcomes).toHaveLength(PLACES);
    const wrong = outcomes.filter((outcome) => outcome.wrong.length > 0);
    expect(wrong.map((outcome) => ({ ...outcome, damage: damages[outcome.i] }))).toEqual([]);
    // Both ends are met: damage that is found, of the file and of single records, and damage that does not matter.
    const codes = new Set(outcomes.flatMap(({ refused }) => refused));
    expect([...codes]).toEqual(expect.arrayContaining(["store_damaged", "history_damaged", "component_damaged"]));
    expect(outcomes.filter(({ refused }) => refused.length === 0).length).toBeGreaterThan(PLACES / 20);
    expect(outcomes.filter(({ refused }) => refused.length > 0).length).toBeGreaterThan(PLACES / 4);
  },
  PATIENCE,
);
