import { describe, expect, test } from "vitest";
import {
  estimatedTokens,
  type Message,
  type ModelRequest,
  NO_USAGE,
  type SessionConfig,
  TroupeError,
  textOf,
} from "../../../src/kernel/index.js";
import type { Model } from "../../../src/model/index.js";
import { compactSession } from "../../../src/session/life/requests.js";
import { viewOf } from "../../../src/session/state/session.js";
import type { MemoryStore } from "../../support/memory-store.js";
import { type MemorySessionOptions, memorySession } from "./memory-session.js";

const LONG = "word ".repeat(10);

/**
 * A model that refuses to read more messages than it can, calls a tool where its turn's input says so and answers else. It
 * counts what it was asked: `said` was answered, and so paid for.
 */
function reader(most: number, refuses = (count: number, _calls: number) => count > most) {
  const said: string[] = [];
  const requests: ModelRequest[] = [];
  const model: Model = {
    id: "reader",
    async *stream(request) {
      const { history, turn, direct, step } = request;
      // The lists grow while the session goes on.
      requests.push({ ...request, history: [...history], turn: [...turn] });
      const count = history.length + turn.length;
      if (direct === undefined && refuses(count, said.length))
        throw new TroupeError("context_overflow", `${count} messages are too many.`);
      const wants = direct === undefined && step === 0 && textOf(turn[0] as Message).includes("use");
      said.push(direct?.source ?? `step ${step} of ${count}`);
      if (wants) yield { type: "tool_call", callId: `c${requests.length}`, toolName: "note", argsText: "{}" };
      else yield { type: "text", blockId: "b", text: direct === undefined ? `An answer. ${LONG}` : "All of it." };
      const usage = { ...NO_USAGE, inputTokens: estimatedTokens([...history, ...turn]), outputTokens: 10 };
      yield { type: "finish", reason: wants ? "tool_calls" : "stop", usage };
    },
  };
  return { model, said, requests };
}

const POLICY: Partial<SessionConfig> = { maxContextTokens: 515, compaction: { keepTurns: 1 } };

/** A session with turns behind it, which a model has read. */
async function opened(turns: number, options: MemorySessionOptions) {
  const session = await memorySession({ journals: true, tools: { note: () => "noted" }, ...options });
  for (let n = 1; n <= turns; n++) await session.turn(`Question ${n}. ${LONG}`);
  return session;
}

const shape = (messages: readonly Message[]) =>
  messages.map((message) => `${message.role}: ${textOf(message).slice(0, 12).replace("\n", " ").trim()}`);

describe("a context that has reached its share", () => {
  test("is summed up before the model is called, once, and the turn's own messages stay", async () => {
    const { model, said, requests } = reader(Number.POSITIVE_INFINITY);
    const { turn, session, told } = await opened(10, { model, config: POLICY });
    expect(said).toHaveLength(10);
    const result = await turn("use the tool");
    expect(result).toMatchObject({ outcome: { type: "finished" }, issues: [], modelCalls: 2 });
    expect(said.slice(10)).toEqual(["compaction", "step 0 of 6", "step 1 of 8"]);
    const [, asked] = requests.slice(-3);
    expect(shape([...(asked?.history ?? []), ...(asked?.turn ?? [])])).toEqual([
      "user: Question 1.",
      "assistant: An answer. w",
      "user: [The convers",
      "user: Question 10.",
      "assistant: An answer. w",
      "user: use the tool",
    ]);
    expect(told.filter((type) => type === "context_compacted")).toHaveLength(1);
    expect(await viewOf(session as never)).toMatchObject({ frameId: "frame-11", turnIndex: 11, messageCount: 9 });
  });

  test("is summed up within the turn, by what the call before it read, without what the turn has said", async () => {
    const { model, said } = reader(Number.POSITIVE_INFINITY);
    // Twenty messages of history and one of the turn are below the share, with two more they are beyond.
    const { turn } = await opened(10, { model, config: { ...POLICY, maxContextTokens: 575 } });
    const { outcome } = await turn("use the tool");
    expect(outcome.type).toBe("finished");
    expect(said.slice(10)).toEqual(["step 0 of 21", "compaction", "step 1 of 8"]);
  });

  test("is asked about as the turn's own call would be, so that the provider reads it from its cache", async () => {
    const { model, requests } = reader(Number.POSITIVE_INFINITY);
    const { turn } = await opened(10, { model, config: { ...POLICY, instructions: "Be kind." } });
    await turn("hi");
    const [before, summary] = requests.slice(-3);
    expect(summary?.direct).toEqual({ source: "compaction" });
    expect([summary?.system, summary?.tools]).toEqual([before?.system, before?.tools]);
    expect(summary?.history).toEqual([...(before?.history ?? []), before?.turn[0]].slice(0, 18));
  });

  test("is asked about in the words of the session, or of whoever asks for it, or else in ours", async () => {
    const { model, requests } = reader(Number.POSITIVE_INFINITY);
    const compaction = { keepTurns: 1, instructions: "In a haiku." };
    const { turn, session } = await opened(10, { model, config: { ...POLICY, compaction } });
    await turn("hi");
    expect(textOf(requests.at(-2)?.turn[0] as Message)).toMatch(/^In a haiku\./);
    const other = await opened(10, { model, config: { ...POLICY, maxContextTokens: null } });
    expect(await compactSession(other.session as never, "In a limerick.")).toBe(true);
    expect(requests.at(-1)?.system).toBe("In a limerick.");
    const ours = await opened(10, { model, config: { ...POLICY, maxContextTokens: null } });
    expect(await compactSession(ours.session as never, null)).toBe(true);
    expect(requests.at(-1)?.system).toMatch(/^Sum up this conversation/);
    expect(session.stored.head?.frames).toHaveLength(1);
  });

  test("stays as it is where only plugins' compactors are to sum up, and none has anything", async () => {
    const { model, said } = reader(Number.POSITIVE_INFINITY);
    const compaction = { keepTurns: 1, summary: false };
    const { turn, session } = await opened(10, { model, config: { ...POLICY, compaction } });
    expect(await turn("hi")).toMatchObject({ outcome: { type: "finished" }, issues: [] });
    expect([said.length, session.stored.head?.frames]).toEqual([11, undefined]);
  });

  test("stays as it is when its compaction is off, and costs nothing", async () => {
    const { model, said } = reader(Number.POSITIVE_INFINITY);
    const { turn, session } = await opened(8, { model, config: { maxContextTokens: 100 } });
    await turn("hi");
    expect(said).toHaveLength(9);
    expect(session.stored.head?.frames).toBeUndefined();
  });

  test("is counted by its length in a session whose model was not called since it was opened", async () => {
    const first = reader(Number.POSITIVE_INFINITY);
    const { store } = await opened(10, { model: first.model });
    const { model, said } = reader(Number.POSITIVE_INFINITY);
    const again = await memorySession({ store, journals: true, model, config: { ...POLICY, maxContextTokens: 500 } });
    await again.turn("hi");
    expect(said).toEqual(["compaction", "step 0 of 6"]);
  });
});

describe("a context that the provider refuses as too long", () => {
  const config = { compaction: { keepTurns: 1 } };

  test("is summed up once and asked with again; the record has both attempts", async () => {
    const { model, said } = reader(20);
    const { turn, told } = await opened(10, { model, config });
    const { outcome, modelCallRecords } = await turn("hi");
    expect(outcome.type).toBe("finished");
    expect(said.slice(10)).toEqual(["compaction", "step 0 of 6"]);
    expect(modelCallRecords).toMatchObject([
      {
        attempts: [
          { attempt: 1, outcome: "failed", error: { code: "context_overflow" }, retry: { delayMs: 0 } },
          { attempt: 2, outcome: "completed" },
        ],
      },
    ]);
    expect(told.filter((type) => type.startsWith("model_") || type.startsWith("context_")).slice(-4)).toEqual([
      "model_call_started",
      "context_compacted",
      "model_retry",
      "model_call_finished",
    ]);
  });

  test("ends the turn when it is refused again", async () => {
    const { model, said } = reader(0, (_count, calls) => calls >= 10);
    const { turn } = await opened(10, { model, config });
    const { outcome, issues, modelCallRecords } = await turn("hi");
    expect(outcome).toMatchObject({ reason: "provider_error", code: "context_overflow" });
    expect(issues.map(({ code }) => code)).toEqual(["context_overflow"]);
    expect(said.slice(10)).toEqual(["compaction"]);
    expect(modelCallRecords[0]?.attempts.map(({ attempt }) => attempt)).toEqual([1, 2]);
  });

  test("ends the turn as it would without when there is nothing to sum up", async () => {
    const { model, said } = reader(0);
    const { turn, session } = await opened(0, { model, config });
    expect((await turn("hi")).outcome).toMatchObject({ code: "context_overflow" });
    expect([said, session.stored.head?.frames]).toEqual([[], undefined]);
  });

  test.each([
    ["in the middle of an answer", [{ type: "text_delta", blockId: "b", text: "Well" }], "context_overflow"],
    [
      "by an answer of nothing that ran into its limit",
      [{ type: "finish", reason: "length", usage: { ...NO_USAGE, inputTokens: 529 } }],
      undefined,
    ],
  ] as const)("ends the turn when it is refused %s, which was paid for", async (_, parts, code) => {
    const { model: reads, said } = reader(Number.POSITIVE_INFINITY);
    const model: Model = {
      id: "late",
      async *stream(request, signal) {
        if (said.length < 10 || request.direct !== undefined) yield* reads.stream(request, signal);
        else {
          yield* parts;
          if (code !== undefined) throw new TroupeError(code, "Too long.");
        }
      },
    };
    const { turn, session } = await opened(10, {
      model,
      config: { compaction: { keepTurns: 1, at: 1 }, maxContextTokens: 530 },
    });
    expect((await turn("hi")).outcome).toMatchObject({ code: "context_overflow" });
    expect([said.length, session.stored.head?.frames]).toEqual([10, undefined]);
  });

  test("is summed up by halves where it is too long even for that", async () => {
    const { model: reads, said } = reader(20);
    const asked: number[] = [];
    const model: Model = {
      id: "short",
      async *stream(request, signal) {
        if (request.direct !== undefined) {
          const { length } = request.turn.map(textOf).join("");
          asked.push(length);
          if (request.history.length > 0 || length > 1_000) throw new TroupeError("context_overflow", "Too long.");
        }
        yield* reads.stream(request, signal);
      },
    };
    const { turn } = await opened(10, { model, config });
    expect((await turn("hi")).outcome.type).toBe("finished");
    expect(said.slice(10)).toEqual(["compaction", "compaction", "step 0 of 6"]);
    expect(asked).toHaveLength(4);
  });

  test("goes on unsummed, with an issue, when the summary fails before a call that is not refused", async () => {
    const { model: reads, said } = reader(Number.POSITIVE_INFINITY);
    const model: Model = {
      id: "mute",
      async *stream(request, signal) {
        if (request.direct === undefined) yield* reads.stream(request, signal);
        else yield { type: "finish", reason: "stop", usage: { ...NO_USAGE, inputTokens: 7 } };
      },
    };
    const { turn, session } = await opened(10, { model, config: POLICY });
    const { outcome, issues } = await turn("hi");
    expect(outcome.type).toBe("finished");
    expect(issues).toMatchObject([{ kind: "runtime", code: "compaction_failed" }]);
    expect(said.at(-1)).toBe("step 0 of 21");
    // What the model said in vain is paid all the same.
    expect(session.stored.ledger.find(({ source }) => source === "compaction")?.usage.inputTokens).toBe(7);
  });
});

describe("in one turn", () => {
  /** A compactor that leaves as much as there was, and counts how often it was asked. */
  function idle() {
    const asked: number[] = [];
    const plugin = {
      id: "test.idle",
      version: "1.0.0",
      hooks: {
        contextCompactor({ messageCount }: { readonly messageCount: number }) {
          asked.push(messageCount);
          return { keep: messageCount, initialNodes: [{ kind: "message", message: { role: "user", text: "Idle." } }] };
        },
      },
    };
    return { plugin, asked };
  }

  test("a context that stays beyond its share is summed up before one of its calls, and not before each", async () => {
    const { plugin, asked } = idle();
    const { model, said } = reader(Number.POSITIVE_INFINITY);
    const { turn } = await opened(10, { model, config: POLICY, plugins: [plugin] });
    expect((await turn("use the tool")).outcome.type).toBe("finished");
    expect([asked, said.slice(10)]).toEqual([[20], ["step 0 of 22", "step 1 of 24"]]);
  });

  test("a context that is refused at two of its calls is summed up once: the second refusal ends it", async () => {
    const { plugin, asked } = idle();
    const { model, said } = reader(0, (count) => count === 21 || count >= 24);
    const { turn } = await opened(10, { model, config: { compaction: {} }, plugins: [plugin] });
    expect((await turn("use the tool")).outcome).toMatchObject({ code: "context_overflow" });
    expect([asked, said.slice(10)]).toEqual([[20], ["step 0 of 22"]]);
  });
});

describe("a turn that is taken up behind a crash", () => {
  const CRASH = new TroupeError("store_write_failed", "The process is gone.");

  /** Nothing is written any more from the write of this operation, or the row with this key, on: as of a killed process. */
  function crashing(store: MemoryStore, at: string) {
    let gone = false;
    const guard = (what: string) => {
      gone ||= what.startsWith(at);
      if (gone) throw CRASH;
    };
    const { record, clearJournal } = store;
    store.onCommit = ({ head }) => guard(`commit ${head.operation}`);
    store.record = async (entry) => {
      guard(`row ${entry.key}`);
      return record.call(store, entry);
    };
    store.clearJournal = async (clearing) => {
      guard("clearing");
      return clearJournal.call(store, clearing);
    };
    return () => {
      store.onCommit = () => undefined;
      Object.assign(store, { record, clearJournal });
    };
  }

  const cases: readonly (readonly [string, Partial<SessionConfig>, number, readonly string[]])[] = [
    ["threshold", POLICY, Number.POSITIVE_INFINITY, ["compaction", "step 0 of 6", "step 1 of 8"]],
    ["overflow", { compaction: { keepTurns: 1 } }, 20, ["compaction", "step 0 of 6", "step 1 of 8"]],
  ];
  describe.each(cases)("for its %s", (_, config, most, whole) => {
    test.each([
      ["before the summary is written down", "row compaction:", 1],
      ["between the summary and its frame", "commit frame:", 0],
      ["behind its frame, before the model's answer is written down", "row model:", 1],
      ["behind the model's answer, before the tool's result is", "row tools:", 0],
      ["before the turn is stored", "commit turn:", 1],
    ] as const)(
      "%s: one frame, one cost, and nothing that was written down is asked or paid again",
      async (_, at, unwritten) => {
        const { model, said } = reader(most);
        const { store, turn } = await opened(10, { model, config });
        const mend = crashing(store, at);
        await expect(turn("use the tool")).rejects.toBeDefined();
        mend();
        const paid = said.length - 10;
        const again = await memorySession({ store, journals: true, model, config, tools: { note: () => "noted" } });
        const result = await again.resume();
        expect(result).toMatchObject({ outcome: { type: "finished" }, issues: [] });
        const view = await viewOf(again.session as never);
        expect(view.frames).toHaveLength(1);
        expect(view).toMatchObject({ turnIndex: 11, messageCount: 9 });
        // What was answered and not written down is asked again; nothing else.
        expect(said.slice(10 + paid)).toEqual(whole.slice(paid - unwritten));
        const costs = view.ledger.filter(({ source }) => source === "compaction");
        expect(costs.map(({ usage }) => usage.outputTokens)).toEqual([10]);
        expect(shape(await again.session.past.read())[2]).toBe("user: [The convers");
      },
    );
  });
});
