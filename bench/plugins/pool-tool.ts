import { defineTool } from "troupe";

const { searchParams } = new URL(import.meta.url);
const falls = searchParams.has("falls");
const holdsMs = Number(searchParams.get("holdsMs") ?? 0);

/** A tool of the pool that answers with what it was given, at once or after a while, or ends the thread it runs on. */
export default defineTool({
  description: "Says what it is given.",
  inputSchema: { type: "object", properties: { city: { type: "string" } } },
  async execute({ city }) {
    if (falls) process.exit(1);
    if (holdsMs > 0) await new Promise((resolve) => setTimeout(resolve, holdsMs));
    return String(city);
  },
});
