import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { TOKEN, TOKEN_MS } from "../measuring/provider-pace.js";

/** An OpenAI-compatible provider: as many tokens as `max_tokens` says, each a chunk of its own, at an even pace. */
const chunk = (delta: object, finish_reason: string | null) =>
  `data: ${JSON.stringify({ id: "c1", object: "chat.completion.chunk", created: 1, model: "tiny", choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
const SAID = chunk({ content: TOKEN }, null);
const END = `${chunk({}, "stop")}data: [DONE]\n\n`;

const server = createServer(async (request, response) => {
  let body = "";
  for await (const piece of request.setEncoding("utf8")) body += piece;
  let left = (JSON.parse(body) as { max_tokens: number }).max_tokens;
  response.writeHead(200, { "content-type": "text/event-stream" });
  const say = () => {
    if (left-- > 0) return void response.write(SAID);
    clearInterval(timer);
    response.end(END);
  };
  const timer = setInterval(say, TOKEN_MS);
  response.on("close", () => clearInterval(timer));
  say();
});
server.listen(0, "127.0.0.1", () => {
  process.send?.(`http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`);
});
// The bench is gone.
process.on("disconnect", () => process.exit());
