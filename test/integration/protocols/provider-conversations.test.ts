import { createTroupe, type Troupe } from "troupe";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { anthropicBody, openaiBody, type Said } from "../../model/ai-sdk/wire-bodies.js";
import { anthropic, openai, type Reply, startWireServer, type WireServer } from "../../model/ai-sdk/wire-server.js";
import { expectWellFormed, only } from "../../support/activities.js";
import { collect, fixture, startTroupe, tempFolder } from "../../support/runtime.js";

const tools = {
  weather: {
    description: "Weather",
    inputSchema: { type: "object", properties: { city: { type: "string" } } },
    execute: ({ city }: { city?: string }) => `rain in ${city}`,
  },
  clock: { description: "Time", inputSchema: { type: "object", properties: {} }, execute: () => "noon" },
} as const;

/** What differs between the two clients: how a body is written, and where in a request things are. */
const clients = [
  {
    name: "openai-compatible",
    body: openaiBody,
    errorBody: openai.error,
    model: "local.chat:tiny",
    /** The roles of a request's messages, and what they hold of tools and reasoning. */
    said: (request: unknown) =>
      (request as { messages: OpenaiMessage[] }).messages.map(
        ({ role, content, tool_calls, tool_call_id, reasoning_content }) => [
          role,
          ...(reasoning_content ? [`thought ${reasoning_content}`] : []),
          ...(content && role !== "tool" ? [content] : []),
          ...(tool_calls ?? []).map(({ id, function: { name } }) => `call ${id} ${name}`),
          ...(role === "tool" ? [`result ${tool_call_id} ${content}`] : []),
        ],
      ),
    /** Results come one by one. */
    results: (...results: string[]) => results.map((result) => ["tool", result]),
  },
  {
    name: "anthropic",
    body: anthropicBody,
    errorBody: anthropic.error,
    model: "anthropic.messages:claude-test",
    said: (request: unknown) =>
      (request as { messages: AnthropicMessage[] }).messages.map(({ role, content }) => [
        role,
        ...content.map((part) => {
          if (part.type === "thinking") return `thought ${part.thinking} (${part.signature})`;
          if (part.type === "tool_use") return `call ${part.id} ${part.name}`;
          if (part.type === "tool_result") return `result ${part.tool_use_id} ${part.content}`;
          return part.text;
        }),
      ]),
    /** Results come together. */
    results: (...results: string[]) => [["user", ...results]],
  },
] as const;
type Client = (typeof clients)[number];

interface OpenaiMessage {
  readonly role: string;
  readonly content?: string;
  readonly tool_calls?: readonly { readonly id: string; readonly function: { readonly name: string } }[];
  readonly tool_call_id?: string;
  readonly reasoning_content?: string;
}
interface AnthropicMessage {
  readonly role: string;
  readonly content: readonly {
    readonly type: string;
    readonly text?: string;
    readonly thinking?: string;
    readonly signature?: string;
    readonly id?: string;
    readonly name?: string;
    readonly tool_use_id?: string;
    readonly content?: string;
  }[];
}

async function serve(...replies: [Reply, ...Reply[]]): Promise<WireServer> {
  const server = await startWireServer(...replies);
  onTestFinished(() => server[Symbol.asyncDispose]());
  return server;
}

const modelAt = ({ name }: Client, { url }: WireServer) =>
  fixture(`models/${name}.mjs?base=${encodeURIComponent(url)}`);

describe.each(clients)("a conversation through the real $name client", (client) => {
  const { body, said, results, errorBody } = client;
  const reply = (answer: Said): Reply => ({ body: body(answer) });
  let server: WireServer;
  let troupe: Troupe;
  let sessions = 0;
  beforeAll(async () => {
    server = await startWireServer(reply({ says: "?" }));
    const model = modelAt(client, server);
    troupe = await createTroupe({ sessionWorkers: 1, model, tools, maxContextTokens: 100 });
  });
  afterAll(async () => {
    await troupe.close();
    await server[Symbol.asyncDispose]();
  });

  /** A new session whose worker imported the real client, and a server that gives these replies. */
  const talk = (...replies: [Reply, ...Reply[]]) => {
    server.script(...replies);
    return troupe.session(`s${sessions++}`);
  };

  test("goes through several steps of tools, each seeing what the ones before brought", async () => {
    const session = await talk(
      reply({
        says: "Both.",
        calls: [
          { id: "a", name: "weather", args: { city: "Oslo" } },
          { id: "b", name: "clock", args: {} },
        ],
      }),
      reply({ calls: [{ id: "c", name: "weather", args: { city: "Bergen" } }] }),
      reply({ says: "Rain everywhere." }),
    );
    const turn = session.turn("Weather?");
    const activities = await collect(turn);
    expectWellFormed(activities);
    const result = await turn;
    expect(result).toMatchObject({ text: "Rain everywhere.", modelCalls: 3 });
    expect(result.toolCalls.map(({ output }) => output)).toEqual([
      { status: "success", value: "rain in Oslo" },
      { status: "success", value: "noon" },
      { status: "success", value: "rain in Bergen" },
    ]);
    const first = [
      ["user", "Weather?"],
      ["assistant", "Both.", "call a weather", "call b clock"],
      ...results("result a rain in Oslo", "result b noon"),
    ];
    expect(said(server.requests[1])).toEqual(first);
    expect(said(server.requests[2])).toEqual([
      ...first,
      ["assistant", "call c weather"],
      ...results("result c rain in Bergen"),
    ]);
    expect(result.usage).toMatchObject({ inputTokens: 60, outputTokens: 21 });
    expect((await session.view()).ledger).toMatchObject([
      { source: "turn", model: client.model, usage: { inputTokens: 60, outputTokens: 21 } },
    ]);
  });

  test("brings reasoning back in the next step and in the next turn, the last answer's too", async () => {
    const session = await talk(
      reply({ thinks: "look first", calls: [{ id: "a", name: "clock", args: {} }] }),
      reply({ thinks: "easy", says: "Noon." }),
      reply({ says: "Still noon." }),
    );
    expect((await session.turn("Time?")).text).toBe("Noon.");
    await session.turn("And now?");
    const thought = (words: string) =>
      client.name === "anthropic" ? `thought ${words} (signed ${words})` : `thought ${words}`;
    const first = [
      ["user", "Time?"],
      ["assistant", thought("look first"), "call a clock"],
      ...results("result a noon"),
    ];
    expect(said(server.requests[1])).toEqual(first);
    expect(said(server.requests[2])).toEqual([...first, ["assistant", thought("easy"), "Noon."], ["user", "And now?"]]);
  });

  test("waits as a 429 asks and tries again; the attempt is on record", async () => {
    const session = await talk(
      { status: 429, headers: { "retry-after-ms": "5", "retry-after": "0" }, body: errorBody("slow down") },
      reply({ says: "Hello" }),
    );
    const { text, modelCallRecords } = await session.turn("hi");
    expect(text).toBe("Hello");
    expect(server.requests).toHaveLength(2);
    expect(modelCallRecords).toMatchObject([
      {
        model: client.model,
        route: `${client.model}@${server.url}`,
        attempts: [
          {
            outcome: "failed",
            outputStarted: false,
            error: { code: "model_rate_limited", message: "The model's provider answered 429: slow down" },
            retry: { delayMs: 5, counted: true },
          },
          {
            outcome: "completed",
            usage: { inputTokens: 20, outputTokens: 7 },
            evidence: { servedModel: expect.any(String) },
          },
        ],
      },
    ]);
  });

  test.each([
    ["a 429 that names no time", { status: 429 }, "model_rate_limited"],
    ["a 500", { status: 500 }, "model_server_error"],
    ["a 503 that names a time", { status: 503, headers: { "retry-after-ms": "1" } }, "model_server_error"],
  ])("goes on behind %s, which is asked again", async (_, refusal, code) => {
    const session = await talk({ ...refusal, body: errorBody("no") }, reply({ says: "hello" }));
    const { text, modelCallRecords } = await session.turn("hi", { modelRetry: { baseDelayMs: 1 } });
    expect(text).toBe("hello");
    expect(server.requests).toHaveLength(2);
    expect(modelCallRecords[0]?.attempts).toMatchObject([
      { outcome: "failed", outputStarted: false, error: { code }, retry: { delayMs: expect.any(Number) } },
      { outcome: "completed" },
    ]);
  });

  test("ends with context_overflow when the provider says the prompt is too long", async () => {
    const session = await talk({
      status: 400,
      body: errorBody("prompt is too long: 210000 tokens > 200000 maximum"),
    });
    expect((await session.turn("hi")).outcome).toMatchObject({ reason: "provider_error", code: "context_overflow" });
    expect(server.requests).toHaveLength(1);
  });

  // turn §8.9
  test("ends with context_overflow when nothing could be said behind a prompt that fills the context", async () => {
    const session = await talk(reply({ ends: "length", inputTokens: 96, outputTokens: 0 }));
    expect((await session.turn("hi")).outcome).toMatchObject({ reason: "provider_error", code: "context_overflow" });
  });

  // turn §8.8
  test("ends incomplete when the answer is cut at its limit, and leaves no half of it", async () => {
    const session = await talk(reply({ says: "half", ends: "length" }), reply({ says: "ok" }));
    expect((await session.turn("hi")).outcome).toMatchObject({ reason: "incomplete", code: "output_limit" });
    await session.turn("again");
    expect(said(server.requests[1]).flat()).not.toContain("half");
  });

  test("ends with content_filter when the provider filters the answer", async () => {
    const session = await talk(reply({ says: "I must", ends: "filtered" }));
    const { outcome, modelCallRecords } = await session.turn("hi");
    expect(outcome).toMatchObject({ reason: "provider_error", code: "content_filter" });
    const finishReason = client.name === "anthropic" ? "refusal" : "content_filter";
    expect(modelCallRecords).toMatchObject([{ attempts: [{ outcome: "completed", evidence: { finishReason } }] }]);
    expect((await session.view()).messageCount).toBe(1);
  });

  test("tells nobody the key that a provider repeats when it refuses it", async () => {
    const key = "sk-live-0123456789abcdef";
    const session = await talk({ status: 401, body: errorBody(`Incorrect API key provided: ${key}`) });
    const turn = session.turn("hi");
    const activities = await collect(turn);
    expect((await turn).outcome).toMatchObject({ reason: "provider_error", code: "model_auth_failed" });
    expect(only(activities, "issue")).toHaveLength(1);
    expect(JSON.stringify([activities, await turn])).not.toContain("0123456789abcdef");
  });
});

describe("what an answer carries for its provider alone", () => {
  /** One turn in a runtime of its own, over the same store. */
  async function turnWith(client: Client, server: WireServer, path: string, input: string) {
    const troupe = await startTroupe({ sessionWorkers: 1, model: modelAt(client, server), store: { path } });
    const result = await (await troupe.session("s")).turn(input);
    await troupe.close();
    return result;
  }

  // turn §8.80
  test("goes back to the route that minted it and to no other, and what is dropped is on record", async () => {
    const [openaiClient, anthropicClient] = clients;
    const path = await tempFolder();
    const signed = "thought hm (signed hm)";
    const one = await serve({ body: anthropicBody({ thinks: "hm", says: "One." }) });
    // The same provider and model behind another gateway.
    const two = await serve({ body: anthropicBody({ thinks: "so", says: "Two." }) });
    const three = await serve({ body: openaiBody({ thinks: "well", says: "Three." }) });
    const routes = {
      one: `${anthropicClient.model}@${one.url}`,
      two: `${anthropicClient.model}@${two.url}`,
      three: `${openaiClient.model}@${three.url}`,
    };

    const first = await turnWith(anthropicClient, one, path, "1");
    expect(first.modelCallRecords[0]).toMatchObject({ route: routes.one });
    expect(first.modelCallRecords[0]).not.toHaveProperty("replayDrops");

    const second = await turnWith(anthropicClient, two, path, "2");
    expect(anthropicClient.said(two.requests[0])).toEqual([
      ["user", "1"],
      ["assistant", "One."],
      ["user", "2"],
    ]);
    expect(second.modelCallRecords[0]?.replayDrops).toEqual([{ route: routes.one, messages: 1, parts: 1 }]);

    const third = await turnWith(openaiClient, three, path, "3");
    expect(openaiClient.said(three.requests[0])).toEqual([
      ["user", "1"],
      ["assistant", "One."],
      ["user", "2"],
      ["assistant", "Two."],
      ["user", "3"],
    ]);
    expect(third.modelCallRecords[0]?.replayDrops).toEqual([
      { route: routes.one, messages: 1, parts: 1 },
      { route: routes.two, messages: 1, parts: 1 },
    ]);

    const fourth = await turnWith(anthropicClient, one, path, "4");
    expect(anthropicClient.said(one.requests[1])).toEqual([
      ["user", "1"],
      ["assistant", signed, "One."],
      ["user", "2"],
      ["assistant", "Two."],
      ["user", "3"],
      ["assistant", "Three."],
      ["user", "4"],
    ]);
    expect(fourth.modelCallRecords[0]?.replayDrops).toEqual([
      { route: routes.two, messages: 1, parts: 1 },
      { route: routes.three, messages: 1, parts: 1 },
    ]);
  });
});
