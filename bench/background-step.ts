import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createTroupe, scriptedModel, type Troupe } from "troupe";
import type { BenchResult, BenchRun } from "./measuring/report.js";
import { compare, middle, takeRounds } from "./measuring/sampling.js";

/** Steps of a task, and tool calls of a turn, that are measured at once. */
const COUNT = 30;
const PLUGIN = { module: new URL("./plugins/steps.js", import.meta.url) };
/** Thirty answers that call the tool, one call each, and one that does not. */
const SCRIPT = {
  turns: [[...Array.from({ length: COUNT }, () => ({ toolCalls: [{ tool: "work", args: {} }] })), { text: "Done." }]],
};

/** A step of a task beside a tool call of a turn with a journal: the same function, on a thread of the same plugin. */
export async function step(run: BenchRun): Promise<BenchResult> {
  const folder = await mkdtemp(join(tmpdir(), "troupe-bench-"));
  try {
    await using troupe = await createTroupe({
      model: scriptedModel(SCRIPT),
      store: { path: folder },
      sessionWorkers: 1,
      plugins: [PLUGIN],
    });
    const rounds = await takeRounds(
      [
        { name: "step", measure: () => perStep(troupe) },
        { name: "tool", measure: () => perCall(troupe) },
      ],
      {
        budgetMs: run.quick ? 5_000 : 20_000,
        slotMs: 0,
        least: 10,
        onRound: (n) => n % 10 === 0 && run.progress(`steps: round ${n}`),
      },
    );
    const { middle: ratio, low, high } = compare(rounds, (round) => round.step / round.tool);
    const us = { step: middle(rounds, "step"), tool: middle(rounds, "tool") };
    return {
      ratios: { step_vs_tool: ratio },
      samples: { steps: { rounds: rounds.length, low, high, us } },
      tables: [
        {
          title: `${COUNT} one after another, each stored and synced before the next`,
          columns: ["", "us each"],
          rows: [
            ["steps of a task", us.step],
            ["tool calls of a turn with a journal", us.tool],
          ],
        },
      ],
      notes: [
        `${rounds.length} rounds, compared round by round: 10 % of them below ${low.toFixed(2)}, 10 % above ${high.toFixed(2)}. A task from its being asked for to its end, a turn from its input to its commit, each in a session of its own, divided by ${COUNT}. The model of the turn answers at once; its calls are in the turn's time.`,
      ],
    };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

let sessions = 0;

async function perStep(troupe: Troupe): Promise<number> {
  const session = await troupe.session(`steps/${sessions++}`);
  const started = performance.now();
  const { output } = await session.command("bench.steps", { steps: COUNT });
  const { state, error } = await session.awaitTask(output as string);
  if (state !== "completed") throw new Error(`The task is ${state}: ${error?.message}`);
  return ((performance.now() - started) * 1_000) / COUNT;
}

async function perCall(troupe: Troupe): Promise<number> {
  const session = await troupe.session(`calls/${sessions++}`);
  const started = performance.now();
  const { toolCalls } = await session.turn("Work.", { maxSteps: COUNT + 1 });
  if (toolCalls.length !== COUNT) throw new Error(`The turn made ${toolCalls.length} calls, not ${COUNT}.`);
  return ((performance.now() - started) * 1_000) / COUNT;
}
