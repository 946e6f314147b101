import { afterEach, describe, expect, it, vi } from "vitest";
import { TroupeError } from "../../src/kernel/index.js";
import type { Lane, LaneOptions, ServedCall } from "../../src/wire/index.js";
import { deferred, lanePair, rejection, startLanePeer } from "./threads.js";

const double: LaneOptions["serve"] = (_, payload) => (payload as number) * 2;

afterEach(() => {
  vi.useRealTimers();
});

describe("a signal", () => {
  it("may serve more lanes than Node likes listeners, without a warning", async () => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error) => warnings.push(warning);
    process.on("warning", onWarning);
    const { signal } = new AbortController();
    const lanes = Array.from({ length: 12 }, () => lanePair({}, { serve: double }).left);
    await Promise.all(lanes.map((lane) => lane.call("double", 1, { signal })));
    process.off("warning", onWarning);
    expect(warnings).toEqual([]);
  });
});

describe("batching", () => {
  it("sends the calls of one tick in one message and their answers in one", async () => {
    const { left, right } = lanePair({}, { serve: double });
    const numbers = Array.from({ length: 20 }, (_, n) => n);
    const answers = await Promise.all(numbers.map((n) => left.call<number>("double", n)));
    expect(answers).toEqual(numbers.map((n) => n + n));
    expect(left.counts).toEqual({ sent: 1, received: 1 });
    expect(right.counts).toEqual({ sent: 1, received: 1 });
  });

  it("sends 24 entries as soon as there are 24, so that the other side begins while this one goes on", async () => {
    const { left, right } = lanePair({}, { serve: double });
    const answers = await Promise.all(Array.from({ length: 100 }, (_, n) => left.call<number>("double", n)));
    expect(answers.at(-1)).toBe(198);
    expect(left.counts).toEqual({ sent: 5, received: 5 });
    expect(right.counts).toEqual({ sent: 5, received: 5 });
  });

  it("counts every continuation of the tick as the same tick", async () => {
    const { left } = lanePair({}, { serve: double });
    const caller = async (waits: number) => {
      for (let i = 0; i < waits; i++) await undefined;
      return left.call<number>("double", waits);
    };
    expect(await Promise.all([caller(0), caller(3), caller(50)])).toEqual([0, 6, 100]);
    expect(left.counts).toEqual({ sent: 1, received: 1 });
  });

  it("sends what is said in different ticks in different messages", async () => {
    const { left } = lanePair({}, { serve: double });
    for (let n = 0; n < 5; n++) expect(await left.call("double", n)).toBe(n + n);
    expect(left.counts).toEqual({ sent: 5, received: 5 });
  });

  it("sends answers of one tick in one message also when they were promised", async () => {
    const gate = deferred();
    const arrived = deferred();
    const serve = (_: string, payload: unknown) => {
      if (payload === 3) arrived.resolve();
      return gate.promise.then(() => payload);
    };
    const { left, right } = lanePair({}, { serve });
    const calls = [1, 2, 3].map((n) => left.call<number>("later", n));
    await arrived.promise;
    gate.resolve();
    expect(await Promise.all(calls)).toEqual([1, 2, 3]);
    expect(right.counts).toEqual({ sent: 1, received: 1 });
  });

  it("works the same way to a real thread", async () => {
    const { lane } = startLanePeer();
    const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => lane.call<number>("double", n)));
    expect(answers.reduce((sum, n) => sum + n, 0)).toBe(380);
    expect(lane.counts).toEqual({ sent: 1, received: 1 });
    expect(await lane.call("counts", undefined)).toEqual({ sent: 1, received: 2 });
  });

  it("sends nothing when nothing is said", async () => {
    const { left, right } = lanePair();
    await new Promise(setImmediate);
    expect(left.counts).toEqual({ sent: 0, received: 0 });
    expect(right.counts).toEqual({ sent: 0, received: 0 });
  });
});

describe("order", () => {
  it("keeps notes and calls as they were said", async () => {
    const heard: string[] = [];
    const { left } = lanePair(
      {},
      {
        onNote: (topic, payload) => heard.push(`note ${topic} ${payload}`),
        serve: (method, payload) => heard.push(`call ${method} ${payload}`),
      },
    );
    left.note("open", 1);
    const first = left.call("hook", 2);
    left.note("close", 3);
    await Promise.all([first, left.call("hook", 4)]);
    left.note("open", 5);
    await left.call("hook", 6);
    expect(heard).toEqual(["note open 1", "call hook 2", "note close 3", "call hook 4", "note open 5", "call hook 6"]);
  });

  it("lets both sides call each other", async () => {
    const { left, right } = lanePair({ serve: () => "from left" }, { serve: () => left.lost || right.call("back", 0) });
    expect(await left.call("there", 0)).toBe("from left");
  });
});

describe("errors of the other side", () => {
  it("arrive with their code, thrown or rejected", async () => {
    const { left } = lanePair(
      {},
      {
        serve(method) {
          const error = new TroupeError("budget_spent", "None left.", { retryable: true, details: { max: 1 } });
          if (method === "throw") throw error;
          return Promise.reject(error);
        },
      },
    );
    for (const method of ["throw", "reject"]) {
      expect(await rejection(left.call(method, 0))).toMatchObject({
        code: "budget_spent",
        retryable: true,
        details: { max: 1 },
      });
    }
  });

  it("is unknown_method when the other side serves nothing", async () => {
    const { left } = lanePair();
    expect(await rejection(left.call("hook", 0))).toMatchObject({
      code: "unknown_method",
      message: "This side of the lane does not serve hook.",
    });
  });

  it("fails only the call whose answer has a `then` that throws", async () => {
    const hostile = {
      // biome-ignore lint/suspicious/noThenProperty: a plugin may answer with anything
      get then() {
        throw new Error("not thenable after all");
      },
    };
    const { left } = lanePair({}, { serve: (method) => (method === "hostile" ? hostile : "fine") });
    const [bad, good] = await Promise.allSettled([left.call("hostile", 0), left.call("other", 0)]);
    expect(bad).toMatchObject({ status: "rejected", reason: { message: "not thenable after all" } });
    expect(good).toEqual({ status: "fulfilled", value: "fine" });
  });
});

describe("a deadline", () => {
  const silent: LaneOptions["serve"] = () => new Promise(() => {});

  it("fails the call with the given code and says how long it waited", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    const { left } = lanePair({}, { serve: silent });
    const call = rejection(left.call("hook", 0, { deadlineMs: 5_000, deadlineCode: "hook_timeout" }));
    vi.advanceTimersByTime(5_000);
    expect(await call).toMatchObject({
      code: "hook_timeout",
      message: "left: hook did not answer within 5000 ms.",
      retryable: true,
      details: { method: "hook", deadlineMs: 5000 },
    });
    expect(left.pending).toBe(0);
  });

  it("is call_timeout unless another code is given", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    const { left } = lanePair({}, { serve: silent });
    const call = rejection(left.call("hook", 0, { deadlineMs: 10 }));
    vi.advanceTimersByTime(10);
    expect(await call).toMatchObject({ code: "call_timeout" });
  });

  it("tells the served side to stop", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    const stopped = deferred<string>();
    const serve = (method: string, _: unknown, { signal }: ServedCall) =>
      new Promise(() => signal.addEventListener("abort", () => stopped.resolve(method)));
    const { left } = lanePair({}, { serve });
    const call = rejection(left.call("hook", 0, { deadlineMs: 10 }));
    vi.advanceTimersByTime(10);
    await call;
    expect(await stopped.promise).toBe("hook");
  });

  it("is forgotten when the answer comes", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    const { left, right } = lanePair({}, { serve: double });
    expect(await left.call("double", 2, { deadlineMs: 10 })).toBe(4);
    vi.advanceTimersByTime(1_000);
    // A cancel would be a second message before this call's.
    expect(await left.call("double", 3)).toBe(6);
    expect(right.counts.received).toBe(2);
  });

  it("is met by a thread that is blocked", async () => {
    const { lane } = startLanePeer();
    expect(await lane.call("double", 1)).toBe(2);
    expect(await rejection(lane.call("spin", 0, { deadlineMs: 20, deadlineCode: "hook_timeout" }))).toMatchObject({
      code: "hook_timeout",
    });
  });
});

describe("an AbortSignal", () => {
  it("fails the call and aborts the served side's signal", async () => {
    const started = deferred();
    const stopped = deferred();
    const serve = (_: string, __: unknown, { signal }: ServedCall) => {
      signal.addEventListener("abort", () => stopped.resolve());
      started.resolve();
      return new Promise(() => {});
    };
    const { left } = lanePair({}, { serve });
    const controller = new AbortController();
    const call = rejection(left.call("hook", 0, { signal: controller.signal }));
    await started.promise;
    controller.abort(new Error("the user left"));
    expect(await call).toMatchObject({ code: "aborted", cause: expect.objectContaining({ message: "the user left" }) });
    await stopped.promise;
    expect(left.pending).toBe(0);
  });

  it("is seen by a served side that looks at its signal only later", async () => {
    const cancelled = deferred();
    const seen = deferred<boolean>();
    const serve = (method: string, _: unknown, call: ServedCall) => {
      if (method === "hook") return cancelled.promise.then(() => seen.resolve(call.signal.aborted));
      cancelled.resolve();
      return undefined;
    };
    const { left } = lanePair({}, { serve });
    const controller = new AbortController();
    const call = rejection(left.call("hook", 0, { signal: controller.signal }));
    controller.abort();
    await call;
    await left.call("go on", 0);
    expect(await seen.promise).toBe(true);
  });

  it("gives its reason itself when that is a TroupeError", async () => {
    const reason = new TroupeError("turn_suspended", "The host cancelled.");
    const { left } = lanePair({}, { serve: () => new Promise(() => {}) });
    const controller = new AbortController();
    const call = rejection(left.call("hook", 0, { signal: controller.signal }));
    controller.abort(reason);
    expect(await call).toBe(reason);
  });

  it("that is already aborted sends no message at all", async () => {
    const { left, right } = lanePair({}, { serve: double });
    expect(await rejection(left.call("double", 1, { signal: AbortSignal.abort() }))).toMatchObject({ code: "aborted" });
    await new Promise(setImmediate);
    expect(left.counts.sent).toBe(0);
    expect(right.counts.received).toBe(0);
    expect(left.pending).toBe(0);
  });

  it("of many calls is listened to once, and stops those that still wait", async () => {
    const { left, right } = lanePair({}, { serve: (method) => (method === "never" ? new Promise(() => {}) : method) });
    const controller = new AbortController();
    const { signal } = controller;
    const listen = vi.spyOn(signal, "addEventListener");
    expect(await Promise.all(["a", "b", "c"].map((method) => left.call(method, 0, { signal })))).toEqual([
      "a",
      "b",
      "c",
    ]);
    const waiting = [1, 2].map((n) => rejection(left.call("never", n, { signal })));
    const other = rejection(left.call("never", 3));
    controller.abort();
    expect((await Promise.all(waiting)).map(({ code }) => code)).toEqual(["aborted", "aborted"]);
    expect(listen).toHaveBeenCalledTimes(1);
    expect(left.pending).toBe(1);
    right.close();
    await other;
  });

  it("leaves an answer that comes too late unread", async () => {
    const gate = deferred<string>();
    const { left, right } = lanePair({}, { serve: (method) => (method === "slow" ? gate.promise : "ok") });
    const controller = new AbortController();
    const call = rejection(left.call("slow", 0, { signal: controller.signal }));
    expect(await left.call("other", 0)).toBe("ok");
    controller.abort();
    await call;
    expect(await left.call("other", 0)).toBe("ok");
    gate.resolve("too late");
    expect(await left.call("other", 0)).toBe("ok");
    expect(left.pending).toBe(0);
    // Three answers to "other" and none to "slow".
    expect(right.counts.sent).toBe(3);
  });

  it("of a cooperative call is a request: the served side sees it, and its answer counts", async () => {
    const served = deferred();
    const serve = (_: string, payload: unknown, { signal }: ServedCall) =>
      new Promise((resolve) => {
        signal.addEventListener("abort", () => resolve(`${payload} stopped`), { once: true });
        if (payload === "second") served.resolve();
      });
    const { left, right } = lanePair({}, { serve });
    const controller = new AbortController();
    const options = { signal: controller.signal, cooperative: true };
    const calls = ["first", "second"].map((name) => left.call("task", name, options));
    await served.promise;
    expect(left.pending).toBe(2);
    controller.abort();
    expect(left.pending).toBe(2);
    expect(await Promise.all(calls)).toEqual(["first stopped", "second stopped"]);
    // A request that has not begun is not made.
    expect(await rejection(left.call("task", "third", options))).toMatchObject({ code: "aborted" });
    const other = rejection(left.call("task", "fourth", { cooperative: true }));
    right.close();
    expect(await other).toMatchObject({ code: "worker_lost" });
  });

  it("of a call with a grace asks first: the answer counts until the grace is over", async () => {
    const heard: unknown[] = [];
    const served = deferred();
    const serve = (method: string, payload: unknown, { signal }: ServedCall) =>
      new Promise((resolve) => {
        signal.addEventListener("abort", () => {
          heard.push(payload);
          if (method === "stops") resolve("stopped by itself");
        });
        if (payload === "last") served.resolve();
      });
    const { left } = lanePair({}, { serve });
    const controller = new AbortController();
    const { signal } = controller;
    const stops = left.call("stops", "first", { signal, graceMs: 60_000 });
    const never = rejection(left.call("never", "second", { signal, graceMs: 1 }));
    const other = rejection(left.call("never", "last", { signal }));
    await served.promise;
    controller.abort();
    expect(await stops).toBe("stopped by itself");
    expect(await never).toMatchObject({ code: "aborted" });
    expect(await other).toMatchObject({ code: "aborted" });
    expect(left.pending).toBe(0);
    expect(heard.sort()).toEqual(["first", "last", "second"]);
  });

  it("that aborts while the answer is on its way settles the call once", async () => {
    const { left } = lanePair({}, { serve: double });
    const controller = new AbortController();
    const call = left.call("double", 1, { signal: controller.signal });
    expect(await call).toBe(2);
    controller.abort();
    expect(await left.call("double", 2)).toBe(4);
  });
});

describe("what cannot be cloned", () => {
  it("fails its own call and no other of the batch", async () => {
    const notes: unknown[] = [];
    const { left } = lanePair({}, { serve: double, onNote: (_, payload) => notes.push(payload) });
    left.note("n", 1);
    left.note("n", () => {});
    const settled = await Promise.allSettled([
      left.call("double", 1),
      left.call("double", () => {}),
      left.call("double", 3),
    ]);
    expect(settled).toMatchObject([
      { status: "fulfilled", value: 2 },
      {
        status: "rejected",
        reason: {
          code: "unserialisable",
          message: "left: what was sent cannot cross a thread: () => {} could not be cloned.",
        },
      },
      { status: "fulfilled", value: 6 },
    ]);
    expect(notes).toEqual([1]);
    expect(left.pending).toBe(0);
  });

  it("fails its own call when it is the answer", async () => {
    const { left, right } = lanePair({}, { serve: (method) => (method === "bad" ? { on: () => {} } : "fine") });
    const settled = await Promise.allSettled([left.call("good", 0), left.call("bad", 0), left.call("good", 0)]);
    expect(settled).toMatchObject([
      { status: "fulfilled", value: "fine" },
      {
        status: "rejected",
        reason: {
          code: "unserialisable",
          message: "right: what was sent cannot cross a thread: () => {} could not be cloned.",
        },
      },
      { status: "fulfilled", value: "fine" },
    ]);
    expect(right.counts.sent).toBe(3);
    expect(left.counts.received).toBe(3);
  });
});

describe("when the other side dies", () => {
  async function expectAllLost(lane: Lane, calls: readonly ReturnType<typeof rejection>[]): Promise<void> {
    const errors = await Promise.all(calls);
    expect(errors.map(({ code }) => code)).toEqual(calls.map(() => "worker_lost"));
    expect(lane.pending).toBe(0);
    expect(lane.lost).toBe(true);
  }
  const several = (lane: Lane) => Array.from({ length: 10 }, (_, n) => rejection(lane.call("never", n)));

  it("by terminate, every pending call rejects with worker_lost", async () => {
    const { lane, worker } = startLanePeer();
    expect(await lane.call("double", 1)).toBe(2);
    const calls = several(lane);
    await lane.call("double", 1);
    await worker.terminate();
    await expectAllLost(lane, calls);
  });

  it("by process.exit, every pending call rejects with worker_lost", async () => {
    const { lane } = startLanePeer();
    await expectAllLost(lane, [...several(lane), rejection(lane.call("exit", 1))]);
  });

  it("by an error nobody caught, every pending call rejects with worker_lost", async () => {
    const { lane } = startLanePeer();
    await expectAllLost(lane, [...several(lane), rejection(lane.call("crash", 0))]);
  });

  it("before it was up, every call made meanwhile rejects with worker_lost", async () => {
    const { lane, worker } = startLanePeer();
    const calls = several(lane);
    await worker.terminate();
    await expectAllLost(lane, calls);
  });

  it("while it is blocked, every pending call rejects with worker_lost", async () => {
    const { lane, worker } = startLanePeer();
    expect(await lane.call("double", 1)).toBe(2);
    const calls = [rejection(lane.call("spin", 0)), ...several(lane)];
    await new Promise(setImmediate);
    await worker.terminate();
    await expectAllLost(lane, calls);
  });

  it("is told once, and later calls reject at once", async () => {
    const lost: string[] = [];
    const told = deferred();
    const { lane, worker } = startLanePeer({
      onLost: ({ code }) => {
        lost.push(code);
        told.resolve();
      },
    });
    await worker.terminate();
    await told.promise;
    expect(await rejection(lane.call("double", 1))).toMatchObject({
      code: "worker_lost",
      message: "peer is gone; the call was not answered.",
      retryable: true,
    });
    lane.note("n", 1);
    lane.close();
    expect(lost).toEqual(["worker_lost"]);
  });

  it("aborts the calls served for it", async () => {
    const stopped = deferred();
    const serving = deferred();
    const serve = (_: string, __: unknown, { signal }: ServedCall) => {
      signal.addEventListener("abort", () => stopped.resolve());
      serving.resolve();
      return new Promise(() => {});
    };
    const { left, right } = lanePair({}, { serve });
    const call = rejection(left.call("hook", 0));
    await serving.promise;
    left.close();
    await stopped.promise;
    expect(right.lost).toBe(true);
    expect(await call).toMatchObject({ code: "worker_lost" });
  });
});

describe("a message that cannot be read", () => {
  it("loses the lane with wire_corrupt, and no call stays behind", async () => {
    const { left, port1 } = lanePair({}, { serve: () => new Promise(() => {}) });
    const calls = [left.call("a", 0), left.call("b", 0)].map(rejection);
    port1.emit("messageerror", new Error("bad bytes"));
    for (const error of await Promise.all(calls)) {
      expect(error).toMatchObject({
        code: "wire_corrupt",
        message: "left sent a message that cannot be read: bad bytes.",
        cause: expect.objectContaining({ message: "bad bytes" }),
      });
    }
    expect(left.pending).toBe(0);
  });
});

describe("close", () => {
  it("sends what was said before, then rejects what is pending", async () => {
    const heard: unknown[] = [];
    const gone = deferred();
    const { left } = lanePair({}, { onNote: (_, payload) => heard.push(payload), onLost: () => gone.resolve() });
    left.note("n", "last words");
    const call = rejection(left.call("hook", 0));
    left.close();
    expect(await call).toMatchObject({ code: "worker_lost" });
    await gone.promise;
    expect(heard).toEqual(["last words"]);
  });

  it("may be called twice, and from inside a note", async () => {
    const served: string[] = [];
    const gone = deferred();
    const { left, right } = lanePair(
      { onLost: () => gone.resolve() },
      { onNote: () => right.close(), serve: (method) => served.push(method) },
    );
    left.note("close", 0);
    const call = rejection(left.call("after", 0));
    await gone.promise;
    expect(await call).toMatchObject({ code: "worker_lost" });
    expect(served).toEqual([]);
    left.close();
    right.close();
  });
});
