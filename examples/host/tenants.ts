import { createTroupe, scriptedModel } from "troupe";

const usage = { inputTokens: 900, outputTokens: 100 };
const model = scriptedModel({ turns: [[{ text: "It is open.", usage }]] });

const troupe = await createTroupe({
  model,
  tenantBudgets: {
    default: { maxTokens: 2_000, period: "day" },
    tenants: { acme: { maxTokens: 1_000_000, period: "month", whenSpent: "pause" } },
  },
});
for (const id of ["a", "b", "c"]) {
  const session = await troupe.session(id, { tenant: "small" });
  const { outcome } = await session.turn("Is the museum open?");
  console.log(id, outcome.type === "stopped" ? outcome.code : outcome.type);
}
await troupe.setTenantBudget("small", { maxTokens: 5_000, period: "day" }); // stored, and in force at once
const again = await (await troupe.session("c")).turn("And now?");
const { tokens, budget } = await troupe.tenantSpending("small");
console.log(again.text, tokens, budget);

await troupe.close();
