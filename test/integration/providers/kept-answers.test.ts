import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CONVERSATIONS, type Conversation } from "./conversations.js";
import { heldByTroupe } from "./held-by-troupe.js";
import type { Holding } from "./holding.js";

/** The conversation whose second answer is held until the turn is cancelled, in each wire's own words. */
const conversation = CONVERSATIONS.find(({ name }) => name === "cancelled") as Conversation;
const CUT_OFF = "[This answer was cut off here: it was stopped before it was complete.]";

describe.each(conversation.wires)("over %s", (wire) => {
  let troupe: Holding;
  beforeAll(async () => {
    troupe = await heldByTroupe(wire, { keepPartial: true });
  });
  afterAll(() => troupe.close());

  it(`${wire} is sent an answer that was cut off as text alone, with words that say so`, async () => {
    const requests = await troupe.requestsOf(conversation);
    const { tools, toolConfig, ...last } = {
      tools: undefined,
      toolConfig: undefined,
      ...(requests.at(-1)?.body as object),
    };
    const text = JSON.stringify(last);
    expect(text.split(CUT_OFF)).toHaveLength(2);
    // `npx vitest run test/integration/providers -u` writes it anew.
    await expect(`${JSON.stringify(last, undefined, 2)}\n`).toMatchFileSnapshot(`golden/${wire}/kept.json`);
  });
});
