import type { Session, Troupe, TurnResult } from "troupe";
import { createTroupe, scriptedModel, type TroupeError } from "troupe";
import { HOOK_KINDS } from "troupe/plugin";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EMPTY_OBJECT, openSessions, plugin } from "../../support/runtime.js";

/** What a misbehaving hook of each kind costs: the turn's end, or what its result says. */
const POLICY: Record<string, string> = {
  sessionRestored: "open refused: session_restore_failed",
  turnContextTransform: "refused: context_prepare_turn",
  beforeTurn: "refused: plugin_prepare_turn",
  toolCatalogContributor: "stopped: plugin_prompt",
  promptContributor: "stopped: plugin_prompt",
  assistantStream: "stopped: plugin_assistant_stream",
  assistantResponse: "stopped: plugin_assistant_response",
  proseProjector: "stopped: plugin_prose_projector",
  streamFinished: "finished, issue: lifecycle_hook_failed",
  beforeToolCall: "finished, issue: before_tool_call_failed, tool: before_tool_call_failed",
  afterToolCall: "finished, issue: after_tool_call_failed, tool: after_tool_call_failed",
  toolResultProjector: "finished, issue: hook_failed",
  checkpoint: "stopped: plugin_checkpoint",
  afterTurn: "refused: plugin_finalize_turn",
  turnFinalized: "finished, issue: lifecycle_hook_failed",
  turnPersisted: "finished, issue: lifecycle_hook_failed",
  sessionConfigMutator: "configured, issue: config_mutator_failed",
  sessionConfigChanged: "configured, issue: lifecycle_hook_failed",
  contextCompactor: "refused: plugin_compact",
};
/** Hooks whose answer nobody reads cannot answer wrongly. */
const UNREAD: Record<string, string> = {
  sessionRestored: "finished",
  streamFinished: "finished",
  turnFinalized: "finished",
  turnPersisted: "finished",
  sessionConfigChanged: "configured",
};
/** What reaches a kind's hooks, when a turn does not. */
const REACHED_BY: Record<string, (session: Session) => Promise<string>> = {
  sessionConfigMutator: configure,
  sessionConfigChanged: configure,
  contextCompactor: async (session) => ((await session.compact()) ? "compacted" : "not compacted"),
};

const WAYS = ["throws", "rejects", "never settles", "returns garbage", "kills its thread"];
/** An inline plugin's thread is the session worker's. */
const waysOf = (tier: string) => (tier === "inline" ? WAYS.filter((way) => way !== "kills its thread") : WAYS);

/** Nothing here blocks its thread; a crowded machine may make it look so. */
const NEVER_MS = 600_000;

const GOOD = { type: "finished", text: "done" };

async function takeTurn(session: Session): Promise<string> {
  const { outcome, issues, toolCalls }: TurnResult = await session.turn("misbehave");
  if (outcome.type === "stopped") return `stopped: ${outcome.code}`;
  // A hook of the model's stream is asked, and misbehaves, in both steps of the turn.
  const costs = new Set(issues.map(({ code }) => `issue: ${code}`));
  for (const { output } of toolCalls) if (output.status === "failure") costs.add(`tool: ${output.failure.code}`);
  return ["finished", ...costs].join(", ");
}

async function configure(session: Session): Promise<string> {
  const { changed, config, issues } = await session.configure({ metadata: { asked: "for" } });
  // Whatever the hooks did, what was asked for is in force.
  expect({ changed, metadata: config.metadata }).toEqual({ changed: true, metadata: { asked: "for" } });
  const [issue] = issues;
  return issue === undefined ? "configured" : `configured, issue: ${issue.code}`;
}

async function attempt(troupe: Troupe, id: string, reach: (session: Session) => Promise<string>): Promise<string> {
  let session: Session;
  try {
    session = await troupe.session(id);
  } catch (error) {
    return `open refused: ${(error as TroupeError).code}`;
  }
  try {
    return await reach(session);
  } catch (error) {
    return `refused: ${(error as TroupeError).code}`;
  }
}

async function expectNothingPending(troupe: Troupe): Promise<void> {
  const { turns } = await troupe.stats();
  expect(turns.asked).toBe(turns.finished + turns.refused);
}

async function expectToWork(session: Session): Promise<void> {
  expect((await session.turn("behave")).outcome).toEqual(GOOD);
  expect((await session.info()).state).toMatch(/^(idle|parking|parked)$/);
}

test("the policy of every hook kind is written down here", () => {
  expect(Object.keys(POLICY).sort()).toEqual(Object.keys(HOOK_KINDS).sort());
});

describe.each(["worker", "inline"] as const)("in the tier %s", (tier) => {
  let troupe: Troupe;
  beforeAll(async () => {
    troupe = await createTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("misbehaves"), tier, deadlineMs: 500, blockedMs: NEVER_MS }],
      tools: { echo: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => "ok" } },
      // Prose that is streamed and prose that is not: each has a hook of its own.
      model: scriptedModel({
        turns: [
          [
            { text: "I look.", toolCalls: [{ tool: "echo", args: {} }] },
            { text: "done", stream: false },
          ],
        ],
      }),
    });
  });
  afterAll(() => troupe.close());

  const cells = Object.keys(POLICY).flatMap((hook) => waysOf(tier).map((way) => [hook, way] as const));

  test.each(cells)(
    "a %s hook that %s costs what its kind's policy says, and the next turn works",
    async (hook, way) => {
      const id = `${hook}:${way}`;
      const costs = way === "returns garbage" ? (UNREAD[hook] ?? POLICY[hook]) : POLICY[hook];
      expect(await attempt(troupe, id, REACHED_BY[hook] ?? takeTurn)).toBe(costs);
      await expectNothingPending(troupe);
      // A new thread has no memory of having misbehaved, so the hooks that cannot see the input would do it again.
      await expectToWork(await troupe.session(way === "kills its thread" ? "bystander" : id));
    },
  );
});

/** What opening a session is refused with when a plugin's `register` misbehaves. */
const REGISTER_POLICY: Record<string, string> = {
  throws: "plugin_register_failed",
  rejects: "plugin_invalid",
  "never settles": "plugin_invalid",
  "returns garbage": "plugin_invalid",
  "registers a hook that is none": "plugin_invalid",
  "registers a tool without a schema": "plugin_invalid",
  "registers an operation twice": "duplicate_operation",
  "is not ready": "plugin_state_failed",
  "kills its thread": "worker_lost",
};

describe.each(["worker", "inline"] as const)("a plugin that registers, in the tier %s", (tier) => {
  let troupe: Troupe;
  beforeAll(async () => {
    troupe = await createTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("misregisters"), tier, blockedMs: NEVER_MS }],
      model: scriptedModel({ turns: [[{ text: "done" }]] }),
    });
  });
  afterAll(() => troupe.close());

  const ways = Object.keys(REGISTER_POLICY).filter((way) => tier === "worker" || way !== "kills its thread");

  test.each(ways)(
    "and %s: the open is refused with a typed error, and another session opens and works", // §15.14
    async (way) => {
      expect(await attempt(troupe, way, takeTurn)).toBe(`open refused: ${REGISTER_POLICY[way]}`);
      await expectNothingPending(troupe);
      const bystander = await troupe.session(`bystander of ${way}`);
      await expectToWork(bystander);
      expect(await bystander.query("turns", {})).toBe(1);
    },
  );

  test("has nothing open of the sessions that were refused", async () => {
    expect(await openSessions(troupe)).toBe(ways.length);
  });
});

test("a plugin's own snapshot outlives its thread, also in a session that was never closed", async () => {
  const troupe = await createTroupe({
    sessionWorkers: 1,
    plugins: [{ module: plugin("misregisters"), blockedMs: NEVER_MS }],
    model: scriptedModel({ turns: [[{ text: "done" }]] }),
  });
  try {
    const session = await troupe.session("keeps");
    await session.turn("one");
    await troupe.kill({ plugin: "test.misregisters" });
    await session.turn("two");
    expect(await session.query("turns")).toBe(2);
  } finally {
    await troupe.close();
  }
});
