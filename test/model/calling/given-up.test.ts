import { getEventListeners } from "node:events";
import { describe, expect, it } from "vitest";
import { type Deferred, deferred } from "../../../src/async/index.js";
import { type AttemptRecord, type ModelEvent, NO_USAGE } from "../../../src/kernel/index.js";
import { completeOnce, type Model, streamWithRetry } from "../../../src/model/index.js";
import { hastyClock } from "../../support/manual-clock.js";
import { collect, collectFailure, input, requestOf, textIn } from "../ai-sdk/requests.js";

const said = (text: string): ModelEvent => ({ type: "text_delta", blockId: "0", text });
const FINISH: ModelEvent = { type: "finish", reason: "stop", usage: NO_USAGE };

/** A model that says so much and then neither ends nor heeds its signal, whatever is asked of it. */
function deaf(...events: readonly ModelEvent[]) {
  const asked: Deferred<void> = deferred();
  const answer = deferred<IteratorResult<ModelEvent>>();
  const told: string[] = [];
  const waiting = [...events];
  const model: Model = {
    id: "deaf",
    stream: () => ({
      [Symbol.asyncIterator]: () => ({
        next: () => {
          const value = waiting.shift();
          if (value !== undefined) return Promise.resolve({ done: false, value });
          told.push("next");
          asked.resolve();
          return answer.promise;
        },
        return: () => {
          told.push("return");
          return new Promise<never>(() => {});
        },
      }),
    }),
  };
  return { model, told, asked: asked.promise, answer };
}

/** Streams it, and aborts when `when` says so. */
async function abortedWhen(model: Model, when: Promise<unknown>) {
  const controller = new AbortController();
  const records: AttemptRecord[] = [];
  const failing = collectFailure(
    streamWithRetry(model, requestOf(), {
      signal: controller.signal,
      clock: hastyClock(),
      onAttempt: (record) => records.push(record),
    }),
  );
  await when;
  controller.abort(new Error("Enough."));
  return { ...(await failing), records, listeners: getEventListeners(controller.signal, "abort").length };
}

describe("a model that ignores its signal", () => {
  it.each<[string, readonly ModelEvent[], string]>([
    ["before its first event", [], ""],
    ["between two events", [said("a"), said("b")], "ab"],
    ["while it writes a call", [{ type: "tool_input_delta", callId: "c", toolName: "t", text: "{" }], ""],
  ])("is given up %s when the signal aborts: it is told to end and not waited for", async (_, events, text) => {
    const { model, told, asked } = deaf(...events);
    const { error, events: shown, records, listeners } = await abortedWhen(model, asked);
    expect(error).toMatchObject({ code: "aborted" });
    expect(textIn(shown)).toBe(text);
    expect(told).toEqual(["next", "return"]);
    expect(records).toMatchObject([{ attempt: 1, outcome: "aborted", outputStarted: text !== "" }]);
    expect(records[0]).not.toHaveProperty("retry");
    expect(listeners).toBe(0);
  });

  it.each<[string, (late: ReturnType<typeof deaf>["answer"]) => void]>([
    ["an event", (late) => late.resolve({ done: false, value: said("late") })],
    ["a failure", (late) => late.reject(new Error("The connection broke."))],
  ])("and later comes to %s: that reaches nobody", async (_, comesTo) => {
    const unhandled: unknown[] = [];
    const note = (error: unknown) => unhandled.push(error);
    process.on("unhandledRejection", note);
    try {
      const { model, asked, answer } = deaf(said("a"));
      const { events, records } = await abortedWhen(model, asked);
      comesTo(answer);
      // Node tells of what nobody handled before the event loop turns.
      await new Promise((resolve) => setImmediate(resolve));
      expect([textIn(events), records.length, unhandled]).toEqual(["a", 1, []]);
    } finally {
      process.off("unhandledRejection", note);
    }
  });

  it("and fails when it is told to end is given up as well", async () => {
    const asked = deferred();
    const model: Model = {
      id: "cross",
      stream: () => ({
        [Symbol.asyncIterator]: () => ({
          next: () => {
            asked.resolve();
            return new Promise<never>(() => {});
          },
          return: () => {
            throw new Error("Not me.");
          },
        }),
      }),
    };
    expect((await abortedWhen(model, asked.promise)).error).toMatchObject({ code: "aborted" });
  });

  it("is not asked at all when the signal has aborted by then", async () => {
    const { model, told } = deaf(said("a"));
    const stream = streamWithRetry(model, requestOf(), { signal: AbortSignal.abort(), clock: hastyClock() });
    const { events, error } = await collectFailure(stream);
    expect([events, told]).toEqual([[], ["return"]]);
    expect(error).toMatchObject({ code: "aborted" });
  });

  it("does not keep a reader who leaves, once the signal aborts", async () => {
    const controller = new AbortController();
    const { model, told } = deaf(said("a"), said("b"));
    const records: AttemptRecord[] = [];
    const leaving = (async () => {
      const options = { signal: controller.signal, clock: hastyClock() };
      for await (const _ of streamWithRetry(model, requestOf(), {
        ...options,
        onAttempt: (each) => records.push(each),
      }))
        return;
    })();
    await expect.poll(() => told).toEqual(["return"]);
    controller.abort();
    await leaving;
    expect(records).toMatchObject([{ outcome: "aborted" }]);
  });

  it("does not keep a direct completion", async () => {
    const controller = new AbortController();
    const { model, asked } = deaf(said("half"));
    const question = { sessionId: "s", turnId: "t", system: "", turn: [input("hello")], direct: { source: "titles" } };
    const completing = completeOnce(model, question, { signal: controller.signal, clock: hastyClock() });
    await asked;
    controller.abort();
    await expect(completing).rejects.toMatchObject({ code: "aborted" });
  });
});

describe("a model that comes to its end", () => {
  it("has the answer counted, whatever goes wrong when it clears up", async () => {
    const records: AttemptRecord[] = [];
    const model: Model = {
      id: "untidy",
      async *stream() {
        try {
          yield said("whole");
          yield FINISH;
        } finally {
          // biome-ignore lint/correctness/noUnsafeFinally: it fails there
          throw new Error("The socket was closed already.");
        }
      },
    };
    const options = { signal: new AbortController().signal, clock: hastyClock() };
    const events = await collect(
      streamWithRetry(model, requestOf(), { ...options, onAttempt: (each) => records.push(each) }),
    );
    expect(textIn(events)).toBe("whole");
    expect(records).toMatchObject([{ outcome: "completed" }]);
  });

  it("costs one listener for its whole answer, and none is left", async () => {
    const { signal } = new AbortController();
    const counts: number[] = [];
    const model: Model = {
      id: "counts",
      async *stream() {
        for (let n = 0; n < 3; n++) {
          counts.push(getEventListeners(signal, "abort").length);
          yield said("x");
        }
        yield FINISH;
      },
    };
    await collect(streamWithRetry(model, requestOf(), { signal, clock: hastyClock() }));
    expect([...counts, getEventListeners(signal, "abort").length]).toEqual([1, 1, 1, 0]);
  });
});
