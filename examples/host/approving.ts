import { createTroupe, defineTool, scriptedModel } from "troupe";
import { z } from "zod";

const refund = (amount: number) => [
  { toolCalls: [{ tool: "refund", args: { amount } }] },
  { text: "The answer was: {tool_result}" },
];
const model = scriptedModel({ turns: [refund(20), refund(300), refund(9_000)] });

const troupe = await createTroupe({
  model,
  tools: {
    refund: defineTool({
      description: "Pays money back.",
      inputSchema: z.object({ amount: z.number() }),
      approval: ({ amount }) => amount > 100 && `Pay ${amount} back?`, // only large ones are asked about
      execute: ({ amount }) => `${amount} paid back`,
    }),
  },
});

const session = await troupe.session("orders");
for (const input of ["It broke.", "It never came.", "I want a boat."]) {
  const turn = session.turn(input);
  for await (const activity of turn) {
    if (activity.type !== "tool_call_pending") continue;
    const { calls } = await troupe.pending({ sessionId: session.id }); // what a reviewer's page shows
    for (const { key, args, announcement } of calls) {
      console.log(announcement.value);
      const { amount } = args as { amount: number };
      if (amount < 1_000) console.log(await troupe.approve(key));
      else console.log(await troupe.deny(key, { reason: "Refunds end at 1,000." }));
    }
  }
  console.log((await turn).text);
}

await troupe.close();
