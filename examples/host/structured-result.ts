import { createTroupe, defineTool, finishTurn, type JsonObject, scriptedModel } from "troupe";
import { z } from "zod";

const report = (args: JsonObject) => ({ toolCalls: [{ tool: "report", args }] });
// At first the model gets it wrong; it reads why, and calls again.
const model = scriptedModel({ turns: [[report({ city: "Oslo" }), report({ city: "Oslo", celsius: 4 })]] });

const Weather = z.object({ city: z.string(), celsius: z.number() });
const troupe = await createTroupe({
  model,
  tools: {
    report: defineTool({
      description: "Gives the final answer. Nothing is said after it.",
      inputSchema: Weather,
      execute: (weather) => finishTurn(weather, { text: `${weather.celsius} °C in ${weather.city}` }),
    }),
  },
});

const session = await troupe.session("weather");
const { outcome, text } = await session.turn("How warm is it in Oslo?");
if (outcome.type === "finished") {
  const { city, celsius } = Weather.parse(outcome.value);
  console.log({ city, celsius, text, toolName: outcome.toolName });
}

await troupe.close();
