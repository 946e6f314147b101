import { scriptedModel, type Troupe, type TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { listening } from "../../support/listening.js";
import { fixture, PATIENT, RESIDENT, startTroupe } from "../../support/runtime.js";

/** In each of its turns a hook fails and is passed over, and a tool of the pool throws: another one each time. */
const FAILING: TroupeOptions = {
  ...RESIDENT,
  sessionWorkers: 1,
  plugins: [
    {
      module: fixture("events/faulty.mjs"),
      options: { promptContributor: { throws: "no such table" } },
      onFailure: "skip",
      ...PATIENT,
    },
  ],
  tools: { refund: { module: fixture("tools/throws.mjs") }, payout: { module: fixture("tools/throws.mjs") } },
  model: scriptedModel({
    turns: ["refund", "payout"].map((tool) => [{ toolCalls: [{ tool, args: {} }] }, { text: "No." }]),
  }),
};
/** What asking for the statistics costs itself: one answer from the session worker, one from the store worker. */
const ASKING = 2;

/** What the main thread is sent for one turn: on the lanes, and by Comlink. */
async function messagesOfTurn(troupe: Troupe): Promise<readonly [lane: number, control: number]> {
  const session = await troupe.session("chat-42");
  // The first turn opens lanes and starts the pool's thread.
  await session.turn("hi");
  const before = (await troupe.stats()).mainMessages;
  const { issues, toolCalls } = await session.turn("hi");
  expect(issues).toMatchObject([{ pluginId: "acme.guard" }]);
  expect(toolCalls).toMatchObject([{ output: { status: "failure" } }]);
  const after = (await troupe.stats()).mainMessages;
  return [after.lane - before.lane, after.control - before.control - ASKING];
}

test("a turn in which a hook and a tool fail sends the main thread its result and nothing else when nobody listens", async () => {
  expect(await messagesOfTurn(await startTroupe(FAILING))).toEqual([1, 0]);
});

test("the same turn tells whoever listens of the hook and of the tool", async () => {
  const { onEvent, first, events } = listening();
  const troupe = await startTroupe({ ...FAILING, onEvent });
  // What would be a message more, were it made for nobody; more than one where the first turn was long ago.
  expect((await messagesOfTurn(troupe))[0]).toBeGreaterThanOrEqual(2);
  expect(await first("hook_failed")).toMatchObject({ plugin: "acme.guard", hook: "promptContributor" });
  expect(await first("tool_failed")).toMatchObject({ tool: "refund", home: "pool" });
  await troupe.close();
  // Of two turns: the second's are joined if it came within a second of the first.
  const counts = (type: string) =>
    events.filter((event) => event.type === type).reduce((sum, { count }) => sum + count, 0);
  expect([counts("hook_failed"), counts("tool_failed")]).toEqual([2, 2]);
});
