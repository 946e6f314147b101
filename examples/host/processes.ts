import { createTroupe, scriptedModel } from "troupe";

const file = new URL("./plugins/grep.js", import.meta.url).pathname;
const troupe = await createTroupe({
  plugins: [{ module: new URL("./plugins/grep.js", import.meta.url), permissions: { processes: true } }],
  model: scriptedModel([{ toolCalls: [{ tool: "grep", args: { word: "definePlugin({", file } }] }, { text: "Found." }]),
});
const session = await troupe.session("reader");
await session.turn("Where is the plugin defined?");
for (const { role, parts } of await session.messages())
  for (const part of parts) if (role === "tool" && part.type === "tool_result") console.log(part.text);
await troupe.close();
