import { type Activity, createTroupe, type ScriptStep, scriptedModel, type Troupe } from "troupe";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { only, untimed } from "../../support/activities.js";
import { ask, asking, askOne, type Call, spentBeside, turnThatAsks, usage, valueIn } from "../../support/asking.js";
import { collect, startTroupe, until } from "../../support/runtime.js";

const user = (text: string) => ({ role: "user", text });

/** The text that was asked about comes back under its source; the other sources have answers of their own. */
const model = (...steps: readonly ScriptStep[]) =>
  scriptedModel({
    turns: [steps],
    direct: [
      { source: "title", text: "On {input}", usage: { inputTokens: 7, outputTokens: 3 } },
      { source: "json", text: '{"answer":42}', usage: { inputTokens: 2, outputTokens: 2 } },
      {
        source: "thinks",
        reasoning: "Hm.",
        text: "Yes.",
        usage: { inputTokens: 4, outputTokens: 4, reasoningTokens: 2 },
      },
      { source: "fails", fail: { code: "model_overloaded", message: "No.", retryable: false } },
      {
        source: "recovers",
        text: "In the end.",
        fail: { status: 429, retryAfterMs: 1, attempts: 1 },
        usage: { inputTokens: 1, outputTokens: 1 },
      },
      { source: "breaks off", text: "half", finish: "error", usage: { inputTokens: 1, outputTokens: 1 } },
    ],
  });

const direct = (source: string, request: object): Call => ["directCompletion", request, source];

describe.each(["worker", "inline"] as const)("a completion beside the turns, for a plugin in the tier %s", (tier) => {
  let shared: Troupe;
  beforeAll(async () => {
    shared = await createTroupe(asking(tier, { sessionWorkers: 1, model: model() }));
  });
  afterAll(() => shared.close());

  test("gives text or JSON and what it cost, which is stored at once between turns", async () => {
    const session = await shared.session("text");
    expect(await askOne(session, ...direct("title", { system: "Name it.", messages: [user("whales")] }))).toEqual({
      value: { text: "On whales", usage: usage(7, 3) },
    });
    // Stored without a turn ever having run.
    const title = { source: "title", model: "scripted", usage: usage(7, 3) };
    expect(await session.view()).toMatchObject({ revision: 2, turnIndex: 0, ledger: [title] });
    const answers = await ask(
      session,
      direct("json", { messages: [user("?")], output: { type: "json", schema: { type: "object" } } }),
      direct("title", {
        messages: [user("first"), { role: "assistant", text: "" }, user("last")],
        output: { type: "text" },
      }),
      direct("recovers", { messages: [user("?")] }),
      // Nobody scripted an answer: it says what it was asked.
      direct("echo", { messages: [user("12345678")] }),
    );
    expect(answers).toEqual([
      { value: { text: '{"answer":42}', usage: usage(2, 2) } },
      { value: { text: "On last", usage: usage(7, 3) } },
      { value: { text: "In the end.", usage: usage(1, 1) } },
      { value: { text: "12345678", usage: usage(2, 2) } },
    ]);
    const ledger = { title: usage(14, 6), json: usage(2, 2), recovers: usage(1, 1), echo: usage(2, 2) };
    expect(spentBeside(await session.view())).toEqual(ledger);
    // None of it is the session's own use, nor part of its conversation.
    expect(await session.view()).toMatchObject({ usage: usage(0, 0), messageCount: 0 });
    await session.close();
    expect(spentBeside(await (await shared.session("text")).view())).toEqual(ledger);
  });

  test("can be asked with whole messages, and gives the whole response", async () => {
    const session = await shared.session("whole");
    const asked = { messages: [{ id: "m", role: "user", parts: [{ type: "text", text: "Well?" }] }] };
    expect(await askOne(session, "directLlmCompletion", asked, "thinks")).toEqual({
      value: {
        response: {
          parts: [
            { type: "reasoning", text: "Hm." },
            { type: "text", text: "Yes." },
          ],
          reason: "stop",
          usage: { ...usage(4, 4), reasoningTokens: 2 },
        },
        usage: { ...usage(4, 4), reasoningTokens: 2 },
      },
    });
    expect(await askOne(session, "directCompletion", { messages: [user("Well?")] }, "thinks")).toMatchObject({
      value: { text: "Yes." },
    });
    expect(spentBeside(await session.view())).toEqual({ thinks: { ...usage(8, 8), reasoningTokens: 4 } });
  });

  test("in a turn is told as usage, counted beside the turn's own, and stored with it in one write", async () => {
    const calls = [
      direct("title", { messages: [user("one")] }),
      direct("title", { messages: [user("two")] }),
      ["snapshotCurrent"],
    ];
    const troupe = await startTroupe(
      asking(tier, {
        sessionWorkers: 1,
        model: model(
          { toolCalls: [{ tool: "ask_host", args: { calls } as never }], usage: { inputTokens: 1, outputTokens: 1 } },
          { text: "done", usage: { inputTokens: 1, outputTokens: 1 } },
        ),
      }),
    );
    const session = await troupe.session("s");
    const activities = await collect(session.turn("hi"));
    const spent = { type: "usage", source: "title", model: "scripted", usage: usage(7, 3) };
    expect(untimed(only(activities, "usage"))).toEqual([spent, spent]);
    const finished = activities.at(-1) as Extract<Activity, { type: "turn_finished" }>;
    expect(finished.result).toMatchObject({ revision: 1, usage: usage(2, 2), modelCalls: 2 });
    const title = { source: "title", model: "scripted", usage: usage(14, 6) };
    const own = (spent: number) => ({ source: "turn", model: "scripted", usage: usage(spent, spent) });
    expect(finished.result.toolCalls[0]?.output).toMatchObject({
      value: [
        { value: { text: "On one" } },
        { value: { text: "On two" } },
        { value: { ledger: [title, own(1)], usage: usage(1, 1), revision: 0 } },
      ],
    });
    expect(await session.view()).toMatchObject({
      ledger: [own(2), title],
      revision: 1,
      usage: usage(2, 2),
      messageCount: 4,
    });
  });

  test("that the model refuses, or that asks for nothing, fails as the call it is and costs nothing", async () => {
    const session = await shared.session("refused");
    const invalid = { error: "invalid_host_call" };
    expect(
      await ask(
        session,
        direct("fails", { messages: [user("?")] }),
        direct("title", { messages: [] }),
        direct("title", { messages: [user("")] }),
        direct("title", {}),
        direct("title", { messages: [{ role: "tool", text: "x" }] }),
        direct("title", { messages: [{ role: "user" }] }),
        ["directLlmCompletion", { messages: [] }, "title"],
        ["directLlmCompletion", { messages: [{ role: "user", text: "no parts" }] }, "title"],
        ["directLlmCompletion", undefined, "title"],
        direct("", { messages: [user("?")] }),
      ),
    ).toEqual([{ error: "direct_completion_failed" }, ...Array.from({ length: 9 }, () => invalid)]);
    expect((await session.view()).ledger).toEqual([]);
    // Paid for all the same.
    expect(await askOne(session, ...direct("breaks off", { messages: [user("?")] }))).toEqual({
      error: "direct_completion_failed",
    });
    expect(spentBeside(await session.view())).toEqual({ "breaks off": usage(1, 1) });
    expect((await session.turn("hi")).outcome.type).toBe("finished");
  });

  test("asks the model for what the plugin said, in the form it said, and for nothing of the session", async () => {
    const troupe = await startTroupe(asking(tier, { sessionWorkers: 1, instructions: "Be kind." }));
    const session = await troupe.session("s");
    await session.turn("not to be seen");
    const shown = async (...call: Call) => {
      const answer = valueIn<{ text?: string; response?: { parts: { text: string }[] } }>(
        await askOne(session, ...call),
      );
      return JSON.parse(answer.text ?? answer.response?.parts[0]?.text ?? "");
    };
    const output = { type: "json", schema: { type: "object" } };
    const messages = [{ role: "system", text: "Rules." }, user("Who?"), { role: "assistant", text: "" }, user("Me.")];
    expect(await shown("directCompletion", { system: "Answer.", messages, output }, "shows")).toEqual({
      system: "Answer.",
      history: [],
      tools: [],
      asked: [
        ["system", "Rules."],
        ["user", "Who?"],
        ["user", "Me."],
      ],
      direct: { source: "shows", output },
    });
    const call = { type: "tool_call", callId: "c", toolName: "weather", args: {} };
    const whole = [
      { id: "1", role: "user", parts: [{ type: "text", text: "Hm?" }] },
      { id: "2", role: "assistant", parts: [call] },
    ];
    expect(await shown("directLlmCompletion", { messages: whole }, "shows")).toEqual({
      system: "",
      history: [],
      tools: [],
      asked: [
        ["user", "Hm?"],
        ["assistant", "[tool_call]"],
      ],
      direct: { source: "shows" },
    });
  });

  test("is given up with the turn that is cancelled over it", async () => {
    const troupe = await startTroupe(asking(tier, { sessionWorkers: 1 }));
    const session = await troupe.session("s");
    const turn = turnThatAsks(session, direct("hangs", { messages: [user("?")] }));
    for await (const { type } of turn) if (type === "tool_call_started") break;
    const hung = async () => {
      const { text } = valueIn<{ text: string }>(await askOne(other, ...direct("counts", { messages: [user("?")] })));
      return JSON.parse(text);
    };
    const other = await troupe.session("other");
    await until("the model is asked", async () => (await hung()).asked === 1);
    turn.cancel();
    expect((await turn).outcome).toMatchObject({ reason: "cancelled" });
    await until("it is given up", async () => (await hung()).givenUp === 1);
    expect(spentBeside(await session.view())).toEqual({});
  });
});
