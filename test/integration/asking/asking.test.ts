import { join } from "node:path";
import {
  type Activity,
  type ApprovalDemand,
  defineTool,
  type PendingCall,
  pendingTool,
  requireApproval,
  type Session,
  scriptedModel,
  type Troupe,
  type TroupeOptions,
  type Turn,
} from "troupe";
import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { fixture, RESIDENT, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

const pay = (...amounts: (number | string)[]) => [
  { toolCalls: amounts.map((amount) => ({ tool: "pay", args: { amount } })) },
  { text: "The answer was: {tool_result}" },
];

/** Payments of any amount, each asked about; what was paid. */
function payments(approval: unknown = true) {
  const paid: number[] = [];
  const tool = defineTool({
    description: "Pays an invoice.",
    inputSchema: z.object({ amount: z.number() }),
    approval: approval as true,
    execute: ({ amount }) => {
      paid.push(amount);
      return `paid ${amount}`;
    },
  });
  return { paid, tools: { pay: tool } };
}

const stores: [string, () => Promise<Pick<TroupeOptions, "store" | "journal">>][] = [
  ["without a journal", async () => ({})],
  ["with a memory store and a journal", async () => ({ journal: true })],
  ["with a store on disk", async () => ({ store: { path: join(await tempFolder(), "store") } })],
];

/** The call that waits, when one does. */
async function waiting(troupe: Troupe): Promise<PendingCall> {
  await until("a call waits", async () => (await troupe.pending()).calls.length > 0);
  return (await troupe.pending()).calls[0] as PendingCall;
}

async function activitiesOf(turn: Turn): Promise<Activity[]> {
  const seen: Activity[] = [];
  for await (const activity of turn) seen.push(activity);
  return seen;
}

describe.each(stores)("a tool that needs a yes, %s,", (_, store) => {
  const started = async (given: ReturnType<typeof payments>, turns = [pay(5)], more: TroupeOptions = {}) =>
    startTroupe({ ...(await store()), ...more, model: scriptedModel({ turns }), tools: given.tools });

  test("runs behind the yes, and not before", async () => {
    const given = payments();
    const troupe = await started(given);
    const session = await troupe.session("s", { tenant: "acme" });
    const turn = session.turn("Pay.");
    const call = await waiting(troupe);
    expect(call).toEqual({
      key: expect.stringMatching(/^[A-Za-z0-9_-]+$/),
      sessionId: "s",
      tenant: "acme",
      turnId: "t1",
      callId: expect.stringMatching(/^call_[0-9a-f]{32}$/),
      toolName: "pay",
      args: { amount: 5 },
      announcement: { kind: "approval" },
      since: expect.any(Number),
    });
    // Who has seen the call's id cannot make its key of it.
    expect(Buffer.from(call.key.replace("wait_", ""), "base64url").toString()).not.toContain(call.callId);
    expect(given.paid).toEqual([]);
    expect(await troupe.approve(call.key)).toBe("counted");
    const { text, toolCalls } = await turn;
    expect({ text, paid: given.paid }).toEqual({ text: "The answer was: paid 5", paid: [5] });
    expect(toolCalls).toMatchObject([{ callId: call.callId, output: { status: "success", value: "paid 5" } }]);
    expect(await troupe.pending()).toEqual({ calls: [], next: null });
  });

  test("does not run behind a no, whose reason the model reads", async () => {
    const given = payments();
    const troupe = await started(given);
    const turn = (await troupe.session("s")).turn("Pay.");
    expect(await troupe.deny((await waiting(troupe)).key, { reason: "Too much." })).toBe("counted");
    const { text, toolCalls } = await turn;
    expect(text).toContain("approval_denied: The call of pay was not approved: Too much.");
    expect(toolCalls[0]?.output).toMatchObject({ failure: { kind: "permission_denied", code: "approval_denied" } });
    expect(given.paid).toEqual([]);
    expect((await troupe.pending()).calls).toEqual([]);
  });

  test("is answered once: who comes second is told so", async () => {
    const given = payments();
    // Who answered a call of a turn that is over is known as long as the session stays in memory.
    const troupe = await started(given, [pay(5)], RESIDENT);
    const turn = (await troupe.session("s")).turn("Pay.");
    const { key } = await waiting(troupe);
    const answers = await Promise.all([troupe.approve(key), troupe.deny(key, { reason: "No." }), troupe.approve(key)]);
    expect(answers).toEqual(["counted", "already_answered", "already_answered"]);
    expect((await turn).text).toBe("The answer was: paid 5");
    expect(await troupe.approve(key)).toBe("already_answered");
    expect(given.paid).toEqual([5]);
  });

  test("is answered by who was first, also when the arguments of the first yes have to be looked at before it counts", async () => {
    const given = payments(requireApproval({ allowEdit: true }));
    const troupe = await started(given);
    const turn = (await troupe.session("s")).turn("Pay.");
    const { key } = await waiting(troupe);
    const unfit = refusalOf(troupe.approve(key, { args: { amount: "much" } }));
    const answers = [
      troupe.approve(key, { args: { amount: 3 } }),
      troupe.approve(key),
      troupe.deny(key, { reason: "No." }),
    ];
    expect((await unfit).code).toBe("answer_unusable");
    expect(await Promise.all(answers)).toEqual(["counted", "already_answered", "already_answered"]);
    expect((await turn).text).toBe("The answer was: paid 3");
    expect(given.paid).toEqual([3]);
  });

  test("fails the call when nobody has answered by the deadline, or ends the turn", async () => {
    const given = payments(requireApproval({ deadlineMs: 30 }));
    const troupe = await started(given, [pay(5), pay(6)]);
    const first = await (await troupe.session("s")).turn("Pay.");
    expect(first.text).toContain("tool_completion_timeout: pay was not approved within 30 ms.");
    expect((await troupe.pending()).calls).toEqual([]);
    const strict = payments(requireApproval({ deadlineMs: 30, onDeadline: "fail_turn" }));
    const other = await started(strict);
    const { outcome } = await (await other.session("s")).turn("Pay.");
    expect(outcome).toMatchObject({ type: "stopped", reason: "tool_error", code: "tool_completion_timeout" });
    expect([...given.paid, ...strict.paid]).toEqual([]);
  });

  test("waits no more when its turn is cancelled, and says so to who answers late", async () => {
    const given = payments();
    const troupe = await started(given);
    const turn = (await troupe.session("s")).turn("Pay.");
    const { key } = await waiting(troupe);
    turn.cancel("Never mind.");
    expect((await turn).outcome).toMatchObject({ reason: "cancelled" });
    expect((await troupe.pending()).calls).toEqual([]);
    expect(await troupe.approve(key)).toBe("moved_on");
    expect(given.paid).toEqual([]);
  });

  test("runs with the arguments that the yes came with, when they may be changed and fit", async () => {
    const given = payments(requireApproval({ allowEdit: true }));
    const troupe = await started(given);
    const turn = (await troupe.session("s")).turn("Pay.");
    const call = await waiting(troupe);
    expect(call.allowEdit).toBe(true);
    const unfit = await refusalOf(troupe.approve(call.key, { args: { amount: "much" } }));
    expect(unfit).toMatchObject({ code: "answer_unusable" });
    expect(unfit.message).toContain("amount");
    expect(await troupe.approve(call.key, { args: { amount: 3 } })).toBe("counted");
    const { toolCalls } = await turn;
    expect(toolCalls).toMatchObject([{ args: { amount: 3 }, output: { value: "paid 3" } }]);
    expect(given.paid).toEqual([3]);
  });

  test("is told of as it happens: waiting, approved, finished", async () => {
    const troupe = await started(payments());
    const turn = (await troupe.session("s")).turn("Pay.");
    const seen = activitiesOf(turn);
    const { key, callId } = await waiting(troupe);
    await troupe.approve(key);
    const types = ["tool_call_started", "tool_call_pending", "tool_call_approved", "tool_call_finished"];
    const told = (await seen).filter(({ type }) => types.includes(type));
    expect(told).toMatchObject([
      { type: "tool_call_started", callId },
      {
        type: "tool_call_pending",
        callId,
        toolName: "pay",
        key,
        announcement: { kind: "approval" },
        args: { amount: 5 },
      },
      { type: "tool_call_approved", callId, toolName: "pay", args: { amount: 5 } },
      { type: "tool_call_finished", callId },
    ]);
  });

  test("waits beside the other calls of its step, which have ended by then", async () => {
    const given = payments(({ amount }: { amount: number }) => amount > 100 && { question: `Pay ${amount}?` });
    const troupe = await started(given, [pay(5, 500)]);
    const turn = (await troupe.session("s")).turn("Pay both.");
    const call = await waiting(troupe);
    expect(call).toMatchObject({ args: { amount: 500 }, announcement: { kind: "approval", question: "Pay 500?" } });
    await until("the small one is paid", () => given.paid.length === 1);
    await troupe.approve(call.key);
    expect((await turn).toolCalls.map(({ args }) => args)).toEqual([{ amount: 5 }, { amount: 500 }]);
    expect(given.paid).toEqual([5, 500]);
  });

  test("is refused unasked when its arguments do not fit, or its own code fails", async () => {
    const asked: unknown[] = [];
    const given = payments((args: unknown) => {
      asked.push(args);
      throw new Error("secret");
    });
    const troupe = await started(given, [pay("x"), pay(5)]);
    const session = await troupe.session("s");
    expect((await session.turn("Pay.")).text).toContain("invalid_tool_args");
    expect((await session.turn("Pay.")).text).toContain("tool_failed: pay failed");
    expect({ asked, paid: given.paid }).toEqual({ asked: [{ amount: 5 }], paid: [] });
  });

  test("is refused when its own code says something that is no approval", async () => {
    const given = payments(() => ({ kind: "require_approval", demand: { deadlineMs: -1 } }));
    const troupe = await started(given);
    const { text } = await (await troupe.session("s")).turn("Pay.");
    expect(text).toContain("tool_answer_invalid");
    expect(text).toContain("deadlineMs must be a whole number");
    expect(given.paid).toEqual([]);
  });
});

describe("tools of all homes can need a yes:", () => {
  const call = (tool: string, amount: number) => [
    { toolCalls: [{ tool, args: { amount } }] },
    { text: "{tool_result}" },
  ];

  test("one of the pool, whose code decides on its thread", async () => {
    const model = scriptedModel({ turns: [call("charge", 5), call("charge", 500)] });
    const troupe = await startTroupe({ model, tools: { charge: { module: fixture("tools/charges.mjs") } } });
    const session = await troupe.session("s");
    expect((await session.turn("little")).text).toBe("charged 5");
    const turn = session.turn("much");
    const { key, announcement } = await waiting(troupe);
    expect(announcement).toEqual({ kind: "approval", value: "Charge 500?" });
    await troupe.approve(key);
    expect((await turn).text).toBe("charged 500");
  });

  test.each(["worker", "inline"] as const)("one of a plugin (%s), whose code sees the plugin's state", async (tier) => {
    const model = scriptedModel({ turns: [call("spend", 5), call("spend", 500), call("spend", 400)] });
    const troupe = await startTroupe({ model, plugins: [{ module: fixture("plugins/spends.mjs"), tier }] });
    const session = await troupe.session("s");
    expect((await session.turn("little")).text).toBe("spent 5, in all 5");
    const turn = session.turn("much");
    const { key, announcement } = await waiting(troupe);
    expect(announcement).toEqual({ kind: "approval", spent: 5, wanted: 500 });
    const unfit = await refusalOf(troupe.approve(key, { args: { amount: "x" } }));
    expect(unfit.message).toContain("amount");
    await troupe.approve(key, { args: { amount: 300 } });
    expect((await turn).text).toBe("spent 300, in all 305");
    const refused = session.turn("more");
    await troupe.deny((await waiting(troupe)).key, { reason: "Enough." });
    expect((await refused).text).toContain("Enough.");
  });
});

describe("a plugin that demands an approval", () => {
  const guarded = async (directives: object, more: Pick<TroupeOptions, "tools" | "store"> = {}) => {
    const given = payments(false);
    const plugins = Object.entries(directives).map(([id, asks]) => ({
      module: new URL(`${fixture("plugins/guards.mjs")}?id=${id}`),
      tier: "inline" as const,
      options: asks,
    }));
    const model = scriptedModel({ turns: [pay(5), pay(6)] });
    const troupe = await startTroupe({ model, tools: given.tools, plugins, ...more });
    return { troupe, given, session: await troupe.session("s") };
  };
  const demand = (given: ApprovalDemand = {}) => [{ kind: "require_approval", demand: given }];
  const denial = [
    {
      kind: "short_circuit_tool",
      output: { status: "failure", failure: { kind: "permission_denied", code: "no", message: "Never." } },
    },
  ];

  test("gates a tool that knows nothing of it", async () => {
    const { troupe, given, session } = await guarded({ a: demand({ announcement: "May I?" }) });
    const turn = session.turn("Pay.");
    const { key, announcement } = await waiting(troupe);
    expect(announcement).toEqual({ kind: "approval", value: "May I?" });
    await troupe.approve(key);
    expect((await turn).text).toBe("The answer was: paid 5");
    expect(given.paid).toEqual([5]);
  });

  test.each([
    ["before", { a: denial, b: demand() }],
    ["behind", { a: demand(), b: denial }],
  ])("asks nobody when a plugin %s it denies the call", async (_, directives) => {
    const { troupe, given, session } = await guarded(directives);
    expect((await session.turn("Pay.")).text).toContain("no: Never.");
    expect({ paid: given.paid, ...(await troupe.pending()) }).toEqual({ paid: [], calls: [], next: null });
  });

  test("is not undone by one that answers in the tool's place: that counts behind the yes", async () => {
    const answers = [{ kind: "short_circuit_tool", output: { status: "success", value: "cached" } }];
    const { troupe, given, session } = await guarded({ a: demand(), b: answers });
    const turn = session.turn("Pay.");
    await troupe.approve((await waiting(troupe)).key);
    expect((await turn).text).toBe("The answer was: cached");
    expect(given.paid).toEqual([]);
  });

  test("shows the arguments as the plugins left them", async () => {
    const { troupe, given, session } = await guarded({
      a: demand(),
      b: [{ kind: "replace_tool_args", args: { amount: 2 } }],
    });
    const turn = session.turn("Pay.");
    const { key, args } = await waiting(troupe);
    expect(args).toEqual({ amount: 2 });
    await troupe.approve(key);
    expect((await turn).text).toBe("The answer was: paid 2");
    expect(given.paid).toEqual([2]);
  });

  test("asks once with another that does, under the stricter terms of both", async () => {
    const { troupe, session } = await guarded({
      a: demand({ announcement: { question: "A?" }, allowEdit: true, deadlineMs: 60_000 }),
      b: demand({ announcement: "B?", deadlineMs: 30_000 }),
    });
    const turn = session.turn("Pay.");
    const call = await waiting(troupe);
    expect(call.announcement).toEqual({
      kind: "approval",
      question: "A?",
      others: [{ kind: "approval", value: "B?" }],
    });
    expect((call.deadline as number) - call.since).toBe(30_000);
    const refused = await refusalOf(troupe.approve(call.key, { args: { amount: 1 } }));
    expect(refused).toMatchObject({ code: "answer_unusable" });
    expect(refused.message).toContain("cannot be changed");
    await troupe.approve(call.key);
    expect((await turn).text).toBe("The answer was: paid 5");
  });

  test("looks once at the arguments a yes came with, and may deny them", async () => {
    const small = [{ kind: "deny_over", limit: 100, asks: demand({ allowEdit: true }) }];
    const { troupe, given, session } = await guarded({ a: small });
    const first = session.turn("Pay.");
    await troupe.approve((await waiting(troupe)).key, { args: { amount: 500 } });
    expect((await first).text).toContain("over: 500 is over 100.");
    const second = session.turn("Pay.");
    await troupe.approve((await waiting(troupe)).key, { args: { amount: 50 } });
    expect((await second).text).toBe("The answer was: paid 50");
    expect(given.paid).toEqual([50]);
    expect(await session.query("a.looked")).toEqual([5, 500, 6, 50]);
  });

  test("asks again when a plugin changes what the yes came with: a yes is for what was shown", async () => {
    const rounds = [{ kind: "round_up", to: 10, asks: demand({ allowEdit: true }) }];
    const { troupe, given, session } = await guarded({ a: rounds });
    const turn = session.turn("Pay.");
    const first = await waiting(troupe);
    expect(first.args).toEqual({ amount: 10 });
    await troupe.approve(first.key, { args: { amount: 13 } });
    await until("another question is asked", async () => (await waiting(troupe)).key !== first.key);
    const second = await waiting(troupe);
    expect(second.args).toEqual({ amount: 20 });
    expect(await troupe.approve(first.key)).toBe("already_answered");
    expect(given.paid).toEqual([]);
    await troupe.approve(second.key);
    expect((await turn).text).toBe("The answer was: paid 20");
    expect(given.paid).toEqual([20]);
  });

  test("fails the call when it demands something that cannot be asked", async () => {
    const { given, session } = await guarded({ a: [{ kind: "require_approval", demand: { deadlineMs: 0 } }] });
    const { text, issues } = await session.turn("Pay.");
    expect(text).toContain("before_tool_call_failed");
    expect(issues[0]?.message).toContain("requireApproval: its deadlineMs must be a whole number from 1");
    expect(given.paid).toEqual([]);
  });
});

describe("the calls that wait", () => {
  const twenty = async (options: Pick<TroupeOptions, "store" | "journal">) => {
    const given = payments();
    const model = scriptedModel({ turns: Array.from({ length: 20 }, () => pay(5)) });
    const troupe = await startTroupe({ ...options, model, tools: given.tools, drainMs: 1 });
    for (let n = 0; n < 20; n++) {
      const session: Session = await troupe.session(`s${n}`, n % 4 === 0 ? { tenant: "acme" } : {});
      session.turn("Pay.").then(
        () => {},
        () => {},
      );
    }
    await until("all wait", async () => (await troupe.pending()).calls.length === 20);
    return troupe;
  };

  test.each(stores)("are listed page by page, by session and by tenant, %s", async (_, store) => {
    const troupe = await twenty(await store());
    const all: PendingCall[] = [];
    for (let after: string | undefined; ; ) {
      const { calls, next } = await troupe.pending({ limit: 6, after });
      all.push(...calls);
      if (next === null) break;
      expect(calls).toHaveLength(6);
      after = next;
    }
    expect(all.map(({ sessionId }) => sessionId).sort()).toEqual(Array.from({ length: 20 }, (_, n) => `s${n}`).sort());
    expect(all.map(({ since }) => since)).toEqual(all.map(({ since }) => since).sort((a, b) => a - b));
    const acme: string[] = [];
    for (let after: string | undefined; ; ) {
      const { calls, next } = await troupe.pending({ tenant: "acme", limit: 2, after });
      acme.push(...calls.map(({ sessionId }) => sessionId));
      if (next === null) break;
      after = next;
    }
    expect(acme.sort()).toEqual(["s0", "s12", "s16", "s4", "s8"]);
    expect((await troupe.pending({ sessionId: "s7" })).calls).toMatchObject([{ sessionId: "s7" }]);
    expect((await troupe.pending({ sessionId: "s7", tenant: "acme" })).calls).toEqual([]);
    expect((await troupe.pending({ tenant: "nobody" })).calls).toEqual([]);
  });

  test("are asked for with words that are understood", async () => {
    const troupe = await startTroupe();
    const wrong: [object, string][] = [
      [{ session: "s" }, "Calls that wait cannot be listed: there is no filter session. Did you mean sessionId?"],
      [{ limit: 0 }, "limit is a whole number from 1 to 1000"],
      [{ after: "x" }, "after is what the page before gave as next"],
      [{ tenant: "" }, "tenant is a text that is not empty"],
    ];
    for (const [request, why] of wrong) {
      const error = await refusalOf(troupe.pending(request as never));
      expect(error).toMatchObject({ code: "invalid_list" });
      expect(error.message).toContain(why);
    }
  });
});

describe("an answer", () => {
  test("for a deleted session, for a fork, for a session that has moved on and for no call are told apart", async () => {
    const given = payments();
    const model = scriptedModel({ turns: [[{ text: "hello" }], pay(5), pay(6), pay(7)] });
    const troupe = await startTroupe({ store: { path: join(await tempFolder(), "store") }, model, tools: given.tools });
    const session = await troupe.session("s");
    await session.turn("Hello.");
    const turn = session.turn("Pay.");
    const { key } = await waiting(troupe);
    const fork = await session.fork({ id: "s/fork" });
    expect(await troupe.approve(key, { sessionId: fork.id })).toBe("forked");
    const stranger = await troupe.session("stranger");
    expect((await refusalOf(troupe.approve(key, { sessionId: stranger.id }))).code).toBe("completion_unknown");
    expect(given.paid).toEqual([]);
    expect(await troupe.approve(key, { sessionId: "s" })).toBe("counted");
    await turn;
    const second = session.turn("Pay.");
    const late = (await waiting(troupe)).key;
    second.cancel();
    await second;
    expect(await troupe.deny(late, { reason: "No." })).toBe("moved_on");
    expect(await refusalOf(troupe.completeTool(late, { value: 1 }))).toMatchObject({
      code: "completion_unknown",
      details: { outcome: "moved_on" },
    });
    const third = session.turn("Pay.");
    const gone = (await waiting(troupe)).key;
    await troupe.deleteSession("s", { running: "cancel" });
    await refusalOf(third).catch(() => {});
    expect(await troupe.approve(gone)).toBe("session_deleted");
    expect((await troupe.pending()).calls).toEqual([]);
    for (const wrong of ["", "nonsense", "wait_", `${gone}x`, '["s"]', 7 as never])
      expect((await refusalOf(troupe.approve(wrong))).code).toBe("completion_unknown");
  });

  test("that cannot be used is refused in words, and the call waits on", async () => {
    const given = payments();
    const troupe = await startTroupe({ model: scriptedModel({ turns: [pay(5)] }), tools: given.tools });
    const turn = (await troupe.session("s")).turn("Pay.");
    const { key } = await waiting(troupe);
    const wrong: [Promise<unknown>, string][] = [
      [troupe.deny(key, {} as never), "needs a reason"],
      [troupe.deny(key, { reason: " " }), "needs a reason"],
      [troupe.deny(key, { why: "No." } as never), "why"],
      [troupe.approve(key, { arguments: {} } as never), "arguments"],
      [troupe.approve(key, { args: (() => 1) as never }), "plain data"],
      [troupe.approve(key, { args: { amount: 3 } }), "cannot be changed"],
      [troupe.completeTool(key, { value: "paid" }), "troupe.approve or troupe.deny"],
    ];
    for (const [answer, why] of wrong) {
      const error = await refusalOf(answer);
      expect(error).toMatchObject({ code: "answer_unusable" });
      expect(error.message).toContain(why);
    }
    expect(await troupe.approve(key)).toBe("counted");
    await turn;
    expect(given.paid).toEqual([5]);
  });

  test("to a tool that returned pendingTool() is a result, and no yes or no", async () => {
    const ask = defineTool({
      description: "Asks.",
      inputSchema: z.object({}),
      execute: () => pendingTool({ announcement: { kind: "client_tool", name: "camera" }, deadlineMs: 60_000 }),
    });
    const model = scriptedModel({ turns: [[{ toolCalls: [{ tool: "ask" }] }, { text: "{tool_result}" }]] });
    const troupe = await startTroupe({ model, tools: { ask } });
    const turn = (await troupe.session("s")).turn("Go.");
    const { key, announcement, deadline, since } = await waiting(troupe);
    expect(announcement).toEqual({ kind: "client_tool", name: "camera" });
    expect((deadline as number) - since).toBe(60_000);
    expect((await refusalOf(troupe.approve(key))).message).toContain("give it with troupe.completeTool");
    const wrong: [unknown, string][] = [
      ["a picture", "the result of a call is { value }, or { failure: { code, message } }."],
      [{ result: "a picture" }, "the result of a call is { value }"],
      [{ value: 1, failure: { code: "x", message: "y" } }, "the result of a call is { value }, or"],
      [{ failure: "broken" }, "the failure of a call is { code, message }, both texts."],
      [{ value: new Map() }, "the value of a result must be plain data."],
    ];
    for (const [answer, why] of wrong) {
      const error = await refusalOf(troupe.completeTool(key, answer as never));
      expect(error).toMatchObject({ code: "answer_unusable", message: expect.stringContaining(why) });
    }
    await troupe.completeTool(key, { value: "a picture" });
    expect((await turn).text).toBe("a picture");
  });
});

test("what cannot be an approval of a tool is refused when the runtime starts", async () => {
  const wrong: [unknown, string][] = [
    ["always", "approval must be true, a function, or what requireApproval gives"],
    [{ announcement: "May I?" }, "approval must be true, a function, or what requireApproval gives"],
    [requireApproval({ deadlineMs: 0 }), "its deadlineMs must be a whole number"],
    [requireApproval({ onDeadline: "approve" as never }), 'its onDeadline is "deny" or "fail_turn"'],
    [requireApproval({ allowEdits: true } as never), "it has no field allowEdits"],
  ];
  for (const [approval, why] of wrong) {
    const error = await refusalOf(startTroupe({ tools: payments(approval).tools }));
    expect(error).toMatchObject({ code: "invalid_tool" });
    expect(error.message).toContain(why);
  }
});

test("a runtime that is closed while a call waits keeps it, and the next one lists it and runs the tool behind the yes", async () => {
  const path = join(await tempFolder(), "store");
  const turns = [pay(5), pay(5)];
  const first = payments();
  const before = await startTroupe({
    store: { path },
    drainMs: 1,
    model: scriptedModel({ turns }),
    tools: first.tools,
  });
  const session = await before.session("s", { tenant: "acme" });
  const turn = session.turn("Pay.");
  const call = await waiting(before);
  const suspended = refusalOf(turn);
  await before.close();
  expect((await suspended).code).toBe("turn_suspended");
  const second = payments();
  const troupe = await startTroupe({ store: { path }, model: scriptedModel({ turns }), tools: second.tools });
  onTestFinished(() => troupe.close());
  expect((await troupe.pending({ tenant: "acme" })).calls).toEqual([call]);
  expect(await troupe.approve(call.key)).toBe("counted");
  await until("the turn is stored", async () => (await (await troupe.session("s")).info()).turns === 1);
  expect([first.paid, second.paid]).toEqual([[], [5]]);
  expect((await troupe.pending()).calls).toEqual([]);
});
