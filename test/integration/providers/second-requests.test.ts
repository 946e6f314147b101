import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CONVERSATIONS } from "./conversations.js";
import { allowing, DIFFERENCES, type Difference, UNLIKE } from "./differences.js";
import { heldByAi } from "./held-by-ai.js";
import { heldByTroupe } from "./held-by-troupe.js";
import type { Holding, Sent } from "./holding.js";
import { WIRES } from "./wires.js";

/** Compared as text, the order of fields counts too: a provider's cache sees bytes. */
const textOf = (requests: unknown) => `${JSON.stringify(requests, undefined, 2)}\n`;

/** The last request has the whole conversation; the tools it names are the same in all. */
function conversationIn(requests: readonly Sent[]): unknown {
  const last = requests[requests.length - 1]?.body;
  const { tools, toolConfig, ...conversation } = { tools: undefined, toolConfig: undefined, ...(last as object) };
  return conversation;
}

describe.each(WIRES)("over %s", (wire) => {
  let troupe: Holding;
  let ai: Holding;
  beforeAll(async () => {
    [troupe, ai] = await Promise.all([heldByTroupe(wire), heldByAi(wire)]);
  });
  afterAll(() => Promise.all([troupe.close(), ai.close()]));

  const conversations = CONVERSATIONS.filter(({ wires }) => wires.includes(wire));
  it.each(conversations)(`${wire} is sent a conversation of $name as streamText sends it`, async (conversation) => {
    const allowed = DIFFERENCES.filter(
      (each) => each.conversation === conversation.name && (each.wires ?? conversation.wires).includes(wire),
    );
    const met = new Set<Difference>();
    const ours = await troupe.requestsOf(conversation);
    const theirs = await ai.requestsOf(conversation);
    const expected = textOf(allowing({ ours, theirs }, allowed, met));
    if (conversation.name in UNLIKE) expect(textOf(ours)).not.toBe(expected);
    else expect(textOf(ours)).toBe(expected);
    expect([...met], "a difference that is none any more leaves the list").toEqual(allowed);
    // `npx vitest run test/integration/providers -u` writes it anew.
    await expect(textOf(conversationIn(ours))).toMatchFileSnapshot(`golden/${wire}/${conversation.name}.json`);
  });
});

it("every recorded wire belongs to a conversation", async () => {
  const files = await readdir(new URL("wires", import.meta.url), { recursive: true });
  const recorded = files.filter((file) => file.endsWith(".json")).sort();
  const held = CONVERSATIONS.flatMap(({ name, wires }) => wires.map((wire) => join(wire, `${name}.json`)));
  expect(recorded).toEqual(held.sort());
});
