import { createTroupe, scriptedModel } from "troupe";

const counts = { chunks: ["One, two, ", "three, four."], chunkDelayMs: 60_000 };
const troupe = await createTroupe({ model: scriptedModel({ turns: [[counts], [{ text: "Where was I?" }]] }) });

const session = await troupe.session("chat-42");
const turn = session.turn("Count to ten.", { deadlineMs: 600_000 }); // past it: stopped, with turn_deadline
for await (const activity of turn) {
  if (activity.type === "text_delta") console.log(await session.cancel("The user pressed stop."));
}
console.log((await turn).outcome.type, await session.cancel()); // nothing runs any more
const [, kept] = await session.messages();
console.log(kept?.parts, kept?.interrupted); // the model reads, too, that it was cut off
console.log(await troupe.cancelTurn("chat-42", "t1"), await troupe.cancelTurn("chat-42", "t9"));

await troupe.close();
