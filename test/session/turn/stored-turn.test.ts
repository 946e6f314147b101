import { expect, test } from "vitest";
import { type Message, NO_USAGE } from "../../../src/kernel/index.js";
import { definePlugin, nativeToolStep } from "../../../src/plugin/index.js";
import { viewOf } from "../../../src/session/state/session.js";
import { decode, encode } from "../../../src/wire/index.js";
import { MemoryStore } from "../../support/memory-store.js";
import { openActor, servicesOf, unheard } from "../life/memory-actor.js";
import { memoryServices, memorySession } from "./memory-session.js";

/** A protocol that leaves for a second frame in the first turn. */
const leaves = definePlugin({
  id: "test.leaves",
  version: "1.0.0",
  protocol: {
    session: {
      beforeLlmCall: ({ turnId }) =>
        turnId === "t1" ? { kind: "switch_agent_frame", frameId: "second", task: "Go on." } : undefined,
    },
    driver: {
      buildPreamble: ({ tools }) => ({
        toolSpecs: tools,
        executionPrompt: "",
        promptContributions: [],
        syncExecutionEnvironment: false,
        interpret: nativeToolStep,
      }),
    },
  },
});

// turn §8.41
test("what fails behind a turn's own write is its issue: it is stored, and the session is opened anew", async () => {
  const shared = await servicesOf({ protocol: leaves, failing: 2 });
  const actor = openActor(shared);
  const result = await actor.turn("hi", unheard);
  expect(result).toMatchObject({
    outcome: { type: "frame_switch", frameId: "second", task: "Go on." },
    revision: 1,
    issues: [{ kind: "plugin", code: "frame_switch_failed", message: "The disk is full." }],
  });
  await actor.ended();
  expect(actor.failure).toMatchObject({ code: "session_stale", retryable: true });
  // The next life begins with what is stored: the turn, and the frame it left for.
  const again = openActor(shared);
  const { turnIndex, revision, frameId } = await viewOf(await again.opened());
  expect([turnIndex, revision, frameId]).toEqual([1, 2, "second"]);
  expect(await again.turn("still there?", unheard)).toMatchObject({ text: "You said: still there?" });
});

test("what fails before it refuses it: nothing of it is stored", async () => {
  const shared = await servicesOf({ protocol: leaves, failing: 1 });
  const actor = openActor(shared);
  await expect(actor.turn("hi", unheard)).rejects.toMatchObject({ code: "store_write_failed" });
  await actor.ended();
  const { turnIndex, revision, messageCount } = await viewOf(await openActor(shared).opened());
  expect([turnIndex, revision, messageCount]).toEqual([0, 0, 0]);
});

test("usage that is counted while a turn is being stored outlives the session's parking behind that turn", async () => {
  const store = new MemoryStore();
  const shared = await memoryServices({}, store);
  const actor = openActor(shared);
  const session = await actor.opened();
  const { reached, letGo } = store.holdNext();
  const turn = actor.turn("hi", unheard);
  await reached;
  const used = { source: "child", model: "small", usage: { ...NO_USAGE, inputTokens: 10 } };
  await session.spending.record(used);
  letGo();
  await turn;
  await actor.parked();
  const { ledger } = await viewOf(await openActor(shared).opened());
  expect(ledger.filter(({ source }) => source === "child")).toEqual([used]);
});

test("the time of a message is twelve bytes of what is stored of a turn, and nothing else of it has one", async () => {
  const says = [[{ toolCalls: [{ tool: "look", args: {} }] }, { text: "done" }]];
  const { turn, store } = await memorySession({ tools: { look: () => "seen" }, says, journals: true });
  await turn("go");
  const stored = store.commits[0]?.segment?.bytes ?? new Uint8Array();
  const segment = decode<{ readonly messages: readonly Message[] }>(stored);
  const timeless = { ...segment, messages: segment.messages.map(({ at: _at, ...message }) => message) };
  expect(segment.messages.map(({ role, at }) => [role, typeof at])).toEqual([
    ["user", "number"],
    ["assistant", "number"],
    ["tool", "number"],
    ["assistant", "number"],
  ]);
  expect(stored.length - encode(timeless).length).toBe(4 * 12);
  expect(JSON.stringify(timeless)).not.toContain('"at"');
});

test("a turn looks through none of the messages before it for an answer that was cut off, where none was", async () => {
  const { turn, session } = await memorySession();
  for (const input of ["one", "two", "three"]) await turn(input);
  let looked = 0;
  for (const message of await session.past.read())
    Object.defineProperty(message, "interrupted", { get: () => void looked++, enumerable: false });
  expect((await turn("four")).text).toBe("You said: four");
  expect(looked).toBe(0);
});
