import type { Session, Troupe, TurnResult } from "troupe";
import { createTroupe, scriptedModel, type TroupeError } from "troupe";
import { HOOK_KINDS } from "troupe/plugin";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EMPTY_OBJECT, plugin } from "../support/runtime.js";

/** What a misbehaving hook of each kind costs: the turn's end, or what its result says. */
const POLICY: Record<string, string> = {
  sessionRestored: "open refused: session_restore_failed",
  beforeTurn: "refused: plugin_prepare_turn",
  toolCatalogContributor: "stopped: plugin_prompt",
  promptContributor: "stopped: plugin_prompt",
  assistantStream: "stopped: plugin_assistant_stream",
  assistantResponse: "stopped: plugin_assistant_response",
  streamFinished: "issue: lifecycle_hook_failed",
  beforeToolCall: "tool: before_tool_call_failed",
  afterToolCall: "tool: after_tool_call_failed",
  toolResultProjector: "finished",
  checkpoint: "stopped: plugin_checkpoint",
  afterTurn: "refused: plugin_finalize_turn",
  turnFinalized: "issue: lifecycle_hook_failed",
  turnPersisted: "issue: lifecycle_hook_failed",
};
/** Hooks whose answer nobody reads cannot answer wrongly. */
const UNREAD = ["sessionRestored", "streamFinished", "turnFinalized", "turnPersisted"];

const WAYS = ["throws", "rejects", "never settles", "returns garbage", "kills its thread"];

function describeResult({ outcome, issues, toolCalls }: TurnResult): string {
  if (outcome.type === "stopped") return `stopped: ${outcome.code}`;
  const [issue] = issues;
  if (issue !== undefined) return `issue: ${issue.code}`;
  const failed = toolCalls.find(({ output }) => output.status === "failure")?.output;
  return failed?.status === "failure" ? `tool: ${failed.failure.code}` : "finished";
}

async function attempt(troupe: Troupe, id: string): Promise<string> {
  let session: Session;
  try {
    session = await troupe.session(id);
  } catch (error) {
    return `open refused: ${(error as TroupeError).code}`;
  }
  try {
    return describeResult(await session.turn("misbehave"));
  } catch (error) {
    return `refused: ${(error as TroupeError).code}`;
  }
}

test("the policy of every hook kind is written down here", () => {
  expect(Object.keys(POLICY).sort()).toEqual(Object.keys(HOOK_KINDS).sort());
});

describe.each(["worker", "inline"] as const)("in the tier %s", (tier) => {
  let troupe: Troupe;
  beforeAll(async () => {
    troupe = await createTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("misbehaves"), tier, deadlineMs: 150 }],
      tools: { echo: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => "ok" } },
      model: scriptedModel({ turns: [[{ toolCalls: [{ tool: "echo", args: {} }] }, { text: "done" }]] }),
    });
  });
  afterAll(() => troupe.close());

  const ways = tier === "inline" ? WAYS.filter((way) => way !== "kills its thread") : WAYS;
  const cells = Object.keys(POLICY).flatMap((hook) => ways.map((way) => [hook, way] as const));

  test.each(cells)(
    "a %s hook that %s costs what its kind's policy says, and the next turn works",
    async (hook, way) => {
      const harmless = way === "returns garbage" && UNREAD.includes(hook);
      const id = `${hook}:${way}`;
      expect(await attempt(troupe, id)).toBe(harmless ? "finished" : POLICY[hook]);
      const { turns } = await troupe.stats();
      expect(turns.asked).toBe(turns.finished + turns.refused);
      // A new thread has no memory of having misbehaved, so the hooks that cannot see the input would do it again.
      if (way === "kills its thread") return;
      expect((await (await troupe.session(id)).turn("behave")).outcome).toEqual({ type: "finished", text: "done" });
    },
  );
});
