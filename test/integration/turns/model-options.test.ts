import type { ModelOptions, TroupeOptions } from "troupe";
import { describe, expect, onTestFinished, test } from "vitest";
import { anthropicBody, openaiBody, type Said } from "../../model/ai-sdk/wire-bodies.js";
import { startWireServer } from "../../model/ai-sdk/wire-server.js";
import { gates } from "../../support/journaled.js";
import { EMPTY_OBJECT, fixture, PATIENT, plugin, startTroupe, tempFolder, until } from "../../support/runtime.js";

const tool = (name: string) => ({ description: name, inputSchema: EMPTY_OBJECT, execute: () => name });
const tools = { look: tool("look"), listen: tool("listen") };
const CLIENTS = { "openai-compatible": openaiBody, anthropic: anthropicBody } as const;

/** A session whose model is a real client of a server that says these answers; the last again and again. */
async function talk(
  answers: [Said, ...Said[]],
  options: TroupeOptions = {},
  client: keyof typeof CLIENTS = "openai-compatible",
) {
  const [first, ...more] = answers.map((said) => ({ body: CLIENTS[client](said) }));
  const server = await startWireServer(first as { body: string }, ...more);
  onTestFinished(() => server[Symbol.asyncDispose]());
  const model = fixture(`models/${client}.mjs?base=${encodeURIComponent(server.url)}`);
  const troupe = await startTroupe({ sessionWorkers: 1, model, tools, ...options });
  // What the server was asked, each time.
  const asked = server.requests as readonly Readonly<Record<string, unknown>>[];
  return { troupe, session: await troupe.session("s"), asked, headers: server.headers };
}
const call = (id: string, name: string): Said => ({ calls: [{ id, name, args: {} }] });
const offered = (request: Readonly<Record<string, unknown>> | undefined) =>
  ((request?.tools ?? []) as { function: { name: string } }[]).map(({ function: { name } }) => name);

describe("model options", () => {
  test("are sent as they were given: the turn's over the session's over the runtime's", async () => {
    const { session, asked, headers } = await talk([{ says: "ok" }], {
      modelOptions: {
        temperature: 1,
        topP: 0.9,
        headers: { "x-team": "blue" },
        providerOptions: { local: { user: "somebody" } },
      },
    });
    await session.turn("hi");
    expect(asked[0]).toMatchObject({ temperature: 1, top_p: 0.9, user: "somebody", tool_choice: "auto" });
    await session.configure({ modelOptions: { temperature: 0.5, seed: 7, stopSequences: ["END"] } });
    await session.turn("hi", {
      modelOptions: { temperature: 0, maxOutputTokens: 100, headers: { "x-turn": "2" } },
    });
    expect(asked[1]).toMatchObject({ temperature: 0, top_p: 0.9, seed: 7, stop: ["END"], max_tokens: 100 });
    expect(headers[1]).toMatchObject({ "x-team": "blue", "x-turn": "2" });
    await session.turn("hi");
    expect(asked[2]).toMatchObject({ temperature: 0.5 });
    expect(asked[2]).not.toHaveProperty("max_tokens");
  });

  test("that nobody gave leave nothing in a request", async () => {
    const { session, asked } = await talk([{ says: "ok" }]);
    await session.turn("hi");
    expect(Object.keys(asked[0] ?? {}).sort()).toEqual([
      "messages",
      "model",
      "stream",
      "stream_options",
      "tool_choice",
      "tools",
    ]);
  });

  test("of a session are there when it is opened again, also in a fork", async () => {
    const { troupe, session, asked } = await talk([{ says: "ok" }]);
    await session.configure({ modelOptions: { temperature: 0.25 } });
    const fork = await session.fork();
    await session.close();
    await (await troupe.session("s")).turn("hi");
    await fork.turn("hi");
    expect(asked.map(({ temperature }) => temperature)).toEqual([0.25, 0.25]);
  });

  test("of a turn are those of the turn that is taken up after its worker's death", async () => {
    const gate = gates();
    const { troupe, session, asked } = await talk([call("a", "wait"), { says: "done" }], {
      store: { path: await tempFolder() },
      tools: { wait: gate.tool("wait") },
    });
    const turn = session.turn("hi", { modelOptions: { temperature: 0.75 } }).then(({ text }) => text);
    await until("the tool runs", () => gate.calls.length === 1);
    await troupe.kill({ sessionWorker: 0 });
    await until("the tool runs again", () => gate.calls.length === 2);
    gate.open("wait");
    expect(await turn).toBe("done");
    expect(asked.map(({ temperature }) => temperature)).toEqual([0.75, 0.75]);
  });

  test.each<[string, Partial<ModelOptions>, unknown]>([
    ["required", { toolChoice: "required" }, "required"],
    ["none", { toolChoice: "none" }, "none"],
    ["one tool", { toolChoice: { tool: "look" } }, { type: "function", function: { name: "look" } }],
  ])("choose tools as the provider says it: %s", async (_, modelOptions, choice) => {
    const { session, asked } = await talk([{ says: "ok" }]);
    await session.turn("hi", { modelOptions });
    expect(asked[0]?.tool_choice).toEqual(choice);
  });

  test("ask each provider in its own words for one tool call at a time", async () => {
    const modelOptions = { parallelToolCalls: false };
    const compatible = await talk([{ says: "ok" }], { modelOptions });
    await compatible.session.turn("hi");
    expect(compatible.asked[0]).toMatchObject({ parallel_tool_calls: false });
    const claude = await talk([{ says: "ok" }], { modelOptions }, "anthropic");
    await claude.session.turn("hi");
    expect(claude.asked[0]?.tool_choice).toEqual({ type: "auto", disable_parallel_tool_use: true });
  });

  test("offer only the active tools, and fail a call of another one", async () => {
    const { session, asked } = await talk([call("a", "listen"), { says: "ok" }]);
    const { toolCalls } = await session.turn("hi", { modelOptions: { activeTools: ["look"] } });
    expect(asked.map(offered)).toEqual([["look"], ["look"]]);
    expect(toolCalls[0]?.output).toMatchObject({ status: "failure", failure: { code: "tool_unavailable" } });
    await session.turn("hi");
    expect(offered(asked[2]).sort()).toEqual(["listen", "look"]);
  });

  test("of a plugin count for the next model call only", async () => {
    const { session, asked } = await talk([call("a", "look"), call("b", "look"), { says: "ok" }], {
      plugins: [
        {
          module: plugin("next-call"),
          ...PATIENT,
          options: {
            first: { toolChoice: { tool: "look" }, activeTools: ["look"], temperature: 0 },
            // biome-ignore lint/suspicious/noThenProperty: the plugin's own word for what follows
            then: { activeTools: [] },
          },
        },
      ],
      modelOptions: { temperature: 1 },
    });
    expect((await session.turn("hi")).text).toBe("ok");
    expect(asked.map(({ temperature }) => temperature)).toEqual([0, 1, 1]);
    expect(asked.map(offered)).toEqual([["look"], [], []]);
    expect(asked[0]?.tool_choice).toEqual({ type: "function", function: { name: "look" } });
  });

  test("of a plugin that mean nothing are refused in the plugin's name", async () => {
    const { session, asked } = await talk([{ says: "ok" }], {
      plugins: [{ module: plugin("next-call"), options: { first: { temprature: 0 } }, ...PATIENT }],
    });
    await expect(session.turn("hi")).rejects.toMatchObject({
      code: "plugin_prepare_turn",
      message: expect.stringContaining('modelOptions has no option "temprature". Did you mean "temperature"?'),
    });
    expect(asked).toEqual([]);
  });

  test("that mean nothing refuse the turn, or the change of the session", async () => {
    const { session } = await talk([{ says: "ok" }]);
    expect(() => session.turn("hi", { modelOptions: { temperature: "hot" } as never })).toThrow(
      expect.objectContaining({ code: "invalid_turn_options" }),
    );
    await expect(session.configure({ modelOptions: { seed: 0.5 } })).rejects.toMatchObject({ code: "invalid_config" });
  });
});
