import { createHash } from "node:crypto";
import { join } from "node:path";
import type { TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { expectWellFormed } from "../../support/activities.js";
import { told } from "../../support/asking.js";
import { collect, fixture, startTroupe, tempFolder } from "../../support/runtime.js";

const MADE = new Uint8Array([1, 2, 3]);
const HASH = createHash("sha256").update(MADE).digest("base64url");
const metadata = { acme: { id: "x" } };

const SEARCH = { type: "provider_tool_call", callId: "p1", toolName: "web_search", args: { query: "x" }, metadata };
const FOUND = { type: "provider_tool_result", callId: "p1", toolName: "web_search", value: [{ url: "u" }], metadata };
const SOURCE = { type: "source", id: "1", source: { kind: "url", url: "https://a.example" } };
const OPAQUE = { type: "provider", data: { type: "custom", kind: "acme.thing" } };
const FILE = { type: "attachment", mediaType: "image/png", source: { kind: "stored", hash: HASH, bytes: 3 }, metadata };
const TEXT = { type: "text", text: "Found.", metadata };

/** What the model answers with, and the parts that are kept of it. */
const SAYS = [
  { type: "part", part: SEARCH },
  { type: "part", part: FOUND },
  { type: "text_delta", blockId: "b", text: "Found." },
  { type: "text_end", blockId: "b", metadata },
  { type: "part", part: SOURCE },
  { type: "file", mediaType: "image/png", base64: "AQID", metadata },
  { type: "part", part: OPAQUE },
];
const PARTS = [SEARCH, FOUND, TEXT, SOURCE, FILE, OPAQUE];

const options = (more: TroupeOptions = {}): TroupeOptions => ({
  sessionWorkers: 1,
  model: fixture("models/parts.mjs"),
  tools: {
    web_search: {
      description: "Has the name of the provider's tool",
      inputSchema: { type: "object" },
      execute: () => {
        throw new Error("The provider's call was made here.");
      },
    },
  },
  ...more,
});

test("what a provider did itself, sources, files and unknown parts of an answer are told, stored and given back in their order", async () => {
  const path = join(await tempFolder(), "store");
  const troupe = await startTroupe(options({ store: { path } }));
  const turn = (await troupe.session("s")).turn(told({ say: SAYS }));
  const activities = await collect(turn);
  expectWellFormed(activities);
  const parts = activities.flatMap((activity) => (activity.type === "answer_part" ? [activity.part] : []));
  expect(parts).toEqual([SEARCH, FOUND, SOURCE, FILE, OPAQUE]);
  expect(await turn).toMatchObject({ text: "Found.", toolCalls: [], outcome: { type: "finished" } });
  await troupe.close();

  const again = await startTroupe(options({ store: { path } }));
  const session = await again.session("s");
  expect((await session.messages()).at(-1)).toMatchObject({ role: "assistant", parts: PARTS });
  const given = JSON.parse((await session.turn(told())).text);
  expect(given.conversation[1]).toEqual({ role: "assistant", parts: PARTS });
  expect(given.attachments).toEqual({ [HASH]: "AQID" });

  const other = await startTroupe(options({ store: { path: join(await tempFolder(), "store") } }));
  await other.importSession(await again.exportSession("s"));
  const imported = JSON.parse((await (await other.session("s")).turn(told())).text);
  expect(imported.conversation[1]).toEqual({ role: "assistant", parts: PARTS });
  expect(imported.attachments).toEqual({ [HASH]: "AQID" });
});

test("an answer of nothing but what the provider did itself is an answer, and no empty one", async () => {
  const troupe = await startTroupe(options());
  const result = await (await troupe.session("s")).turn(told({ say: [{ type: "part", part: SEARCH }] }));
  expect(result).toMatchObject({ outcome: { type: "finished", text: "" }, toolCalls: [] });
});
