import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type Activity,
  createTroupe,
  type PluginEntry,
  scriptedModel,
  type Troupe,
  TroupeError,
  type TroupeOptions,
  type Turn,
  type TurnResult,
} from "troupe";
import { onTestFinished } from "vitest";

/** A runtime that is closed when the test ends, whatever happens. */
export async function startTroupe(options: TroupeOptions = {}): Promise<Troupe> {
  const troupe = await createTroupe({ drainMs: 500, ...options });
  onTestFinished(() => troupe.close());
  return troupe;
}

export async function tempFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "troupe-test-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

export function fixture(path: string): URL {
  return new URL(`../fixtures/${path}`, import.meta.url);
}

export function plugin(name: string): URL {
  return fixture(`plugins/${name}.mjs`);
}

/** The plugin that registers for each session what the session's options for it say; see registers.mjs. */
export function registers(id: string): URL {
  return new URL(`${plugin("registers")}?id=${id}`);
}

/**
 * A plugin that remembers on its thread what a test asks for later: however slow the machine, it is not replaced for
 * not answering.
 */
export function remembering(module: URL, entry: Omit<PluginEntry, "module"> = {}): PluginEntry {
  return { module, blockedMs: 600_000, ...entry };
}

/** For plugins in tests that are not about blocked threads: a machine short of cores starves a thread that does nothing wrong. */
export const PATIENT = { blockedMs: 60_000 } as const;

/**
 * For tests that count what happens to a session in memory: it stays there, also when the suite runs with
 * `TROUPE_TEST_RESIDENCY=one`.
 */
export const RESIDENT = { parkAfterMs: 600_000, maxResident: 1_000_000 } as const;

/** What node is given before a program of its own, so that it parks its sessions when the suite does. */
export const NODE_ARGS =
  process.env.TROUPE_TEST_RESIDENCY === "one" ? ["--import", fixture("parked/preload.mjs").href] : [];

/** One tool call, then an answer with its result. */
export const oneToolCall = (tool: string, args: object = {}) =>
  scriptedModel({ turns: [[{ toolCalls: [{ tool, args: args as never }] }, { text: "Result: {tool_result}" }]] });

export const EMPTY_OBJECT = { type: "object", properties: {} } as const;

export async function collect(turn: Turn): Promise<Activity[]> {
  const activities: Activity[] = [];
  for await (const activity of turn) activities.push(activity);
  return activities;
}

/** The TroupeError a promise rejects with; fails the test when it resolves. */
export async function refusalOf(promise: PromiseLike<unknown>): Promise<TroupeError> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof TroupeError) return error;
    throw new Error("It was refused, but not with a TroupeError.", { cause: error });
  }
  throw new Error("It was expected to be refused, and was not.");
}

/** Polls until something another thread does has happened; fails loudly instead of hanging. */
export async function until(what: string, condition: () => unknown): Promise<void> {
  for (let tries = 0; tries < 2_000; tries++) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`It never happened: ${what}`);
}

/** How many sessions are open, in memory or parked. */
export async function openSessions(troupe: Troupe): Promise<number> {
  const { resident, parked } = (await troupe.stats()).sessions;
  return resident + parked;
}

/** The value of a turn's first tool call, or its failure code. */
export function firstToolValue({ toolCalls }: Pick<TurnResult, "toolCalls">): unknown {
  const output = toolCalls[0]?.output;
  if (output?.status === "success") return output.value;
  return output?.status === "failure" ? output.failure.code : output?.status;
}
