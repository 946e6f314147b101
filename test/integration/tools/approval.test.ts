import { createTroupe, defineTool, pendingTool, type Session, type Troupe, type TurnResult } from "troupe";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Answer, ask, asking, told, turnThatAsks, valueIn } from "../../support/asking.js";
import { EMPTY_OBJECT, firstToolValue, PATIENT, plugin, refusalOf, until } from "../../support/runtime.js";

/** What waits for a person: the completion keys by the session that asked. */
const asked = new Map<string, string>();
const approve = defineTool({
  description: "Asks a person",
  inputSchema: EMPTY_OBJECT,
  execute: (_args, { sessionId, completionKey }) => {
    asked.set(sessionId, completionKey);
    return pendingTool({ announcement: { question: "May I?" } });
  },
});
/** Whoever is asked answers before the tool has returned. */
const approveAtOnce = defineTool({
  ...approve,
  execute: async (_args, { completionKey }) => {
    await troupe.completeTool(completionKey, { value: "at once" });
    return pendingTool();
  },
});
const question = async (sessionId: string) => {
  await until(`${sessionId} asks`, () => asked.has(sessionId));
  return asked.get(sessionId) as string;
};

let troupe: Troupe;
beforeAll(async () => {
  const options = asking("worker", { tools: { approve, approve_at_once: approveAtOnce } });
  troupe = await createTroupe({ ...options, plugins: [{ module: plugin("asks-host"), options: {}, ...PATIENT }] });
});
afterAll(() => troupe.close());

const APPROVAL = told({ call: "approve" }, { say: "@conversation" });

/** A turn of the parent in whose tool a turn of the child runs, and the child's tool asks a person. */
async function delegated(parent: Session, childId: string) {
  await ask(parent, ["createSession", { sessionId: childId }]);
  return { turn: turnThatAsks(parent, ["startTurn", childId, APPROVAL]) };
}
/** What the child's turn came to, as the parent's tool was told. */
const childTurn = (result: TurnResult) => valueIn<TurnResult>((firstToolValue(result) as Answer[])[0]);

test("an answer may come before its tool has said that it waits for one", async () => {
  const session = await troupe.session("quick");
  expect(firstToolValue(await session.turn(told({ call: "approve_at_once" })))).toBe("at once");
});

describe("a person's approval", () => {
  test("in a session a plugin made is given to its key, and the parent's turn goes on with what came of it", async () => {
    const parent = await troupe.session("boss");
    const { turn } = await delegated(parent, "boss/worker");
    const key = await question("boss/worker");
    expect((await parent.info()).state).toBe("running");
    await troupe.completeTool(key, { value: "approved by a person" });
    const result = await turn;
    expect(result.text).toBe("done");
    expect(firstToolValue(childTurn(result))).toBe("approved by a person");
    expect(childTurn(result).text).toContain("approved by a person");
  });

  test("may be refused, which the child's model reads", async () => {
    const { turn } = await delegated(await troupe.session("strict"), "strict/worker");
    await troupe.completeTool(await question("strict/worker"), { failure: { code: "declined", message: "No way." } });
    expect(childTurn(await turn).text).toContain("declined: No way.");
  });

  test("is asked for two generations down, too", async () => {
    const parent = await troupe.session("top");
    await ask(parent, ["createSession", { sessionId: "top/middle" }]);
    const calls = [
      ["createSession", { sessionId: "top/middle/bottom" }],
      ["startTurn", "top/middle/bottom", APPROVAL],
    ];
    const turn = turnThatAsks(parent, ["startTurn", "top/middle", told({ call: "ask_host", args: { calls } })]);
    await troupe.completeTool(await question("top/middle/bottom"), { value: "yes, down there" });
    const middle = childTurn(await turn);
    const bottom = valueIn<TurnResult>((firstToolValue(middle) as Answer[])[1]);
    expect(firstToolValue(bottom)).toBe("yes, down there");
  });

  test("in a fork is the fork's own: its parent goes on meanwhile", async () => {
    const parent = await troupe.session("forked");
    await parent.turn("hello");
    const child = await parent.fork({ id: "forked/child" });
    const turn = child.turn(APPROVAL);
    const key = await question("forked/child");
    expect((await parent.turn("still here")).text).toBe("You said: still here");
    await troupe.completeTool(key, { value: "go ahead" });
    expect(firstToolValue(await turn)).toBe("go ahead");
  });

  test("can be found by whoever watches the child", async () => {
    const parent = await troupe.session("watched");
    await ask(parent, ["createSession", { sessionId: "watched/child" }]);
    const child = await troupe.session("watched/child");
    const watching = (async () => {
      for await (const { event } of child.observe()) {
        if (event.type === "activity" && event.activity.type === "tool_call_pending") return event.activity;
      }
      throw new Error("The call never waited.");
    })();
    const turn = turnThatAsks(parent, ["startTurn", "watched/child", APPROVAL]);
    const { key, announcement } = await watching;
    expect(announcement).toEqual({ kind: "external", question: "May I?" });
    await troupe.completeTool(key, { value: "seen and approved" });
    expect(firstToolValue(childTurn(await turn))).toBe("seen and approved");
  });

  test("is wanted no more when the turn that waits for the child is cancelled", async () => {
    const parent = await troupe.session("cancelled");
    const { turn } = await delegated(parent, "cancelled/worker");
    const key = await question("cancelled/worker");
    turn.cancel();
    expect((await turn).outcome).toMatchObject({ reason: "cancelled" });
    const child = await troupe.session("cancelled/worker");
    // Behind the child's cancelled turn.
    await child.turn("hello");
    expect((await refusalOf(troupe.completeTool(key, { value: "too late" }))).code).toBe("completion_unknown");
  });
});
