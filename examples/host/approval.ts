import { createTroupe, defineTool, pendingTool, scriptedModel } from "troupe";
import { z } from "zod";

const pay = (amount: number) => [
  { toolCalls: [{ tool: "pay", args: { amount } }] },
  { text: "The answer was: {tool_result}" },
];
const model = scriptedModel({ turns: [pay(120), pay(9_000)] });

const troupe = await createTroupe({
  model,
  tools: {
    pay: defineTool({
      description: "Pays an invoice, once somebody has agreed.",
      inputSchema: z.object({ amount: z.number() }),
      // Asked for here, answered below: an hour is left for it.
      execute: ({ amount }) => pendingTool({ deadlineMs: 3_600_000, announcement: { amount } }),
    }),
  },
});

const session = await troupe.session("invoices");
for (const input of ["Pay the rent.", "Buy the boat."]) {
  const turn = session.turn(input);
  for await (const activity of turn) {
    if (activity.type !== "tool_call_pending") continue;
    const { amount } = activity.args as { amount: number };
    const declined = { failure: { code: "declined", message: `${amount} is too much.` } };
    await troupe.completeTool(activity.key, amount <= 500 ? { value: "paid" } : declined);
  }
  console.log((await turn).text);
}

await troupe.close();
