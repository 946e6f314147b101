import { createHash } from "node:crypto";
import { cpSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { told } from "../../support/asking.js";
import { fixture, startTroupe, tempFolder } from "../../support/runtime.js";

const hashOf = (...bytes: number[]) => createHash("sha256").update(new Uint8Array(bytes)).digest("base64url");
const [DRAWN, MADE] = [hashOf(7, 7, 7), hashOf(1, 2, 3)];
const metadata = { acme: { id: "x" } };

/** As the release had them that brought them; see test/store/fixtures/make-golden-parts.mjs. */
const RESULT = {
  type: "tool_result",
  callId: "call_0",
  toolName: "draw",
  status: "success",
  text: 'Drawn:\n{"bytes":3}\n[image/png drawn.png, 3 bytes]',
  content: [
    { type: "text", text: "Drawn:" },
    { type: "json", value: { bytes: 3 } },
    {
      type: "attachment",
      mediaType: "image/png",
      name: "drawn.png",
      source: { kind: "stored", hash: DRAWN, bytes: 3 },
    },
  ],
};
const ANSWER = [
  { type: "provider_tool_call", callId: "p1", toolName: "web_search", args: { query: "x" }, metadata },
  { type: "provider_tool_result", callId: "p1", toolName: "web_search", value: [{ url: "u" }], metadata },
  { type: "text", text: "Found.", metadata },
  { type: "source", id: "1", source: { kind: "url", url: "https://a.example" } },
  { type: "attachment", mediaType: "image/png", source: { kind: "stored", hash: MADE, bytes: 3 }, metadata },
  { type: "provider", data: { type: "custom", kind: "acme.thing" } },
];

test("a stored session with results and answers of parts, and an agent, is opened as it was, and its model is given all of it", async () => {
  const path = join(await tempFolder(), "store");
  cpSync(fileURLToPath(new URL("../../store/fixtures/golden-v3-parts", import.meta.url)), path, { recursive: true });
  const troupe = await startTroupe({
    sessionWorkers: 1,
    store: { path },
    model: fixture("models/parts.mjs"),
    agents: { "painter@1": { instructions: "Paint." }, "painter@2": { instructions: "Paint more." } },
  });
  const session = await troupe.session("parts");
  expect(await session.info()).toMatchObject({ agent: "painter@1", turns: 1 });
  const { conversation, attachments } = JSON.parse((await session.turn(told())).text);
  expect(conversation.slice(2, 4)).toEqual([
    { role: "tool", parts: [RESULT] },
    { role: "assistant", parts: ANSWER },
  ]);
  expect(attachments).toEqual({ [DRAWN]: "BwcH", [MADE]: "AQID" });
});
