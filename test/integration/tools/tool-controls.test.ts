import { createTroupe, failTurn, finishTurn, type Session, type Troupe } from "troupe";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { told } from "../../support/asking.js";
import { collect, EMPTY_OBJECT, fixture, PATIENT, plugin } from "../../support/runtime.js";

/** The host's is the same tool as the plugin's and the pool's. */
const { default: ends } = await import(fixture("tools/ends.mjs").href);

const HOMES = [
  ["ends", "the host"],
  ["ends_in_plugin", "a plugin"],
  ["ends_in_pool", "the pool"],
] as const;

let open: () => void = () => {};
const gate = new Promise<void>((resolve) => {
  open = resolve;
});
const tool = (execute: () => unknown) => ({ description: "d", inputSchema: EMPTY_OBJECT, execute });
const tools = {
  ends,
  ends_in_pool: { module: fixture("tools/ends.mjs") },
  plain: tool(() => "plain"),
  slow: tool(() => gate.then(() => finishTurn("slow"))),
  quick: tool(() => {
    open();
    return failTurn("quick", "I was first.");
  }),
  throws: tool(() => {
    throw new Error("no luck");
  }),
};

const start = (tier: "worker" | "inline") =>
  createTroupe({
    sessionWorkers: 1,
    drainMs: 500,
    plugins: [{ module: plugin("ends-turns"), tier, ...PATIENT }],
    tools,
    model: fixture("models/told.mjs"),
  });

let troupe: Troupe;
let sessions = 0;
beforeAll(async () => {
  troupe = await start("worker");
});
afterAll(() => troupe.close());
const newSession = () => troupe.session(`s${sessions++}`);

const CONVERSATION = { say: "@conversation" };
const conversation = async (session: Session) => JSON.parse((await session.turn(told(CONVERSATION))).text);

describe.each(HOMES)("the tool %s of %s", (call) => {
  test("ends the turn with a value: the model is not asked again, and the host is told whose value it is", async () => {
    const session = await newSession();
    const args = { how: "finish", value: { sum: 3 }, text: "Three." };
    const turn = session.turn(told({ calls: [{ call, args }, { call: "plain" }] }));
    const activities = await collect(turn);
    const result = await turn;
    expect(result.outcome).toEqual({ type: "finished", text: "Three.", value: { sum: 3 }, toolName: call });
    expect([result.text, result.modelCalls, result.issues]).toEqual(["Three.", 1, []]);
    // All calls of the step have run, and their results are in the history.
    expect(result.toolCalls.map(({ output }) => output)).toEqual([
      { status: "success", value: { sum: 3 }, control: { kind: "finish", value: { sum: 3 }, text: "Three." } },
      { status: "success", value: "plain" },
    ]);
    expect(activities.filter(({ type }) => type === "model_call_started")).toHaveLength(1);
    expect((await conversation(session))[2]).toEqual(["tool", '{"sum":3}plain']);
  });

  test("ends the turn as a failure, with its own code", async () => {
    const session = await newSession();
    const said = { code: "no_luck", message: "It rained." };
    const { outcome, issues, text } = await session.turn(told({ call, args: { how: "fail", ...said, value: [40] } }));
    expect(outcome).toEqual({ type: "stopped", reason: "tool_error", ...said, toolName: call, value: [40] });
    expect([issues, text]).toEqual([[{ kind: "tool", ...said }], ""]);
    expect((await session.turn("and now")).text).toBe("You said: and now");
  });

  test("ends the turn for another frame, in which its task is done at once", async () => {
    const session = await newSession();
    const initialNodes = [{ kind: "message", message: { role: "system", text: "A fresh start." } }];
    const task = told({ say: "Done there." });
    const args = { how: "switch", frameId: "second", task, initialNodes };
    const { before, outcome, issues, revision } = await session.turn(told({ call, args }));
    expect(before).toMatchObject([{ outcome: { type: "frame_switch", frameId: "second", task }, issues: [] }]);
    expect([outcome, issues]).toMatchObject([{ type: "finished", text: "Done there." }, []]);
    const { frameId, frames, ...view } = await session.view();
    expect([frameId, frames.map((left) => [left.frameId, left.reason])]).toEqual(["second", [["main", "switch"]]]);
    expect(view.revision).toBe(revision);
    expect(await conversation(session)).toEqual([
      ["system", "A fresh start."],
      ["user", task],
      ["assistant", "Done there."],
      ["user", told(CONVERSATION)],
    ]);
  });

  test("ends nothing with data that only looks like it", async () => {
    const session = await newSession();
    const { outcome, modelCalls, toolCalls } = await session.turn(told({ call, args: { how: "forge", value: "x" } }));
    expect([outcome.type, modelCalls]).toEqual(["finished", 2]);
    expect(outcome).not.toHaveProperty("toolName");
    expect(toolCalls[0]?.output).not.toHaveProperty("control");
  });
});

describe("a frame that a tool wants to go to", () => {
  const to = (frameId: string, task = "Go on.") => ({ call: "ends", args: { how: "switch", frameId, task } });

  test.each(["main", "second"])("(%s) and that is there already fails the call, not the turn", async (frameId) => {
    const session = await newSession();
    await session.turn(told(to("second")));
    const result = await session.turn(told(to(frameId), CONVERSATION));
    expect(result.outcome.type).toBe("finished");
    expect(result.toolCalls[0]?.output).toMatchObject({ failure: { kind: "invalid_request", code: "frame_exists" } });
    expect(result.text).toContain(`already has a frame ${frameId}`);
  });

  test.each(["", "  \n"])("without a task (%j) is not gone to", async (task) => {
    const session = await newSession();
    const result = await session.turn(told(to("second", task)));
    expect([result.outcome.type, result.modelCalls]).toEqual(["finished", 2]);
    expect(result.toolCalls[0]?.output).toEqual({ status: "success", value: { frameId: "second", task } });
    expect((await session.view()).frameId).toBe("main");
  });
});

describe("of several tools that end the turn", () => {
  test("the first in call order does, whichever was first to say so", async () => {
    const session = await newSession();
    const { outcome, toolCalls } = await session.turn(told({ calls: [{ call: "slow" }, { call: "quick" }] }));
    expect(outcome).toMatchObject({ type: "finished", value: "slow" });
    expect(toolCalls.map(({ toolName, completed }) => [toolName, completed])).toEqual([
      ["slow", 1],
      ["quick", 0],
    ]);
  });

  test("one that failed does not count", async () => {
    const session = await newSession();
    const finish = { call: "ends", args: { how: "finish", value: 1 } };
    const { outcome } = await session.turn(told({ calls: [{ call: "throws" }, finish] }));
    expect(outcome).toMatchObject({ type: "finished", value: 1, toolName: "ends" });
  });
});

describe.each(["worker", "inline"] as const)("hooks after a tool that ends the turn, in the tier %s", (tier) => {
  let own: Troupe;
  beforeAll(async () => {
    own = await start(tier);
  });
  afterAll(() => own.close());

  const reviewed = async (review: string) => {
    const session = await own.session(review);
    const args = { how: "finish", value: "over", review };
    const { outcome, toolCalls, modelCalls } = await session.turn(told({ call: "ends", args }));
    return { outcome, output: toolCalls[0]?.output, modelCalls, seen: await session.query("seen") };
  };

  test("see that it does", async () => {
    expect(await reviewed("none")).toMatchObject({
      outcome: { type: "finished", value: "over", toolName: "ends" },
      seen: ["finish"],
    });
  });

  test.each([
    ["replace", { status: "success", value: "replaced" }, ["finish"]],
    ["deny", { status: "failure", failure: { code: "not_now" } }, ["finish"]],
    ["forge", { status: "success", value: "forged" }, ["finish"]],
    ["before", { status: "success", value: "forged" }, []],
  ])("(%s) keep the turn going with a result of their own, and cannot end it", async (review, output, seen) => {
    const result = await reviewed(review);
    expect(result).toMatchObject({ outcome: { type: "finished" }, output, modelCalls: 2, seen });
    expect(result.outcome).not.toHaveProperty("toolName");
    expect(result.output).not.toHaveProperty("control");
  });
});
