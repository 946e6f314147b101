import { describe, expect, onTestFinished, test } from "vitest";
import { anthropic, openai, type Reply, startWireServer } from "../../model/ai-sdk/wire-server.js";
import { collect, fixture, startTroupe } from "../../support/runtime.js";

const tools = {
  weather: {
    description: "Weather",
    inputSchema: { type: "object", properties: { city: { type: "string" } } },
    execute: () => "sunny",
  },
  clock: { description: "Time", inputSchema: { type: "object", properties: {} }, execute: () => "noon" },
} as const;

/** A session whose worker imports the real provider package by URL and talks to a local server in its wire format. */
async function talkTo(provider: "openai-compatible" | "anthropic", ...replies: [Reply, ...Reply[]]) {
  const server = await startWireServer(...replies);
  onTestFinished(() => server[Symbol.asyncDispose]());
  const model = fixture(`models/${provider}.mjs?base=${encodeURIComponent(server.url)}`);
  const troupe = await startTroupe({ sessionWorkers: 1, model, tools, instructions: "Be brief." });
  return { server, session: await troupe.session("s") };
}

describe.each([["openai-compatible", openai, openai.text] as const, ["anthropic", anthropic, anthropic.text] as const])(
  "a session with the real %s client",
  (provider, wire, text) => {
    test("streams text and reports usage", async () => {
      const { session } = await talkTo(provider, { body: text });
      const turn = session.turn("hi");
      const activities = await collect(turn);
      expect(activities.map((activity) => (activity.type === "text_delta" ? activity.text : "")).join("")).toBe(
        "Hello world",
      );
      const { usage, text: answer } = await turn;
      expect(answer).toBe("Hello world");
      expect(usage.outputTokens).toBe(7);
    });

    test("runs parallel tool calls and sends their results back", async () => {
      const { session, server } = await talkTo(provider, { body: wire.toolCalls }, { body: text });
      const result = await session.turn("weather?");
      expect(result.toolCalls.map(({ toolName, output }) => [toolName, output])).toEqual([
        ["weather", { status: "success", value: "sunny" }],
        ["clock", { status: "success", value: "noon" }],
      ]);
      expect(result.text).toBe("Hello world");
      expect(JSON.stringify(server.requests[1])).toContain("sunny");
      expect(JSON.stringify(server.requests[1])).toContain("noon");
    });

    test("ends the turn with a typed outcome when the stream is cut in the middle", async () => {
      const { session, server } = await talkTo(provider, { body: wire.unfinished, hold: true });
      const turn = session.turn("hi");
      for await (const activity of turn) if (activity.type === "text_delta") server.cut();
      const { outcome } = await turn;
      expect(outcome).toMatchObject({ reason: "provider_error", code: "model_stream_cut" });
      expect(server.requests.length).toBe(1);
    });

    test("ends the turn with a typed outcome at malformed events", async () => {
      const { session } = await talkTo(provider, { body: wire.malformed });
      expect((await session.turn("hi")).outcome).toMatchObject({
        reason: "provider_error",
        code: "model_stream_malformed",
      });
    });
  },
);

describe("reasoning", () => {
  test("of Anthropic is kept with its signature and goes back with the next request", async () => {
    const { session, server } = await talkTo("anthropic", { body: anthropic.thinking }, { body: anthropic.text });
    const turn = session.turn("think");
    const activities = await collect(turn);
    expect(activities.map((activity) => (activity.type === "reasoning_delta" ? activity.text : "")).join("")).toBe(
      "Let me think.",
    );
    expect((await turn).text).toBe("42");
    await session.turn("and now?");
    expect(JSON.stringify(server.requests[1])).toContain("c2lnbmVk");
  });

  test("of an OpenAI-compatible server is streamed apart from the text", async () => {
    const { session } = await talkTo("openai-compatible", { body: openai.reasoning });
    const turn = session.turn("think");
    const activities = await collect(turn);
    expect(activities.map((activity) => (activity.type === "reasoning_delta" ? activity.text : "")).join("")).toBe(
      "Let me think.",
    );
    expect((await turn).text).toBe("42");
  });
});
