import { createTroupe, defineTool, scriptedModel } from "troupe";
import { z } from "zod";

const forecast = defineTool({
  description: "The weather in a city tomorrow.",
  inputSchema: z.object({ city: z.string() }),
  async *execute({ city }, { progress }) {
    progress({ asking: 3, of: "stations" });
    yield `Rain in ${city}, says the airport.`;
    yield `Rain in ${city}, say three stations.`; // the last one is the result
  },
});
const troupe = await createTroupe({
  tools: { forecast },
  model: scriptedModel({
    turns: [[{ toolCalls: [{ tool: "forecast", args: { city: "Oslo" } }] }, { text: "Take an umbrella." }]],
  }),
});

let shown: unknown;
function show(result: unknown): void {
  if (result !== shown) console.log(result);
  shown = result;
}

const turn = (await troupe.session("chat-42")).turn("And tomorrow?");
for await (const activity of turn) {
  if (activity.type === "tool_progress") console.log("…", activity.value);
  if (activity.type === "tool_preliminary") show(activity.output);
  if (activity.type === "tool_call_finished" && activity.output.status === "success") show(activity.output.value);
}
console.log((await turn).text);

await troupe.close();
