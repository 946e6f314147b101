import { once } from "node:events";
import { MessageChannel } from "node:worker_threads";
import { describe, expect, it, onTestFinished } from "vitest";
import { systemClock } from "../../src/async/index.js";
import { TroupeError } from "../../src/kernel/index.js";
import { Caller, type Service, serve } from "../../src/wire/index.js";
import { deferred, rejection, startService } from "./threads.js";

describe("a call over Comlink", () => {
  it("gives the value the other thread made", async () => {
    const { call, caller, worker } = startService();
    expect(await call("double", 21)).toBe(42);
    expect(await call("thread", undefined)).toBe(worker.threadId);
    expect(caller.pending).toBe(0);
  });

  it("gives the answers of many calls to those who asked", async () => {
    const { call, caller } = startService();
    const numbers = Array.from({ length: 100 }, (_, n) => n);
    const calls = numbers.map((n) => call("double", n));
    expect(caller.pending).toBe(100);
    expect(await Promise.all(calls)).toEqual(numbers.map((n) => n + n));
    expect(caller.pending).toBe(0);
  });

  it("rejects with the error of the other thread, code and cause intact", async () => {
    const { call, caller } = startService();
    const error = await rejection(call("typed"));
    expect(error).toBeInstanceOf(TroupeError);
    expect(error).toMatchObject({ code: "budget_exhausted", cause: { code: "ledger_closed" } });
    expect(caller.pending).toBe(0);
  });

  it.each(["nowhere", "toString", "constructor", "__proto__"])("of %s is unknown_method", async (method) => {
    const { call } = startService();
    expect(await rejection(call(method))).toMatchObject({
      code: "unknown_method",
      message: `This thread does not serve ${method}.`,
    });
  });

  it("fails alone when its argument cannot be cloned", async () => {
    const { call, caller } = startService();
    const [bad, good] = await Promise.allSettled([call("double", () => 1), call("double", 2)]);
    expect(bad).toMatchObject({
      status: "rejected",
      reason: { code: "unserialisable", message: "service: double could not cross the thread." },
    });
    expect(good).toEqual({ status: "fulfilled", value: 4 });
    expect(caller.pending).toBe(0);
  });

  it("fails alone when its answer cannot be cloned", async () => {
    const { call } = startService();
    const [bad, good] = await Promise.allSettled([call("closure"), call("double", 2)]);
    expect(bad).toMatchObject({ status: "rejected", reason: { code: "unserialisable" } });
    expect(good).toEqual({ status: "fulfilled", value: 4 });
  });

  it("leaves nothing pending when there is nothing to transfer with", async () => {
    const { call, caller } = startService();
    const { port1, port2 } = new MessageChannel();
    expect(await rejection(call("double", 1, { transfer: [port1] }))).toBeInstanceOf(TypeError);
    expect(caller.pending).toBe(0);
    port2.close();
  });

  it("is not made by awaiting the caller", async () => {
    const { caller } = startService();
    const to = await caller.to;
    expect(to).toBe(caller.to);
    expect(caller.pending).toBe(0);
  });
});

describe("a deadline", () => {
  it("fails the call with call_timeout and tells the other thread to stop", async () => {
    const { call, caller } = startService();
    expect(await call("double", 1)).toBe(2);
    const error = await rejection(call("untilAborted", "late", { deadlineMs: 20 }));
    expect(error).toMatchObject({
      code: "call_timeout",
      message: "service: untilAborted did not answer within 20 ms.",
      retryable: true,
      details: { method: "untilAborted", deadlineMs: 20 },
    });
    expect(caller.pending).toBe(0);
    // Messages keep their order: the cancel came before this call.
    expect(await call("heard")).toEqual(["late"]);
  });

  it("is the caller's own unless the call has another", async () => {
    const { call } = startService("service", 20);
    expect(await rejection(call("never"))).toMatchObject({
      code: "call_timeout",
      details: { deadlineMs: 20 },
    });
  });
});

describe("an AbortSignal", () => {
  it("arrives on the other thread as a signal that aborts", async () => {
    const { call, caller } = startService();
    const controller = new AbortController();
    const failed = rejection(call("untilAborted", "stopped", { signal: controller.signal }));
    expect(await call("double", 1)).toBe(2);
    controller.abort(new Error("enough"));
    expect(await failed).toMatchObject({ code: "aborted", cause: expect.objectContaining({ message: "enough" }) });
    expect(caller.pending).toBe(0);
    expect(await call("heard")).toEqual(["stopped"]);
  });

  it("stops only its own call", async () => {
    const { call, caller } = startService();
    const controller = new AbortController();
    const stopped = rejection(call("untilAborted", "one", { signal: controller.signal }));
    const other = new AbortController();
    const running = rejection(call("untilAborted", "two", { signal: other.signal }));
    controller.abort();
    await stopped;
    expect(await call("heard")).toEqual(["one"]);
    expect(caller.pending).toBe(1);
    other.abort();
    await running;
  });

  it("of a cooperative call is a request: the other thread hears it, and its answer counts", async () => {
    const { call, caller } = startService();
    const controller = new AbortController();
    const running = call("untilAborted", "in its own time", { signal: controller.signal, cooperative: true });
    expect(await call("double", 1)).toBe(2);
    controller.abort();
    expect(caller.pending).toBe(1);
    expect(await running).toBe("in its own time");
    expect(caller.pending).toBe(0);
  });

  it("may serve more calls than Node likes listeners, without a warning", async () => {
    const { call } = startService();
    const warnings: Error[] = [];
    const onWarning = (warning: Error) => warnings.push(warning);
    process.on("warning", onWarning);
    const { signal } = new AbortController();
    await Promise.all(Array.from({ length: 12 }, () => call("double", 1, { signal })));
    process.off("warning", onWarning);
    expect(warnings).toEqual([]);
  });

  it("that is already aborted makes no call", async () => {
    const { call, caller } = startService();
    const failed = call("untilAborted", "never begun", { signal: AbortSignal.abort() });
    expect(caller.pending).toBe(0);
    expect(await rejection(failed)).toMatchObject({ code: "aborted" });
    expect(await call("heard")).toEqual([]);
  });
});

describe("when the thread dies", () => {
  const LOST = { code: "worker_lost", message: "service is gone; the call was not answered.", retryable: true };

  it("by terminate, every pending call rejects with worker_lost", async () => {
    const { call, caller, worker, gone } = startService();
    expect(await call("double", 1)).toBe(2);
    const calls = [1, 2, 3].map(() => rejection(call("never")));
    await worker.terminate();
    expect(await Promise.all(calls)).toMatchObject([LOST, LOST, LOST]);
    await gone;
    expect(caller.pending).toBe(0);
  });

  it("by process.exit, every pending call rejects with worker_lost", async () => {
    const { call, caller } = startService();
    const calls = [call("never"), call("never"), call("exit", 1)];
    expect(await Promise.all(calls.map(rejection))).toMatchObject([LOST, LOST, LOST]);
    expect(caller.pending).toBe(0);
  });

  it("before it was up, the calls made at start reject with worker_lost", async () => {
    const { call, caller } = startService("exits-at-start");
    const calls = [call("double", 1), call("double", 2)];
    expect(await Promise.all(calls.map(rejection))).toMatchObject([LOST, LOST]);
    expect(caller.pending).toBe(0);
  });

  it("later calls reject at once, and lose may be said twice", async () => {
    const { call, caller, worker, gone } = startService();
    await worker.terminate();
    await gone;
    caller.lose(new Error("again"));
    expect(await rejection(call("double", 1))).toMatchObject(LOST);
  });

  it("the cause it is given stays with every call", async () => {
    const { call, caller, worker } = startService();
    const failed = rejection(call("never"));
    caller.lose(new Error("heap limit"));
    expect(await failed).toMatchObject({ ...LOST, cause: expect.objectContaining({ message: "heap limit" }) });
    await worker.terminate();
  });

  it("a signal that aborts afterwards changes nothing", async () => {
    const { call, worker, gone } = startService();
    const controller = new AbortController();
    const failed = rejection(call("never", undefined, { signal: controller.signal }));
    await worker.terminate();
    await gone;
    controller.abort();
    expect(await failed).toMatchObject(LOST);
  });
});

describe("whoever serves", () => {
  /** A service in this thread, and the port of a caller that does not keep to the rules. */
  function servedHere() {
    const { port1, port2 } = new MessageChannel();
    onTestFinished(() => port1.close());
    const calls: { argument: unknown; signal: AbortSignal }[] = [];
    const called = deferred();
    serve(port2, {
      wait(argument: unknown, signal: AbortSignal) {
        calls.push({ argument, signal });
        called.resolve();
        return new Promise(() => {});
      },
    });
    return { port1, calls, called };
  }

  it("tells the calls under way to stop when the caller's side is gone", async () => {
    const { port1, calls, called } = servedHere();
    const caller = new Caller<Service>(port1, { clock: systemClock, name: "caller", deadlineMs: 60_000 });
    void caller.to.wait?.("for nobody").catch(() => undefined);
    await called.promise;
    const stopped = once(calls[0]?.signal as AbortSignal, "abort");
    port1.close();
    await stopped;
    expect(calls.map(({ signal }) => signal.aborted)).toEqual([true]);
  });

  it("answers calls and nothing else: a hostile caller cannot read, set or construct anything", async () => {
    const { port1, calls, called } = servedHere();
    const raw = (value: unknown) => ({ type: "RAW", value });
    const heard: unknown[] = [];
    port1.on("message", (message: { id: string }) => heard.push(message.id));
    for (const [id, message] of Object.entries({
      set: { type: "SET", path: ["__proto__", "polluted"], value: raw(true) },
      deepSet: { type: "SET", path: ["call", "__proto__", "polluted"], value: raw(true) },
      get: { type: "GET", path: ["call", "constructor"] },
      applyOther: { type: "APPLY", path: ["call", "constructor"], argumentList: [raw("return 1")] },
      applyProto: { type: "APPLY", path: ["__proto__", "constructor"], argumentList: [] },
      construct: { type: "CONSTRUCT", path: ["call", "constructor"], argumentList: [raw("return 1")] },
      endpoint: { type: "ENDPOINT", path: [] },
      release: { type: "RELEASE", path: [] },
      nonsense: null,
    })) {
      port1.postMessage(message === null ? message : { id, ...message });
    }
    // Behind all of them, and still served.
    port1.postMessage({ id: "last", type: "APPLY", path: ["call"], argumentList: [1, "wait", "in order"].map(raw) });
    await called.promise;
    expect(calls.map(({ argument }) => argument)).toEqual(["in order"]);
    expect([heard, ({} as { polluted?: boolean }).polluted]).toEqual([[], undefined]);
    expect((calls.push as { polluted?: boolean }).polluted).toBeUndefined();
  });
});

describe("what is moved instead of copied", () => {
  it("a buffer of the argument arrives, and is gone here", async () => {
    const { call } = startService();
    const buffer = new ArrayBuffer(1_024);
    expect(await call("sizes", [buffer], { transfer: [buffer] })).toEqual([1_024]);
    expect(buffer.byteLength).toBe(0);
  });

  it("a buffer of the answer arrives, and is gone there", async () => {
    const { call } = startService();
    const { bytes } = (await call("make", 512)) as { bytes: Uint8Array };
    expect(bytes).toEqual(new Uint8Array(512).fill(7));
    expect(await call("leftOfMade")).toBe(0);
  });

  it("a buffer that is not named is copied", async () => {
    const { call } = startService();
    const buffer = new ArrayBuffer(16);
    expect(await call("sizes", [buffer])).toEqual([16]);
    expect(buffer.byteLength).toBe(16);
  });

  it("a MessagePort arrives and works", async () => {
    const { call } = startService();
    const { port1, port2 } = new MessageChannel();
    const heard = deferred<unknown>();
    port2.once("message", heard.resolve);
    const closed = once(port2, "close");
    await call("pong", { port: port1 }, { transfer: [port1] });
    expect(await heard.promise).toBe("pong");
    await closed;
  });
});
