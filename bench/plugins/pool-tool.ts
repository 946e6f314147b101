import { defineTool } from "troupe";

const falls = new URL(import.meta.url).searchParams.has("falls");

/** A tool of the pool that answers with what it was given, or ends the thread it runs on. */
export default defineTool({
  description: "Says what it is given.",
  inputSchema: { type: "object", properties: { city: { type: "string" } } },
  execute: ({ city }) => (falls ? process.exit(1) : String(city)),
});
