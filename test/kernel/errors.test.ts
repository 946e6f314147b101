import { describe, expect, it } from "vitest";
import { aborted, asTroupeError, messageOf, TroupeError } from "../../src/kernel/index.js";

describe("TroupeError", () => {
  it("is known by every copy of its class, and is no instance of a class that extends it", async () => {
    const copy: { TroupeError: typeof TroupeError } = await import("../../src/kernel/errors.js?copy" as string);
    expect(copy.TroupeError).not.toBe(TroupeError);
    const error = new copy.TroupeError("mailbox_full", "The mailbox is full.");
    expect(error instanceof TroupeError).toBe(true);
    expect(asTroupeError(error, "start_failed")).toBe(error);
    class Own extends TroupeError {}
    expect(error instanceof Own).toBe(false);
    expect(new Own("mailbox_full", "Mine.") instanceof Own).toBe(true);
    for (const other of [new Error("x"), {}, null, "text", { code: "mailbox_full" }])
      expect(other instanceof TroupeError).toBe(false);
  });

  it("is not retryable and has no details and no cause unless told", () => {
    const error = new TroupeError("mailbox_full", "The mailbox is full.");
    expect(error).toMatchObject({ name: "TroupeError", code: "mailbox_full", retryable: false, details: {} });
    expect(Object.hasOwn(error, "cause")).toBe(false);
  });
});

describe("asTroupeError", () => {
  it("leaves a TroupeError as it is", () => {
    const error = new TroupeError("closed", "A.");
    expect(asTroupeError(error, "turn_failed")).toBe(error);
  });

  it("makes anything else the cause of a new one", () => {
    const cause = new RangeError("page 7");
    expect(asTroupeError(cause, "turn_failed")).toMatchObject({ code: "turn_failed", message: "page 7", cause });
    expect(asTroupeError("words", "turn_failed", "Better words.")).toMatchObject({
      message: "Better words.",
      cause: "words",
    });
  });
});

describe("messageOf", () => {
  it.each<[string, unknown, string]>([
    ["an error", new Error("a"), "a"],
    ["a string", "b", "b"],
    ["an object", { status: 500 }, '{"status":500}'],
    ["nothing", undefined, "undefined"],
    ["null", null, "null"],
    ["a function", Math.max, "function max() { [native code] }"],
    ["what JSON cannot say", 10n, "[object BigInt]"],
  ])("of %s", (_, thrown, message) => {
    expect(messageOf(thrown)).toBe(message);
  });
});

describe("aborted", () => {
  it("makes a typed error of any reason, and keeps one that is typed already", () => {
    expect(aborted(AbortSignal.abort("why"))).toMatchObject({ code: "aborted", cause: "why", retryable: false });
    const reason = new TroupeError("turn_suspended", "The host cancelled.");
    expect(aborted(AbortSignal.abort(reason))).toBe(reason);
  });
});
