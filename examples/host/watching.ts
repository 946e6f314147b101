import { createTroupe } from "troupe";

const troupe = await createTroupe(); // answers with an echo
const session = await troupe.session("chat-42");

let lastSeen: string | undefined;
async function watch(turnIndex: number): Promise<void> {
  for await (const { cursor, event } of session.observe({ cursor: lastSeen })) {
    lastSeen = cursor;
    if (event.type === "gap") console.log(`something was missed: ${event.reason}`);
    if (event.type === "activity" && event.activity.type === "text_delta") console.log(event.activity.text);
    if (event.type === "committed" && event.turnIndex === turnIndex) return;
  }
}

const watched = watch(1);
await session.view(); // answered: so the watching has begun
await session.turn("one");
await watched;
await session.turn("two"); // nobody looks
await watch(2); // and sees it all the same

await troupe.close();
