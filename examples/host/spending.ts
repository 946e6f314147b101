import { createTroupe, scriptedModel, usageReport } from "troupe";

const usage = { inputTokens: 900, outputTokens: 100 };
const look = { toolCalls: [{ tool: "look", args: {} }], usage };
const model = scriptedModel({ turns: [[look, look, { text: "Found it.", usage }]] });

const troupe = await createTroupe({
  model,
  tools: { look: { description: "Looks.", inputSchema: { type: "object" }, execute: () => "nothing" } },
  budget: { maxTokens: 2_000, whenSpent: "pause" }, // for each session
  prices: { scripted: { input: 3, output: 15 } }, // for a million tokens
});
const session = await troupe.session("search");
const turn = session.turn("Find my keys.");
for await (const activity of turn) {
  if (activity.type !== "turn_paused") continue;
  console.log(activity.message);
  await session.setBudget({ maxTokens: 5_000 });
}
const { tokens, cost } = await session.spending();
console.log((await turn).text, { tokens, cost });
const { total } = usageReport((await session.view()).ledger);
console.log(`${total.inputTokens} + ${total.outputTokens} tokens`);

await troupe.close();
