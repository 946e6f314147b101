import { createTroupe, scriptedModel } from "troupe";

const bytes = new TextEncoder().encode("the bytes of a picture");

const troupe = await createTroupe({
  models: { eyes: scriptedModel({ turns: [[{ text: "A cat." }]] }) },
  prompt: { slots: { guidance: { contributions: [{ content: "Answer in English." }] } } },
  attachments: { urls: ["images.example"], maxBytes: 1_000_000 },
});
const session = await troupe.session("chat-42");

const input = {
  items: [
    { type: "text", text: "What is on this picture?" },
    { type: "attachment", source: { kind: "inline", mediaType: "image/png", bytes } },
  ],
} as const;
const options = {
  key: "message-17", // asked again under this key, it is the same turn
  model: "eyes", // one of `models`, for this turn
  maxSteps: 4,
  prompt: { slots: { guidance: { contributions: [{ content: "One sentence." }] } } },
};
const first = await session.turn(input, options);
const again = await session.turn(input, options);
console.log(first.text, first.turnIndex === again.turnIndex);

const source = { kind: "url", mediaType: "image/png", url: "https://elsewhere.example/cat.png" } as const;
const { outcome } = await session.turn({ items: [{ type: "attachment", source }] });
if (outcome.type === "stopped") console.log(`${outcome.reason}: ${outcome.message}`);

await troupe.close();
