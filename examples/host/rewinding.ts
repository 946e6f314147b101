import { createTroupe } from "troupe";

const troupe = await createTroupe(); // answers with an echo

const session = await troupe.session("chat-42");
await session.turn("Hello");
await session.turn("Find me a hotel.");

// "Edit": back to before the question, and another one in its place.
const question = (await session.tree()).findLast(({ active, role }) => active && role === "user");
const { left } = await session.rewind(question?.parent ?? null);
await session.turn("Find me a hostel.");
console.log((await session.messages()).length);

// The first answer is still there, and can be gone back to.
await session.rewind(left);
console.log((await session.messages({ from: -2 })).map(({ parts }) => parts));

await troupe.close();
