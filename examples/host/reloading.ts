import { EventEmitter, once } from "node:events";
import { type Activity, createTroupe, defineTool, type Session, scriptedModel } from "troupe";
import { z } from "zod";

const work = new EventEmitter();
const troupe = await createTroupe({
  model: scriptedModel([
    { chunks: ["Let me ", "look. "], toolCalls: [{ tool: "search", args: {} }] },
    { text: "There is a bed." },
  ]),
  tools: {
    search: defineTool({
      description: "Searches for a bed.",
      inputSchema: z.object({}),
      async execute() {
        const ended = once(work, "end");
        work.emit("begun");
        await ended;
        return "one";
      },
    }),
  },
});
const session = await troupe.session("chat-42");

/** What a page shows that is opened, or reloaded, at any moment. */
async function page(session: Session, signal: AbortSignal): Promise<void> {
  for (const { role, at } of await session.messages()) console.log(`${role}, ${typeof at === "number"}`);
  let shown = "";
  for await (const { event } of session.observe({ from: "turn", signal })) {
    if (event.type === "activity") shown += wordsOf(event.activity);
    if (event.type === "committed" || event.type === "refused") break;
  }
  console.log(shown);
}

const wordsOf = (activity: Activity) => (activity.type === "text_delta" ? activity.text : "");

const begun = once(work, "begun");
const turn = session.turn("Find me a bed.");
await begun;
const { running } = await session.view();
console.log(running?.turnId, running?.step, running?.text);
const opened = page(session, AbortSignal.timeout(60_000)); // in the middle of the turn
await session.view();
work.emit("end");
const { turnId } = await turn;
await opened;
console.log((await session.turnResult(turnId)).text);
console.log((await session.view()).running, await troupe.has("chat-42"), await troupe.has("chat-43"));
await troupe.close();
