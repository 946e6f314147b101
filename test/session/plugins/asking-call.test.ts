import { describe, expect, test } from "vitest";
import { AskingCall } from "../../../src/session/plugins/plugin-link.js";

const completion = (text: string, signal?: AbortSignal) =>
  ({ method: "directCompletion", args: [{ text }, "title"], signal }) as const;

/** Answers with the number of times it was asked. */
function model() {
  const asked: number[] = [];
  return {
    asked,
    answer: async (nth: number) => {
      asked.push(nth);
      return asked.length;
    },
  };
}

describe("a call that is made again", () => {
  test("is given the answers it was given before, by the order it asks in, and then new ones", async () => {
    const { asked, answer } = model();
    const call = new AskingCall("before_turn:p:0:");
    expect([await call.ask(completion("a"), answer), await call.ask(completion("b"), answer)]).toEqual([1, 2]);
    call.again();
    expect([await call.ask(completion("a"), answer), await call.ask(completion("b"), answer)]).toEqual([1, 2]);
    expect(await call.ask(completion("c"), answer)).toBe(3);
    expect(asked).toEqual([0, 1, 2]);
  });

  test("waits for the answer that is still on its way instead of asking a second time", async () => {
    let give: (value: string) => void = () => undefined;
    const call = new AskingCall(undefined);
    const first = call.ask(completion("a"), () => new Promise((resolve) => (give = resolve)));
    call.again();
    const second = call.ask(completion("a"), () => Promise.reject(new Error("asked twice")));
    give("answer");
    expect([await first, await second]).toEqual(["answer", "answer"]);
  });

  test("is refused everything from where it asks otherwise than before", async () => {
    const { asked, answer } = model();
    const call = new AskingCall("before_turn:p:0:");
    await call.ask(completion("a"), answer);
    await call.ask(completion("b"), answer);
    call.again();
    const mismatch = {
      code: "replay_mismatch",
      message:
        "before_turn:p:0: is not repeating itself: when it was made before, service 1 was directCompletion, now it asks for directCompletion with other arguments.",
    };
    await expect(call.ask(completion("other"), answer)).rejects.toMatchObject(mismatch);
    await expect(call.ask(completion("b"), answer)).rejects.toMatchObject(mismatch);
    expect(asked).toEqual([0, 1]);
  });

  test("asks anew for a service that was given up", async () => {
    const { answer } = model();
    const stop = new AbortController();
    const call = new AskingCall(undefined);
    const given = call.ask(completion("a", stop.signal), () => Promise.reject(new Error("given up")));
    stop.abort();
    await expect(given).rejects.toThrow("given up");
    call.again();
    expect(await call.ask(completion("a"), answer)).toBe(1);
  });

  test("is given the failure it was given before", async () => {
    const { asked, answer } = model();
    const call = new AskingCall(undefined);
    await expect(call.ask(completion("a"), () => Promise.reject(new Error("no")))).rejects.toThrow("no");
    call.again();
    await expect(call.ask(completion("a"), answer)).rejects.toThrow("no");
    expect(asked).toEqual([]);
  });
});
