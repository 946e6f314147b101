import type { SessionBudget, TurnResult } from "troupe";
import { expect, test } from "vitest";
import { type Answer, ask, askInTurn, asking, askOne, told, valueIn } from "../../support/asking.js";
import { startTroupe, until } from "../../support/runtime.js";

test.each(["worker", "inline"] as const)(
  "a plugin in the tier %s gives a child its own options and no other plugin's",
  async (tier) => {
    const parent = await (await startTroupe(asking(tier))).session("p");
    const [own, anothers] = await ask(
      parent,
      ["createSession", { sessionId: "p/own", authority: { pluginOptions: { "test.asks-host": { a: 1 } } } }],
      ["createSession", { sessionId: "p/other", authority: { pluginOptions: { "acme.guard": { off: true } } } }],
    );
    expect(own).toMatchObject({ value: { sessionId: "p/own" } });
    expect(anothers).toEqual({ error: "authority_widened" });
  },
);

test("a child spends no more than what is left of its parent's budget, and no child starts when nothing is", async () => {
  // Every model call costs 15 tokens.
  const troupe = await startTroupe(asking("worker", { budget: { maxTokens: 40 } }));
  const parent = await troupe.session("p");
  await parent.turn("hello");
  const { sessionId } = valueIn<{ sessionId: string }>(await askOne(parent, "createSession", {}));
  const child = await troupe.session(sessionId);
  expect(await child.spending()).toMatchObject({ tokens: 0, budget: { maxTokens: 25 } });
  await ask(parent, ["startTurn", sessionId, "one"], ["startTurn", sessionId, "two"]);
  expect(await parent.spending()).toMatchObject({ tokens: 45 });
  expect(await askOne(parent, "startTurn", sessionId, "three")).toEqual({ error: "budget_spent" });
  const next = valueIn<{ sessionId: string }>(await askOne(parent, "createSession", {}));
  expect(await (await troupe.session(next.sessionId)).spending()).toMatchObject({ budget: { maxTokens: 0 } });
  expect(await parent.spending()).toMatchObject({ tokens: 45 });
});

/** A parent that has spent 15 of its tokens, and children that it made. */
async function family(budget: SessionBudget, count: number) {
  const troupe = await startTroupe(asking("worker", { budget }));
  const parent = await troupe.session("p");
  await parent.turn("hello");
  const made = await ask(parent, ...Array.from({ length: count }, () => ["createSession", {}] as const));
  return { troupe, parent, children: made.map((answer) => valueIn<{ sessionId: string }>(answer).sessionId) };
}
const outcomesOf = (answers: readonly Answer[]) =>
  answers.map((answer) => {
    const { outcome } = valueIn<TurnResult>(answer);
    return outcome.type === "stopped" ? outcome.reason : outcome.type;
  });
const startsIn = (children: readonly string[], text: string) =>
  ["@atOnce", ...children.map((id) => ["startTurn", id, text])] as const;

test("children that begin at once spend together what is left, as they would one after another", async () => {
  const { parent, children } = await family({ maxTokens: 100 }, 10);
  const outcomes = outcomesOf(valueIn<Answer[]>(await askOne(parent, ...startsIn(children, "one"))));
  expect(outcomes.sort()).toEqual([...Array(4).fill("budget"), ...Array(6).fill("finished")]);
  // Seven calls of 15 tokens: before the last of them there were 90.
  expect(await parent.spending()).toMatchObject({ tokens: 105 });
});

test("a child that was given more than is left by now is stopped in the middle of its turn", async () => {
  const { parent, children } = await family({ maxTokens: 60 }, 2);
  const [first, second] = children as [string, string];
  await ask(parent, ["startTurn", first, "one"]);
  const steps = told({ call: "weather" }, { call: "weather" }, { call: "weather" }, { say: "done" });
  const [result] = await ask(parent, ["startTurn", second, steps]);
  expect(valueIn<TurnResult>(result)).toMatchObject({ modelCalls: 2, outcome: { reason: "budget" } });
  expect(await parent.spending()).toMatchObject({ tokens: 60 });
});

test("children's children spend what is left for all of them, whichever child they are of", async () => {
  const { parent, children } = await family({ maxTokens: 130 }, 2);
  const calls = Array.from({ length: 6 }, () => ["@child", "one"]);
  const text = told({ call: "ask_host", args: { calls: [["@atOnce", ...calls]] } }, { say: "done" });
  await askOne(parent, ...startsIn(children, text));
  // Nine calls: before the last of them there were 120.
  expect(await parent.spending()).toMatchObject({ tokens: 135 });
});

test("a session and its children together spend what is left, whoever asks first", async () => {
  const { parent, children } = await family({ maxTokens: 90 }, 6);
  // Their turns begin, and nobody waits for them before the session's own.
  const started = await ask(parent, ...children.map((id) => ["@start", id, "one"] as const));
  const own = parent.turn(told({ call: "weather" }, { call: "weather" }, { say: "done" }));
  await own;
  await ask(parent, ...started.map((turn) => ["awaitTurn", valueIn<string>(turn)] as const));
  expect(await parent.spending()).toMatchObject({ tokens: 90 });
});

const twoCalls = told({ call: "weather" }, { call: "weather" }, { say: "done" });

test("a child whose parent's budget pauses goes on when that is raised", async () => {
  const { troupe, parent, children } = await family({ maxTokens: 40, whenSpent: "pause" }, 1);
  const [child = ""] = children;
  const seen: string[] = [];
  const watching = (async () => {
    for await (const { event } of (await troupe.session(child)).observe())
      if (event.type === "activity" && event.activity.type.startsWith("turn_")) seen.push(event.activity.type);
  })();
  await (await troupe.session(child)).setBudget(null);
  const asked = askOne(parent, "startTurn", child, twoCalls);
  await until("it is paused", () => seen.includes("turn_paused"));
  await parent.setBudget({ maxTokens: 60, whenSpent: "pause" });
  expect(valueIn<TurnResult>(await asked)).toMatchObject({ modelCalls: 3, outcome: { type: "finished" } });
  expect(seen).toEqual(["turn_started", "turn_paused", "turn_resumed", "turn_finished"]);
  await troupe.close();
  await watching;
});

test("a child that is cancelled while its parent's budget pauses it takes nothing of what comes later", async () => {
  const { troupe, parent, children } = await family({ maxTokens: 30, whenSpent: "pause" }, 2);
  const [first = "", second = ""] = children;
  for (const id of children) await (await troupe.session(id)).setBudget(null);
  const child = await troupe.session(first);
  const asked = askOne(parent, "startTurn", first, twoCalls);
  for await (const { event } of child.observe({ from: "turn" }))
    if (event.type === "activity" && event.activity.type === "turn_paused") break;
  expect(await child.cancel("enough")).toBe("cancelled");
  expect(valueIn<TurnResult>(await asked)).toMatchObject({ modelCalls: 1, outcome: { reason: "cancelled" } });
  await parent.setBudget({ maxTokens: 45 });
  const [result] = await ask(parent, ["startTurn", second, twoCalls]);
  expect(valueIn<TurnResult>(result)).toMatchObject({ modelCalls: 1, outcome: { reason: "budget" } });
  expect(await parent.spending()).toMatchObject({ tokens: 45 });
});

test.each(["worker", "inline"] as const)(
  "a session whose turn a plugin in the tier %s started cannot start one of who waits for it: the circle is refused, nobody waits, and both have next turns",
  async (tier) => {
    const troupe = await startTroupe(asking(tier));
    const parent = await troupe.session("p");
    await ask(parent, ["createSession", { sessionId: "p/child" }]);
    const back = told({ call: "ask_host", args: { calls: [["startTurn", "p", "hello"]] } }, { say: "@conversation" });
    const [answer] = await askInTurn(parent, ["startTurn", "p/child", back]);
    expect(valueIn<{ text: string }>(answer).text).toContain("session_not_visible");
    for (const id of ["p", "p/child"])
      expect((await (await troupe.session(id)).turn("hi")).outcome.type).toBe("finished");
  },
);
