import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createTroupe, scriptedModel, type TroupeOptions } from "troupe";

const folder = await mkdtemp(join(tmpdir(), "troupe-"));
const pages = ["a page of words", "another page"];
const options: TroupeOptions = {
  store: { path: folder },
  plugins: [{ module: new URL("./plugins/indexer.js", import.meta.url) }],
  builtInTools: ["await_task", "list_tasks", "cancel_task"],
  model: scriptedModel({
    turns: [
      [{ toolCalls: [{ tool: "index", args: { pages } }] }, { text: "I have begun." }],
      [{ text: "The index is there." }],
    ],
  }),
};
const first = await createTroupe(options);
const session = await first.session("notes");
console.log((await session.turn("Make an index.")).text);
await first.close();

// The process may end at any point: the task goes on in the next one, and the session is woken by its end.
const troupe = await createTroupe(options);
const again = await troupe.session("notes");
await again.park();
while ((await again.info()).turns < 2) await new Promise((resolve) => setTimeout(resolve, 5));
for (const { role, parts } of (await again.messages()).slice(-2))
  for (const part of parts) if (part.type === "text") console.log(`${role}: ${part.text}`);
const [task] = await again.tasks();
console.log(task?.state, task?.result);
await troupe.close();
await rm(folder, { recursive: true, force: true });
