import { createTroupe, scriptedModel } from "troupe";

const model = scriptedModel({
  turns: [
    [
      { reasoning: "The tool knows.", toolCalls: [{ tool: "weather", args: { city: "Oslo" } }] },
      { text: "It is {tool_result} in Oslo." },
    ],
  ],
});
const troupe = await createTroupe({
  model,
  tools: {
    weather: {
      description: "The weather in a city, now.",
      inputSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
      execute: () => "sunny",
    },
  },
});

const session = await troupe.session("chat-42");
const turn = session.turn("What is the weather in Oslo?");
for await (const activity of turn) {
  if (activity.type === "reasoning_delta") console.log(`(${activity.text})`);
  if (activity.type === "tool_call_started") console.log(`${activity.toolName} ${JSON.stringify(activity.args)}`);
  if (activity.type === "text_delta") process.stdout.write(activity.text);
}
const { outcome, modelCalls } = await turn; // stored by now
console.log(`\n${outcome.type} after ${modelCalls} model calls`);

await troupe.close();
