import { defineTool } from "troupe";
import { z } from "zod";

const SKIES = ["clear", "cloudy", "rainy", "windy"] as const;

/** A closure of the host: it runs on the main thread, beside whatever the application keeps there. */
export const weather = defineTool({
  description: "The weather in a city, now.",
  inputSchema: z.object({ city: z.string() }),
  execute({ city }) {
    return { city, sky: SKIES[city.length % SKIES.length], celsius: (city.length * 7) % 30 };
  },
});
