import { createTroupe, scriptedModel } from "troupe";
import { z } from "zod";

// At first the model gets it wrong; it is told once, and answers again.
const model = scriptedModel({
  turns: [[{ text: '{"city":"Oslo"}' }, { text: '{"city":"Oslo","celsius":4}' }]],
});

const troupe = await createTroupe({ model });

const Weather = z.object({ city: z.string(), celsius: z.number() });
const session = await troupe.session("weather");
const { value, outcome } = await session.turn("How warm is it in Oslo?", { output: Weather });
if (value !== undefined)
  console.log(`${value.celsius} °C in ${value.city}`); // typed by the schema
else console.log(outcome); // why there is no answer

await troupe.close();
