import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import type { Message, ModelRequest } from "../../../src/kernel/index.js";
import {
  createScriptedModel,
  loadModel,
  type Model,
  type ScriptStep,
  scriptedModel,
} from "../../../src/model/index.js";
import { defaultModel } from "../../../src/model/scripted/scripted.js";
import { calm, collect, collectFailure, input, requestOf, textIn } from "../ai-sdk/requests.js";

const only = (...steps: ScriptStep[]) => createScriptedModel({ turns: [steps] }, systemClock);

const toolResult = (text: string): Message => ({
  id: "r",
  role: "tool",
  parts: [{ type: "tool_result", callId: "c", toolName: "weather", status: "success", text }],
});

describe("what a scripted model streams", () => {
  it("cuts text into chunks of the given size and ends with finish", async () => {
    const model = createScriptedModel({ turns: [[{ text: "abcdefgh" }]], chunkSize: 3 }, systemClock);
    expect(await collect(model.stream(requestOf(), calm()))).toEqual([
      { type: "text_delta", blockId: "text", text: "abc" },
      { type: "text_delta", blockId: "text", text: "def" },
      { type: "text_delta", blockId: "text", text: "gh" },
      {
        type: "finish",
        reason: "stop",
        usage: { inputTokens: 2, outputTokens: 2, cacheReadTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 },
      },
    ]);
  });

  it("never cuts between the halves of a surrogate pair", async () => {
    const model = createScriptedModel({ turns: [[{ text: "a😀b😀" }]], chunkSize: 2 }, systemClock);
    const events = await collect(model.stream(requestOf(), calm()));
    expect(events.flatMap((event) => (event.type === "text_delta" ? [event.text] : []))).toEqual(["a😀", "b😀"]);
  });

  it("streams explicit chunks as they are", async () => {
    const events = await collect(only({ chunks: ["You", " said ", "{input}"] }).stream(requestOf(), calm()));
    expect(events.flatMap((event) => (event.type === "text_delta" ? [event.text] : []))).toEqual([
      "You",
      " said ",
      "hello",
    ]);
  });

  it("streams reasoning before text and counts it inside the output tokens", async () => {
    const [reasoning, text, finish] = await collect(
      only({ reasoning: "hmm.", text: "yes." }).stream(requestOf(), calm()),
    );
    expect(reasoning).toEqual({ type: "reasoning_delta", blockId: "reasoning", text: "hmm." });
    expect(text).toEqual({ type: "text_delta", blockId: "text", text: "yes." });
    expect(finish).toMatchObject({ usage: { outputTokens: 2, reasoningTokens: 1 } });
  });

  it("makes tool calls with ids that name turn, step and position", async () => {
    const model = only(
      { text: "unused" },
      {
        toolCalls: [
          { tool: "weather", args: { city: "Oslo" } },
          { tool: "clock" },
          { tool: "x", argsText: "{oops", callId: "mine" },
        ],
      },
    );
    expect(await collect(model.stream(requestOf({ step: 1 }), calm()))).toMatchObject([
      { type: "tool_call", callId: "call_t1_1_0", toolName: "weather", argsText: '{"city":"Oslo"}' },
      { type: "tool_call", callId: "call_t1_1_1", toolName: "clock", argsText: "{}" },
      { type: "tool_call", callId: "mine", toolName: "x", argsText: "{oops" },
      { type: "finish", reason: "tool_calls" },
    ]);
  });

  it("says text and reasoning whole when the step is not streamed, however they are written", async () => {
    const model = createScriptedModel(
      {
        turns: [
          [
            { stream: false, reasoning: "hmm.", text: "You said {input}", toolCalls: [{ tool: "clock" }] },
            { stream: false, chunks: ["a", "b"] },
          ],
        ],
        chunkSize: 2,
      },
      systemClock,
    );
    expect(await collect(model.stream(requestOf(), calm()))).toEqual([
      { type: "reasoning_delta", blockId: "reasoning", text: "hmm." },
      { type: "text", blockId: "text", text: "You said hello" },
      { type: "tool_call", callId: "call_t1_0_0", toolName: "clock", argsText: "{}" },
      {
        type: "finish",
        reason: "tool_calls",
        usage: { inputTokens: 2, outputTokens: 5, cacheReadTokens: 0, cacheWriteTokens: 0, reasoningTokens: 1 },
      },
    ]);
    expect((await collect(model.stream(requestOf({ step: 1 }), calm())))[0]).toEqual({
      type: "text",
      blockId: "text",
      text: "ab",
    });
  });

  it("says nothing whole when a step that is not streamed has no text", async () => {
    const events = await collect(only({ stream: false, toolCalls: [{ tool: "clock" }] }).stream(requestOf(), calm()));
    expect(events.map(({ type }) => type)).toEqual(["tool_call", "finish"]);
  });

  it("says done past the last step of its turn", async () => {
    expect(textIn(await collect(only({ text: "first" }).stream(requestOf({ step: 1 }), calm())))).toBe("done");
  });

  it("reports the finish reason and usage the script gives", async () => {
    const events = await collect(
      only({ text: "x", finish: "length", usage: { inputTokens: 700 } }).stream(requestOf(), calm()),
    );
    expect(events.at(-1)).toMatchObject({ reason: "length", usage: { inputTokens: 700, outputTokens: 1 } });
  });

  it("streams the same events for the same request", async () => {
    const model = only({ text: "You said {input}", toolCalls: [{ tool: "clock" }] });
    expect(await collect(model.stream(requestOf(), calm()))).toEqual(await collect(model.stream(requestOf(), calm())));
  });
});

describe("which step a scripted model plays", () => {
  const model = createScriptedModel({ turns: [[{ text: "one" }], [{ text: "two" }]] }, systemClock);
  const answer = async (request: ModelRequest) => textIn(await collect(model.stream(request, calm())));

  it("follows the turns of the session and starts again after the last", async () => {
    const first = input("a", "t1");
    const second = input("b", "t2");
    expect(await answer(requestOf({ turn: [first] }))).toBe("one");
    expect(await answer(requestOf({ history: [first], turn: [second] }))).toBe("two");
    expect(await answer(requestOf({ history: [first, second], turn: [input("c", "t3")] }))).toBe("one");
  });

  it("does not count messages that a plugin added", async () => {
    const injected: Message = { ...input("note"), origin: { kind: "plugin", pluginId: "acme" } };
    expect(await answer(requestOf({ history: [injected], turn: [input("a")] }))).toBe("one");
  });

  it("never looks at the history when there is one turn", async () => {
    const history = new Proxy([] as Message[], {
      get(_, property) {
        throw new Error(`history.${String(property)} was read`);
      },
    });
    const events = await collect(only({ text: "{input} and {tool_result}" }).stream(requestOf({ history }), calm()));
    expect(textIn(events)).toBe("hello and ");
  });
});

describe("what a scripted model says to direct completions", () => {
  const model = createScriptedModel(
    {
      turns: [[{ text: "a turn" }]],
      direct: [
        { source: "titles", text: "A title", usage: { inputTokens: 9 } },
        { source: "titles", text: "never reached" },
        { source: "facts", text: '{"about":"{input}"}' },
        { source: "broken", fail: { status: 500, message: "no" } },
      ],
    },
    systemClock,
  );
  const ask = (source: string, overrides: Partial<ModelRequest> = {}) =>
    model.stream(requestOf({ direct: { source }, ...overrides }), calm());

  it("is the first answer for their source, with its usage, every time", async () => {
    for (const step of [0, 7]) {
      const events = await collect(ask("titles", { step }));
      expect(textIn(events)).toBe("A title");
      expect(events.at(-1)).toMatchObject({ type: "finish", usage: { inputTokens: 9, outputTokens: 2 } });
    }
  });

  it("may hold the last text of their user, whoever wrote the message", async () => {
    const said: Message = { id: "m", role: "user", parts: [{ type: "text", text: "rain" }] };
    expect(textIn(await collect(ask("facts", { turn: [input("earlier"), said] })))).toBe('{"about":"rain"}');
  });

  it("is the last text of their user when the script has no answer for them", async () => {
    const reply: Message = { id: "a", role: "assistant", parts: [{ type: "text", text: "not this" }] };
    expect(textIn(await collect(ask("unknown", { turn: [input("say it back"), reply] })))).toBe("say it back");
  });

  it("may be an answer for any source", async () => {
    const anybody = createScriptedModel(
      { turns: [[]], direct: [{ source: "a", text: "A" }, { text: "any" }] },
      systemClock,
    );
    const answer = async (source: string) =>
      textIn(await collect(anybody.stream(requestOf({ direct: { source } }), calm())));
    expect([await answer("a"), await answer("b")]).toEqual(["A", "any"]);
  });

  it("may be a failure", async () => {
    expect((await collectFailure(ask("broken"))).error).toMatchObject({ code: "model_server_error", message: "no" });
  });

  it("is not what it says in turns", async () => {
    expect(textIn(await collect(model.stream(requestOf(), calm())))).toBe("a turn");
  });

  it("fails so many attempts for each source on its own", async () => {
    const flaky = createScriptedModel({ turns: [[]], direct: [{ text: "ok", fail: { attempts: 1 } }] }, systemClock);
    const from = (source: string) => flaky.stream(requestOf({ direct: { source } }), calm());
    await collectFailure(from("a"));
    await collectFailure(from("b"));
    expect(textIn(await collect(from("a")))).toBe("ok");
  });
});

describe("placeholders", () => {
  it("are replaced by the turn's input and its last tool result", async () => {
    const turn = [input("weather?"), toolResult("rain"), toolResult("sun")];
    const events = await collect(only({ text: "{input} {tool_result}!" }).stream(requestOf({ turn }), calm()));
    expect(textIn(events)).toBe("weather? sun!");
  });

  it("inside the input stay as the user wrote them", async () => {
    const turn = [input("what is {tool_result} and $& ?"), toolResult("secret")];
    expect(textIn(await collect(only({ text: "{input}" }).stream(requestOf({ turn }), calm())))).toBe(
      "what is {tool_result} and $& ?",
    );
  });

  it("make the default model repeat what the user said", async () => {
    const model = (await loadModel(undefined, systemClock)) as Model;
    expect(textIn(await collect(model.stream(requestOf(), calm())))).toBe("You said: hello");
    expect(defaultModel).toEqual({ kind: "scripted", script: { turns: [[{ text: "You said: {input}" }]] } });
  });
});

describe("failures in a script", () => {
  it("happen before any event unless told otherwise", async () => {
    const model = only({ text: "never", fail: { code: "model_unreachable", message: "no route", retryable: true } });
    const { events, error } = await collectFailure(model.stream(requestOf(), calm()));
    expect(events).toEqual([]);
    expect(error).toMatchObject({ code: "model_unreachable", message: "no route", retryable: true });
  });

  it("happen after so many chunks", async () => {
    const model = only({ chunks: ["a", "b", "c"], fail: { code: "model_stream_cut", afterChunks: 2 } });
    const { events, error } = await collectFailure(model.stream(requestOf(), calm()));
    expect(textIn(events)).toBe("ab");
    expect(error).toMatchObject({ code: "model_stream_cut" });
  });

  it("take code and retryability from a status, as a provider's answer would", async () => {
    const model = only({ fail: { status: 429, retryAfterMs: 1500 } });
    const { error } = await collectFailure(model.stream(requestOf(), calm()));
    expect(error).toMatchObject({
      code: "model_rate_limited",
      retryable: true,
      details: { status: 429, retryAfterMs: 1500 },
    });
  });

  it("stop after the given number of attempts, for each session on its own", async () => {
    const model = only({ text: "at last", fail: { attempts: 2 } });
    await collectFailure(model.stream(requestOf(), calm()));
    await collectFailure(model.stream(requestOf(), calm()));
    await collectFailure(model.stream(requestOf({ sessionId: "other" }), calm()));
    expect(textIn(await collect(model.stream(requestOf(), calm())))).toBe("at last");
  });
});

describe("aborting a scripted model", () => {
  it("wakes it from the delay before its first event", async () => {
    const controller = new AbortController();
    const failing = collectFailure(only({ text: "late", delayMs: 3_600_000 }).stream(requestOf(), controller.signal));
    controller.abort();
    const { events, error } = await failing;
    expect(events).toEqual([]);
    expect(error).toMatchObject({ code: "aborted" });
  });

  it("wakes it from the delay between chunks", async () => {
    const controller = new AbortController();
    const stream = only({ chunks: ["a", "b"], chunkDelayMs: 3_600_000 }).stream(requestOf(), controller.signal);
    const events = stream[Symbol.asyncIterator]();
    expect(await events.next()).toMatchObject({ value: { text: "a" } });
    const next = events.next();
    controller.abort();
    await expect(next).rejects.toMatchObject({ code: "aborted" });
  });

  it("before the call streams nothing", async () => {
    const { events, error } = await collectFailure(only({ text: "x" }).stream(requestOf(), AbortSignal.abort()));
    expect(events).toEqual([]);
    expect(error).toMatchObject({ code: "aborted" });
  });
});

describe("building a script", () => {
  it("takes the steps of one turn as they are", () => {
    expect(scriptedModel([{ text: "hi" }])).toEqual({ kind: "scripted", script: { turns: [[{ text: "hi" }]] } });
  });

  it.each([
    ["no object", null, "script must be an object (got null)"],
    ["no turns", {}, "script.turns is missing: give a list of turns, each a list of steps"],
    ["empty turns", { turns: [] }, "script.turns must hold at least one turn (got a list)"],
    ["a turn that is no list", { turns: [{ text: "x" }] }, "script.turns[0] must be a list (got an object)"],
    ["a misspelt field", { turns: [[{ txt: "x" }]] }, "script.turns[0][0].txt is not known here"],
    [
      "a tool call without a tool",
      { turns: [[{ toolCalls: [{ args: 1 }] }]] },
      "toolCalls[0].tool must be a non-empty string",
    ],
    ["args twice", { turns: [[{ toolCalls: [{ tool: "x", args: 1, argsText: "1" }] }]] }, "has both args and argsText"],
    ["a negative delay", { turns: [[{ delayMs: -1 }]] }, "delayMs must be a number of 0 or more"],
    ["an unknown finish", { turns: [[{ finish: "tool-calls" }]] }, "finish must be one of stop, tool_calls"],
    ["chunks that differ from text", { turns: [[{ text: "ab", chunks: ["a"] }]] }, "chunks must add up to text"],
    ["a stream that is neither", { turns: [[{ stream: "no" }]] }, "stream must be true or false (got string)"],
    ["an answer that is no object", { turns: [[]], direct: ["x"] }, "script.direct[0] must be an object (got string)"],
    [
      "a source without a name",
      { turns: [[]], direct: [{ source: "" }] },
      "direct[0].source must be a non-empty string",
    ],
    ["a source in a turn", { turns: [[{ source: "x" }]] }, "script.turns[0][0].source is not known here"],
    ["no chunk size", { turns: [[]], chunkSize: 0 }, "script.chunkSize must be a whole number of 1 or more"],
    ["no attempts", { turns: [[{ fail: { attempts: 0 } }]] }, "fail.attempts must be a whole number of 1 or more"],
  ])("refuses %s and says where it is wrong", (_, script, message) => {
    const build = () => scriptedModel(script as never); // wrong on purpose
    expect(build).toThrow(expect.objectContaining({ code: "invalid_script" }));
    expect(build).toThrow(message);
  });
});
