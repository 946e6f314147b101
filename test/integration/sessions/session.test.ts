import { createTroupe, scriptedModel } from "troupe";
import { describe, expect, test } from "vitest";
import {
  collect,
  EMPTY_OBJECT,
  fixture,
  oneToolCall,
  PATIENT,
  plugin,
  RESIDENT,
  refusalOf,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

const partsText = (parts: readonly { readonly type: string }[]) =>
  parts.map((part) => ("text" in part ? String(part.text) : "")).join("");

describe("a session", () => {
  test("answers with the echo script when no model is given", async () => {
    const troupe = await startTroupe();
    const session = await troupe.session("chat-42");
    const result = await session.turn("hello");
    expect(result).toMatchObject({
      sessionId: "chat-42",
      turnId: "t1",
      turnIndex: 1,
      text: "You said: hello",
      revision: 1,
      modelCalls: 1,
      issues: [],
    });
  });

  test("gives a turn both as a stream of activities and as a promise", async () => {
    const troupe = await startTroupe({ model: scriptedModel({ turns: [[{ text: "Hello" }]] }) });
    const turn = (await troupe.session("s")).turn("hi");
    const activities = await collect(turn);
    expect(activities.map(({ type }) => type)).toEqual([
      "turn_started",
      "model_call_started",
      "text_delta",
      "model_call_finished",
      "turn_finished",
    ]);
    const last = activities.at(-1);
    expect(last?.type === "turn_finished" && last.result).toEqual(await turn);
  });

  test("streams from the start also to somebody who listens late", async () => {
    const troupe = await startTroupe({
      model: scriptedModel({ turns: [[{ chunks: ["a", "b", "c"], chunkDelayMs: 30 }]] }),
    });
    const turn = (await troupe.session("s")).turn("hi");
    await new Promise((resolve) => setTimeout(resolve, 45));
    const activities = await collect(turn);
    expect(activities[0]?.type).toBe("turn_started");
    expect(activities.map((activity) => (activity.type === "text_delta" ? activity.text : "")).join("")).toBe("abc");
  });

  test("sends the main thread one message for a turn nobody streams", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1 });
    const session = await troupe.session("s");
    const before = (await troupe.stats()).mainMessages.lane;
    for (let i = 0; i < 5; i++) await session.turn("hi");
    expect((await troupe.stats()).mainMessages.lane - before).toBe(5);
  });

  test("runs one turn at a time, in the order they were asked for", async () => {
    const troupe = await startTroupe({ model: scriptedModel({ turns: [[{ text: "{input}", delayMs: 5 }]] }) });
    const session = await troupe.session("s");
    const results = await Promise.all(["a", "b", "c", "d"].map((input) => session.turn(input)));
    expect(results.map(({ text, turnIndex, revision }) => [text, turnIndex, revision])).toEqual([
      ["a", 1, 1],
      ["b", 2, 2],
      ["c", 3, 3],
      ["d", 4, 4],
    ]);
  });

  test("has what each of many senders says in that sender's order: a hundred of them, on four workers", async () => {
    const [senders, sessions, each] = [100, 20, 10];
    const troupe = await startTroupe({ ...RESIDENT, sessionWorkers: 4, mailboxLimit: each * (senders / sessions) });
    const opened = await Promise.all(Array.from({ length: sessions }, (_, n) => troupe.session(`s${n}`)));
    // All of them by turns, so that what they say is mixed everywhere.
    const turns: PromiseLike<unknown>[] = [];
    for (let said = 0; said < each; said++)
      for (let sender = 0; sender < senders; sender++)
        turns.push((opened[sender % sessions] as (typeof opened)[number]).turn(`${sender}: ${said}`));
    await Promise.all(turns);
    const heard = new Map<string, string[]>();
    for (const session of opened)
      for (const { role, parts } of await session.messages()) {
        const [sender, said] = role === "user" ? partsText(parts).split(": ") : [];
        if (sender !== undefined && said !== undefined) heard.set(sender, [...(heard.get(sender) ?? []), said]);
      }
    const inOrder = Array.from({ length: each }, (_, said) => String(said));
    expect(heard.size).toBe(senders);
    for (const [sender, said] of heard) expect(said, `sender ${sender}`).toEqual(inOrder);
    expect((await troupe.stats()).workers.every(({ sessions: count }) => count > 0)).toBe(true);
  });

  test("refuses a turn when its mailbox is full, and loses none of the others", async () => {
    const troupe = await startTroupe({
      mailboxLimit: 2,
      model: scriptedModel({ turns: [[{ text: "{input}", delayMs: 20 }]] }),
    });
    const session = await troupe.session("s");
    const settled = await Promise.allSettled(["1", "2", "3", "4"].map((input) => session.turn(input)));
    expect(settled.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "fulfilled", "rejected"]);
    const refused = settled[3];
    expect(refused?.status === "rejected" && refused.reason).toMatchObject({
      code: "mailbox_full",
      retryable: true,
      details: { limit: 2 },
    });
    expect((await troupe.stats()).turns).toEqual({ asked: 4, finished: 3, refused: 1 });
  });

  test("a turn that is neither awaited nor iterated runs all the same", async () => {
    const troupe = await startTroupe();
    const session = await troupe.session("s");
    session.turn("hi");
    await until("the turn was stored", async () => (await session.info()).turns === 1);
  });

  test("a cancelled turn ends with its outcome, and the next turn works", async () => {
    const troupe = await startTroupe({
      model: scriptedModel({ turns: [[{ text: "slow", delayMs: 60_000 }], [{ text: "quick" }]] }),
    });
    const session = await troupe.session("s");
    const turn = session.turn("hi");
    for await (const activity of turn) if (activity.type === "model_call_started") turn.cancel("changed my mind");
    expect((await turn).outcome).toEqual({
      type: "stopped",
      reason: "cancelled",
      code: "cancelled",
      message: "changed my mind",
    });
    expect((await session.turn("next")).text).toBe("quick");
  });

  // turn §8.93
  test("leaving the loop does not cancel the turn", async () => {
    const troupe = await startTroupe({ model: scriptedModel({ turns: [[{ chunks: ["a", "b"], chunkDelayMs: 5 }]] }) });
    const turn = (await troupe.session("s")).turn("hi");
    for await (const activity of turn) if (activity.type === "turn_started") break;
    expect((await turn).text).toBe("ab");
  });

  test("stops at the limit of model calls", async () => {
    const troupe = await startTroupe({
      maxSteps: 3,
      model: scriptedModel({
        turns: [Array.from({ length: 10 }, () => ({ toolCalls: [{ tool: "again", args: {} }] }))],
      }),
      tools: { again: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => "go on" } },
    });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.outcome).toMatchObject({ type: "stopped", reason: "max_turns" });
    expect([result.modelCalls, result.toolCalls.length]).toEqual([3, 3]);
  });

  test("carries its history from turn to turn", async () => {
    const troupe = await startTroupe({ model: fixture("models/show-prompt.mjs") });
    const session = await troupe.session("s");
    await session.turn("one");
    const { conversation } = JSON.parse((await session.turn("two")).text);
    expect(conversation.map(([role]: [string]) => role)).toEqual(["user", "assistant", "user"]);
  });

  // turn §8.16
  test("a model that fails ends the turn with a typed outcome, and the session lives on", async () => {
    const troupe = await startTroupe({
      modelRetry: { maxAttempts: 1 },
      model: scriptedModel({
        turns: [
          [{ text: "x", fail: { code: "model_server_error", message: "it broke", status: 500 } }],
          [{ text: "fine" }],
        ],
      }),
    });
    const session = await troupe.session("s");
    expect((await session.turn("hi")).outcome).toEqual({
      type: "stopped",
      reason: "provider_error",
      code: "model_server_error",
      message: "it broke",
    });
    expect((await session.turn("hi")).text).toBe("fine");
  });

  test("closes and opens again with what it had, plugin state included", async () => {
    const troupe = await startTroupe({ plugins: [{ module: plugin("counter") }], model: oneToolCall("count") });
    const session = await troupe.session("s");
    await session.turn("one");
    await session.turn("two");
    await session.close();
    const again = await troupe.session("s");
    expect((await again.turn("three")).toolCalls[0]?.output).toEqual({ status: "success", value: 3 });
    expect((await again.info()).turns).toBe(3);
  });
});

describe("the embedded store", () => {
  test("continues a session after a restart, plugin state included", async () => {
    const path = await tempFolder();
    const options = { store: { path }, plugins: [{ module: plugin("counter") }], model: oneToolCall("count") };
    const first = await createTroupe(options);
    await (await first.session("s")).turn("one");
    await (await first.session("s")).turn("two");
    await first.close();
    const second = await startTroupe(options);
    const result = await (await second.session("s")).turn("three");
    expect(result.turnIndex).toBe(3);
    expect(result.revision).toBe(3);
    expect(result.toolCalls[0]?.output).toEqual({ status: "success", value: 3 });
  });

  const writesOf = async (journal: boolean) => {
    const store = { path: await tempFolder() };
    const troupe = await startTroupe({ store, journal, plugins: [{ module: plugin("counter"), ...PATIENT }] });
    const session = await troupe.session("s");
    await session.turn("one");
    const before = (await troupe.stats()).store;
    await session.turn("two");
    const after = (await troupe.stats()).store;
    const { commits, recorded, records, transactions } = after;
    return {
      commits: commits - before.commits,
      recorded: recorded - before.recorded,
      records: records - before.records,
      transactions: transactions - before.transactions,
    };
  };

  test("writes exactly one commit for a turn, with a head, a segment and the changed state", async () => {
    expect(await writesOf(false)).toEqual({ commits: 1, recorded: 0, records: 3, transactions: 1 });
  });

  test("with a journal also writes down, in one row, that it began and what its model is asked with; an answer nobody sees before the commit is stored with it", async () => {
    const { transactions, ...writes } = await writesOf(true);
    expect(writes).toEqual({ commits: 1, recorded: 1, records: 4 });
    expect(transactions).toBeLessThanOrEqual(2);
  });

  test("an unchanged plugin state is not written again", async () => {
    const troupe = await startTroupe({ plugins: [{ module: plugin("idle-state") }] });
    const session = await troupe.session("s");
    await session.turn("one");
    const before = (await troupe.stats()).store;
    await session.turn("two");
    expect((await troupe.stats()).store.records - before.records).toBe(2);
  });
});

describe("closing", () => {
  test("may be done twice and refuses everything afterwards", async () => {
    const troupe = await startTroupe();
    const session = await troupe.session("s");
    await Promise.all([troupe.close(), troupe.close()]);
    expect((await refusalOf(troupe.session("t"))).code).toBe("closed");
    expect(() => session.turn("hi")).toThrowError(expect.objectContaining({ code: "closed" }));
    expect((await refusalOf(session.fork())).code).toBe("closed");
    expect((await refusalOf(session.close())).code).toBe("closed");
    expect((await refusalOf(troupe.stats())).code).toBe("closed");
  });

  test("lets running turns finish and stores them", async () => {
    const path = await tempFolder();
    const model = scriptedModel({ turns: [[{ text: "done", delayMs: 50 }]] });
    const troupe = await createTroupe({ store: { path }, model });
    const turn = (await troupe.session("s")).turn("hi");
    await until("the turn runs", async () => (await (await troupe.session("s")).info()).state === "running");
    await troupe.close();
    expect((await turn).text).toBe("done");
    const again = await startTroupe({ store: { path }, model });
    expect((await (await again.session("s")).info()).turns).toBe(1);
  });

  test("cancels a turn that does not finish in time", async () => {
    const troupe = await createTroupe({
      drainMs: 50,
      model: scriptedModel({ turns: [[{ text: "never", delayMs: 600_000 }]] }),
    });
    const session = await troupe.session("s");
    const turn = session.turn("hi");
    await until("the turn runs", async () => (await session.info()).state === "running");
    await troupe.close();
    expect((await turn).outcome).toMatchObject({ reason: "cancelled", message: "The runtime is closing." });
  });

  test("happens by itself with await using", async () => {
    let kept: Awaited<ReturnType<typeof createTroupe>>;
    {
      await using troupe = await createTroupe();
      kept = troupe;
      await (await troupe.session("s")).turn("hi");
    }
    expect((await refusalOf(kept.session("s"))).code).toBe("closed");
  });
});
