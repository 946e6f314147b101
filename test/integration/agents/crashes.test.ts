import { expect, test } from "vitest";
import { Elsewhere } from "../../support/elsewhere.js";
import { counted } from "../../support/journaled.js";
import { fixture, startTroupe, until } from "../../support/runtime.js";

// A process is killed in the middle of a turn; another one opens its store.

const TOOLS = { ask: { module: fixture("tools/waits.mjs") } };

async function killed(input = "ask answer") {
  const { options, lines } = await counted({
    tools: TOOLS,
    agents: { "support@3": { instructions: "Three.", tools: ["ask"] } },
  });
  const first = new Elsewhere(options, { input, agent: "support", tenant: "acme", extras: { key: "k" } });
  const { key = "" } = await first.says("tool_call_pending");
  await first.kill();
  return { options, key, lines };
}

test("a turn that a killed process left goes on with the agent version it was asked with, although a newer one is there", async () => {
  const { options, key, lines } = await killed();
  const troupe = await startTroupe({
    ...options,
    agents: { ...options.agents, "support@4": { instructions: "Four.", tools: [] } },
  });
  await troupe.completeTool(key, { value: "yes" });
  const session = await troupe.session("s");
  await until("the turn is stored", async () => (await session.info()).turns === 1);
  // It was the session's first turn: what the session was made with is stored with it.
  expect(await session.info()).toMatchObject({ agent: "support@3", tenant: "acme" });
  expect((await session.messages()).at(-1)?.parts).toMatchObject([{ type: "text", text: "answer" }]);
  expect(await lines()).toEqual(["model t1 0", "model t1 1"]);
});

test.each(["refuse", "newest"] as const)(
  "a turn that a killed process left, and whose agent is gone, is stored as stopped with agent_unknown (onMissingAgent: %s)",
  async (onMissingAgent) => {
    const { options, lines } = await killed();
    const troupe = await startTroupe({ ...options, agents: { "support@4": { tools: ["ask"] } }, onMissingAgent });
    const session = await troupe.session("s");
    await until("the turn is stored", async () => (await session.info()).turns === 1);
    expect((await session.info()).agent).toBe("support@3");
    expect(await lines()).toEqual(["model t1 0"]);
    if (onMissingAgent === "refuse") await session.setAgent("support");
    expect((await session.turn("answer")).text).toBe("answer");
    const left = await session.turn("ask answer", { key: "k" });
    expect(left.outcome).toMatchObject({ type: "stopped", reason: "runtime_error" });
    expect(left.issues.map(({ code }) => code)).toEqual(["agent_unknown"]);
    expect((await session.info()).agent).toBe("support@4");
  },
);
