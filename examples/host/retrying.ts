import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createTroupe } from "troupe";

/** A provider on this machine: each gives its answers in order, then the last one again. */
async function provider(...answers: readonly (number | string)[]) {
  let asked = 0;
  const server = createServer((request, response) => {
    request.resume();
    const answer = answers[Math.min(asked++, answers.length - 1)];
    if (typeof answer === "number") return void response.writeHead(answer).end("{}");
    const chunk = (delta: object, finish_reason: string | null) =>
      `data: ${JSON.stringify({ id: "1", choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
    response.end(`${chunk({ content: answer }, null)}${chunk({}, "stop")}data: [DONE]\n\n`);
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  return { server, model: new URL(`./models/local.js?base=${base}`, import.meta.url) };
}

const [first, second] = [await provider(503, "Hello."), await provider("Hello from the second.")];
const [gone] = [await provider(500)];

const troupe = await createTroupe({
  model: first.model,
  models: { gone: gone.model },
  modelRetry: { maxAttempts: 2, baseDelayMs: 10 },
  fallbackModels: [second.model],
  modelOptions: { temperature: 0, maxOutputTokens: 200 },
});
const session = await troupe.session("chat-42");

for (const options of [{}, { model: "gone", modelOptions: { temperature: 1 } }]) {
  const turn = session.turn("Hi!", options);
  for await (const activity of turn) {
    if (activity.type === "model_retry") console.log(`attempt ${activity.attempt}: ${activity.code}`);
    if (activity.type === "model_fallback") console.log("the next model is asked");
  }
  const { text, modelCallRecords } = await turn;
  console.log(`${text} (${modelCallRecords[0]?.attempts.length} attempts)`);
}

await troupe.close();
for (const { server } of [first, second, gone]) server.close();
