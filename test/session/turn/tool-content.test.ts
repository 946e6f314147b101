import { expect, test } from "vitest";
import type { Part } from "../../../src/kernel/index.js";
import { toolContent } from "../../../src/plugin/tool/tool-answer.js";
import { runHere } from "../../../src/tools/tool-code/run-here.js";
import { contentHash } from "../../../src/wire/index.js";
import { MemoryStore } from "../../support/memory-store.js";
import { memorySession } from "./memory-session.js";

const BYTES = new Uint8Array([1, 2, 3]);
const HASH = contentHash(BYTES);

/** What a tool on another thread answers, as it arrives here. */
const arriving = (returned: unknown) =>
  runHere(
    { description: "d", inputSchema: { type: "object" }, execute: () => returned },
    {},
    { sessionId: "s", turnId: "t", callId: "c", completionKey: "k", signal: new AbortController().signal },
  );

const SAYS = [[{ toolCalls: [{ tool: "draw" }, { tool: "slow" }] }, { text: "done" }]] as const;
const resultIn = (parts: readonly Part[]) => parts.find((part) => part.type === "tool_result");

test("an image that a tool gave before a crash is given again when the turn is taken up, and the tool is not called", async () => {
  const store = new MemoryStore();
  let drawn = 0;
  const draw = () => {
    drawn++;
    return arriving(toolContent([{ type: "image", mediaType: "image/png", data: BYTES }]));
  };
  const slow = new Promise<never>(() => undefined);
  const first = await memorySession({ store, journals: true, says: SAYS, tools: { draw, slow: () => slow } });
  first.turn("hi").catch(() => undefined);
  await expect
    .poll(() => store.backend.journal("s").some(({ key }) => key.startsWith("tools:")), { timeout: 30_000 })
    .toBe(true);
  expect(store.backend.component(HASH)).toBeUndefined();

  const second = await memorySession({ store, journals: true, says: SAYS, tools: { draw, slow: () => "late" } });
  expect(await second.resume()).toMatchObject({ text: "done" });
  expect(drawn).toBe(1);
  const [, , results] = await second.session.past.read();
  expect(resultIn(results?.parts ?? [])).toMatchObject({
    content: [{ type: "attachment", mediaType: "image/png", source: { kind: "stored", hash: HASH, bytes: 3 } }],
  });
  expect(store.backend.component(HASH)).toEqual(BYTES);
});

test("an image of a turn that is refused is not stored", async () => {
  const draw = () => arriving(toolContent([{ type: "image", mediaType: "image/png", data: BYTES }]));
  const refuses = {
    id: "test.refuses",
    version: "1.0.0",
    hooks: {
      afterTurn: () => {
        throw new Error("not this one");
      },
    },
  };
  const says = [[{ toolCalls: [{ tool: "draw" }] }, { text: "done" }]];
  const { turn, session, store } = await memorySession({ says, tools: { draw }, plugins: [refuses] });
  await expect(turn("hi")).rejects.toMatchObject({ code: "plugin_finalize_turn" });
  expect(session.blobs.dirty).toBe(false);
  expect(store.backend.component(HASH)).toBeUndefined();
});
