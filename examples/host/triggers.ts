import { createTroupe } from "troupe";

const troupe = await createTroupe({ plugins: [{ module: new URL("./plugins/mailbox.js", import.meta.url) }] });
const session = await troupe.session("assistant/ada");
await session.subscribe("mail.received", { filter: { from: "bob" }, input: "Bob wrote. Sum it up." });
await session.park();

// Where mail comes in: a webhook, say. Sent again under its key, it is told once.
const mail = { id: "m-17", from: "bob", subject: "Lunch?" };
const payload = { from: mail.from, subject: mail.subject };
console.log(await troupe.trigger("mail.received", payload, { key: mail.id }));
console.log(await troupe.trigger("mail.received", payload, { key: mail.id }));
console.log(await troupe.trigger("mail.received", { from: "eve", subject: "You won" }));

while ((await session.info()).turns === 0) await new Promise((resolve) => setTimeout(resolve, 5));
const [question] = await session.messages();
for (const part of question?.parts ?? []) if (part.type === "text") console.log(part.text);
await troupe.close();
