import { EventEmitter, once } from "node:events";
import { createTroupe, scriptedModel } from "troupe";

const model = scriptedModel({
  turns: [
    [{ toolCalls: [{ tool: "hotels", args: {} }] }, { text: "The hostel has a bed." }],
    [{ text: "You said: {input}" }],
  ],
});
/** The search begins and ends when the program says so, so that it always prints the same. */
const search = new EventEmitter();
const troupe = await createTroupe({
  model,
  tools: {
    hotels: {
      description: "Hotels with a free bed.",
      inputSchema: { type: "object" },
      async execute() {
        search.emit("begun");
        await once(search, "end");
        return ["The Grand", "The hostel"];
      },
    },
  },
});

const session = await troupe.session("trip");
async function stored(turnIndex: number): Promise<void> {
  for await (const { event } of session.observe())
    if (event.type === "committed" && event.turnIndex === turnIndex) return;
}

const turn = session.turn("Find me a bed.");
await once(search, "begun");
const queued = stored(2);
await session.view(); // answered: so the watching has begun
await session.steer("Only the cheap ones, please."); // into this turn, when the search is done
await session.enqueue("And breakfast?"); // the next turn, which begins by itself
search.emit("end");
console.log((await turn).text);
await queued;

for (const { role, parts } of await session.messages())
  for (const part of parts) if (part.type === "text") console.log(`${role}: ${part.text}`);

await troupe.close();
