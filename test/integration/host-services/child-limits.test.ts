import { expect, test } from "vitest";
import { ask, asking, askOne, valueIn } from "../../support/asking.js";
import { startTroupe } from "../../support/runtime.js";

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
