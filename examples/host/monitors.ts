import { appendFile, mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createTroupe, scriptedModel } from "troupe";

const folder = await mkdtemp(join(tmpdir(), "troupe-"));
const file = join(folder, "deploy.log");
await writeFile(file, "Deploy 17 begins\n");
const troupe = await createTroupe({
  plugins: [{ module: new URL("./plugins/watcher.js", import.meta.url), permissions: { read: [folder] } }],
  model: scriptedModel({
    turns: [
      [
        { toolCalls: [{ tool: "watch_log", args: { file, pattern: "ERROR|done" } }] },
        { text: "I will tell you when something happens." },
      ],
      [{ text: "The deploy failed: the disk is full." }],
    ],
  }),
});
const session = await troupe.session("ops");
console.log((await session.turn("Watch the deploy.")).text);
await session.park();

// Somebody else goes on. The session is woken by the line that matches, and no model was asked until then.
await appendFile(file, "Copying files\nERROR no space left on device\n");
while ((await session.info()).turns < 2) await new Promise((resolve) => setTimeout(resolve, 5));
for (const { role, parts } of (await session.messages()).slice(-2))
  for (const part of parts) if (part.type === "text") console.log(`${role}: ${part.text}`);
await troupe.close();
