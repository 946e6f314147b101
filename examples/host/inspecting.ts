import { createTroupe } from "troupe";

const troupe = await createTroupe({ parkAfterMs: 60_000 }); // answers with an echo
const session = await troupe.session("chat-42");

const stop = await troupe.inspect(({ event, state }) => console.log(`${event} → ${state}`), { sessions: ["chat-42"] });
await session.turn("Hello");
await session.park();
stop();
await session.turn("Unseen");

await troupe.close();
